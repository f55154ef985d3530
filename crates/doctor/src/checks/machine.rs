//! Checks of processors, memory and limits.

use crate::facts::Facts;
use crate::finding::{Finding, Fix, Weight};
use vfield_console::values::size::human;

/// Open files that a daemon asks for: as many as its connections may be.
const DESCRIPTORS: u64 = 8192;
/// Share of a minute in which something waits for a processor that readers notice, in percent.
const PRESSURE_PERCENT: f64 = 20.0;
/// Clocks that are read without a system call.
const QUICK: [&str; 5] = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen"];

pub(super) fn cpu_features(facts: &Facts) -> Vec<Finding> {
    let flags = &facts.machine.cpu_flags;
    if flags.is_empty() {
        return Vec::new();
    }
    let has = |flag: &str| flags.iter().any(|other| other == flag);
    let mut found = Vec::new();
    if !has("avx512f") && !has("avx2") && !has("asimd") {
        let fact = "the processor has neither AVX-512 nor AVX2".to_owned();
        let costs = "BLAKE3 hashes about a quarter as fast as with AVX2; `vfield bench` shows the rate".to_owned();
        found.push(Finding::new("cpu-features", Weight::Slow, fact, costs).typed("vfield bench", ""));
    }
    let is_closed = facts.field.as_ref().is_some_and(|field| field.is_closed);
    if !has("aes") && is_closed {
        let fact = "the processor has no AES instructions, and the field has a key".to_owned();
        let costs = "each byte is sealed in software, at some 100 MB/s a processor".to_owned();
        found.push(Finding::new("cpu-features", Weight::Slow, fact, costs).typed("vfield bench", ""));
    }
    found
}

pub(super) fn governor(facts: &Facts) -> Vec<Finding> {
    let Some((governor, driver)) = &facts.machine.governor else { return Vec::new() };
    // With these drivers the hardware chooses, and powersave is the usual word.
    if governor != "powersave" || driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate") {
        return Vec::new();
    }
    let fact = "the processors run at their lowest clock (governor powersave)".to_owned();
    let costs = format!("all {} of them, whatever the load", facts.machine.cpus);
    let fix = (0..facts.machine.cpus).map(|cpu| Fix {
        path: format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
        value: "performance".to_owned(),
        before: governor.clone(),
    });
    vec![Finding::new("governor", Weight::Slow, fact, costs).fixed(fix.collect())]
}

pub(super) fn clocksource(facts: &Facts) -> Vec<Finding> {
    let Some(clock) = facts.machine.clocksource.as_deref().filter(|clock| !QUICK.contains(clock)) else {
        return Vec::new();
    };
    let fact = format!("the kernel's clock is {clock}");
    let costs =
        "each look at it is a system call of about a microsecond; a node looks several times a chunk".to_owned();
    let path = "/sys/devices/system/clocksource/clocksource0";
    let command = format!("cat {path}/available_clocksource; if tsc is there: echo tsc > {path}/current_clocksource");
    let undo = format!("echo {clock} > {path}/current_clocksource");
    vec![Finding::new("clocksource", Weight::Note, fact, costs).typed(command, undo)]
}

pub(super) fn memory(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let (Some((free, all)), Some(field)) = (facts.machine.memory, &facts.field) {
        let (capacity, held) = field.store;
        let missing = capacity.saturating_sub(held);
        if missing > free {
            let fact = format!(
                "the stores are to take {} more, and {} of {} are free",
                human(missing),
                human(free),
                human(all)
            );
            let costs = "the daemon or another program is killed for want of memory".to_owned();
            let command = "start the daemon with a smaller --store".to_owned();
            found.push(Finding::new("memory", Weight::Bad, fact, costs).typed(command, ""));
        }
        let swapped = facts.machine.swap_used.filter(|bytes| *bytes > 64 << 20 && held > 0);
        if let Some(bytes) = swapped {
            let fact = format!("{} are swapped, and stores can be", human(bytes));
            let costs = "a chunk that was swapped comes from the disk, not from memory".to_owned();
            let finding = Finding::new("memory", Weight::Note, fact, costs);
            found.push(finding.typed("give the daemon's unit MemorySwapMax=0, or less --store", ""));
        }
    }
    found
}

pub(super) fn pressure(facts: &Facts) -> Vec<Finding> {
    let Some(share) = facts.machine.cpu_pressure.filter(|share| *share > PRESSURE_PERCENT) else { return Vec::new() };
    let fact = format!("in {share:.0} % of the last minute something waited for a processor");
    let costs = "reads wait as long for their daemon".to_owned();
    let command = "cat /proc/pressure/cpu; give the daemon's unit CPUWeight=1000".to_owned();
    vec![Finding::new("pressure", Weight::Slow, fact, costs).typed(command, "take the line away")]
}

pub(super) fn descriptors(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(most) = facts.machine.descriptors_max.filter(|most| *most < DESCRIPTORS) {
        let fact = format!("a process may have {most} open files");
        let costs = format!("a node takes {} connections instead of {DESCRIPTORS}", most.saturating_sub(64));
        let command = format!("LimitNOFILE={DESCRIPTORS} in the daemon's unit");
        found.push(Finding::new("descriptors", Weight::Note, fact, costs).typed(command, "take the line away"));
    }
    found
}

pub(super) fn numa(facts: &Facts) -> Vec<Finding> {
    if facts.machine.numa_nodes < 2 {
        return Vec::new();
    }
    let of = |link: &crate::facts::Link| {
        let node = link.numa_node?;
        link.speed_mbit.filter(|mbit| *mbit >= 10_000)?;
        let fact = format!("{} belongs to NUMA node {node} of {}", link.name, facts.machine.numa_nodes);
        let costs = "a daemon on another node moves each byte between the nodes twice".to_owned();
        let command = format!("NUMAPolicy=bind and NUMAMask={node} in the daemon's unit");
        Some(Finding::new("numa", Weight::Note, fact, costs).typed(command, "take the lines away"))
    };
    facts.links.iter().filter_map(of).collect()
}
