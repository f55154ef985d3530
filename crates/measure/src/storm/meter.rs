//! Measurements from outside during a storm: links, processors, and the kernel's drops.

use super::role::seconds_since;
use vfield_lab::link::Counters;
use vfield_lab::{Lab, LabError, process};

/// One look at the meters. What a storm took is the difference of two.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// Over each host's link so far.
    pub(super) links: Vec<Counters>,
    /// Processor seconds of all of the machine, interrupts included.
    pub(super) machine_s: f64,
    /// Times that the kernel had no room for one more neighbour.
    pub(super) table_fulls: u64,
}

impl Reading {
    /// Looks at the meters of a lab of namespaces.
    pub(super) fn take(lab: &Lab) -> Result<Self, LabError> {
        Ok(Self { links: lab.all_counters()?, machine_s: machine_s(), table_fulls: table_fulls() })
    }
}

/// Processor seconds of some processes, all threads of each; also of those that have ended and were
/// not waited for.
pub(super) fn processes_s(pids: impl Iterator<Item = u32>) -> f64 {
    pids.map(|pid| process::cpu(pid).as_secs_f64()).sum()
}

/// Processor seconds that this machine has not idled since it was switched on. What it has worked
/// is counted by looking at ticks, which overlooks half of what shapers and interrupts take; what
/// it idles is measured.
pub(crate) fn machine_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // user nice system idle iowait
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(4).take(2);
    let idle_ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
    #[expect(clippy::cast_precision_loss, reason = "both are small numbers")]
    let (per_second, processors) = (rustix::param::clock_ticks_per_second() as f64, processors() as f64);
    seconds_since(0) * processors - idle_ticks / per_second
}

/// How often the kernel's table of neighbours, one for all namespaces, was full.
fn table_fulls() -> u64 {
    parse_table_fulls(&std::fs::read_to_string("/proc/net/stat/arp_cache").unwrap_or_default())
}

/// A line of names, then a line of hexadecimal counters for each processor.
fn parse_table_fulls(text: &str) -> u64 {
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default();
    let Some(column) = names.split_whitespace().position(|name| name == "table_fulls") else { return 0 };
    let counters = lines.filter_map(|line| line.split_whitespace().nth(column));
    counters.filter_map(|counter| u64::from_str_radix(counter, 16).ok()).sum()
}

/// Number of processors.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What the kernel says of its memory under this name.
pub(super) fn meminfo_bytes(name: &str) -> u64 {
    let kib = field("/proc/meminfo", name);
    kib.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() << 10
}

/// The first field of this name in a file of the kernel's; empty if there is none.
fn field(path: &str, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.trim_end() == name).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

/// What this machine is, for the record.
pub fn machine() -> String {
    let model = field("/proc/cpuinfo", "model name");
    let memory_bytes = meminfo_bytes("MemTotal");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim().split('-').next().unwrap_or_default();
    format!("{} cores ({model}), {} GiB, Linux {release}", processors(), memory_bytes >> 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_tables_are_summed_over_processors() {
        let text = "entries  lookups table_fulls\n00000004 00000001 0000000a\n00000004 00000000 00000010\n";
        assert_eq!(parse_table_fulls(text), 26);
        assert_eq!(parse_table_fulls(""), 0);
        assert_eq!(parse_table_fulls("entries\n00000001\n"), 0);
    }
}
