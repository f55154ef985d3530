//! Processors, memory and limits, from `proc` and `sys/devices/system`.

use super::{Root, row};
use crate::facts::Machine;

pub(super) fn read(root: &Root) -> Machine {
    let info = root.text("proc/cpuinfo").unwrap_or_default();
    let memory = root.text("proc/meminfo").unwrap_or_default();
    let kib = |name: &str| {
        let number: u64 = row(&memory, name)?.split_whitespace().next()?.parse().ok()?;
        number.checked_mul(1024)
    };
    let limits = root.text("proc/self/limits").unwrap_or_default();
    let system = "sys/devices/system";
    let first = format!("{system}/cpu/cpu0/cpufreq");
    let governor = root.text(&format!("{first}/scaling_governor"));
    let driver = root.text(&format!("{first}/scaling_driver")).unwrap_or_default();
    let is_node = |name: &String| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    Machine {
        cpus: info.lines().filter(|line| line.starts_with("processor")).count(),
        cpu_flags: row(&info, "flags").or_else(|| row(&info, "Features")).map(words).unwrap_or_default(),
        governor: governor.map(|governor| (governor, driver)),
        numa_nodes: root.names(&format!("{system}/node")).iter().filter(|name| is_node(name)).count(),
        clocksource: root.text(&format!("{system}/clocksource/clocksource0/current_clocksource")),
        memory: kib("MemAvailable").zip(kib("MemTotal")),
        swap_used: kib("SwapTotal").zip(kib("SwapFree")).map(|(all, free)| all.saturating_sub(free)),
        shmem_huge: root.text("sys/kernel/mm/transparent_hugepage/shmem_enabled").and_then(|text| chosen(&text)),
        descriptors_max: hard_limit(&limits, "Max open files"),
        locked_max: hard_limit(&limits, "Max locked memory"),
        cpu_pressure: root.text("proc/pressure/cpu").and_then(|text| pressure(&text)),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The word in brackets of `always [never] advise`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// The second number of a line of `limits`: soft, hard, unit.
fn hard_limit(text: &str, name: &str) -> Option<u64> {
    let hard = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

/// `avg60` of the line `some`.
fn pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let share: f64 = some.split_whitespace().find_map(|word| word.strip_prefix("avg60="))?.parse().ok()?;
    share.is_finite().then_some(share)
}
