//! The network interfaces, from `sys/class/net` and `proc/interrupts`.

use super::{Root, ethtool};
use crate::facts::Link;

/// Most processors that interrupts are counted of.
const CPUS_MAX: usize = 4096;

pub(super) fn read(root: &Root) -> Vec<Link> {
    let interrupts = root.text("proc/interrupts").unwrap_or_default();
    let names = root.names("sys/class/net");
    let up = names.into_iter().filter(|name| is_name(name) && name != "lo").filter(|name| {
        // Interfaces without a state of their own are up if they are there.
        let state = root.text(&format!("sys/class/net/{name}/operstate"));
        matches!(state.as_deref(), Some("up" | "unknown"))
    });
    up.map(|name| link(root, name, &interrupts)).collect()
}

/// Names of the kernel: 1 to 15 bytes, no slash, no space.
fn is_name(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

fn link(root: &Root, name: String, interrupts: &str) -> Link {
    let at = |file: &str| format!("sys/class/net/{name}/{file}");
    let count = |file: &str| root.number(&at(&format!("statistics/{file}"))).unwrap_or(0);
    let queues: Vec<String> = root.names(&at("queues")).into_iter().filter(|queue| queue.starts_with("rx-")).collect();
    // In the order of their numbers: 2 comes before 10.
    let mut numbers: Vec<u32> = queues.iter().filter_map(|queue| queue[3..].parse().ok()).collect();
    numbers.sort_unstable();
    let of_queue = |file: &'static str| numbers.iter().map(move |number| format!("queues/rx-{number}/{file}"));
    let (ethtool, offered) = if root.is_real() { ethtool::read(&name) } else { Default::default() };
    Link {
        driver: root.link(&at("device/driver")).unwrap_or_default(),
        // An unknown rate is -1, and no number here.
        speed_mbit: root.number(&at("speed")).filter(|mbit| *mbit > 0 && *mbit < 100_000_000),
        offered_mbit: offered,
        duplex: root.text(&at("duplex")),
        mtu: root.number(&at("mtu")),
        numa_node: root.number(&at("device/numa_node")),
        carrier_changes: root.number(&at("carrier_changes")),
        rx_packets: count("rx_packets"),
        rx_crc_errors: count("rx_crc_errors"),
        rx_missed: count("rx_missed_errors").saturating_add(count("rx_fifo_errors")),
        tx_dropped: count("tx_dropped"),
        rps_cpus: of_queue("rps_cpus").map(|file| root.text(&at(&file)).unwrap_or_default()).collect(),
        rps_flow_cnt: of_queue("rps_flow_cnt").map(|file| root.number(&at(&file)).unwrap_or(0)).collect(),
        interrupts: interrupts_of(interrupts, &name, root),
        ethtool,
        name,
    }
}

/// Interrupts by processor, of the lines that name the interface or are listed for its device.
fn interrupts_of(text: &str, name: &str, root: &Root) -> Vec<u64> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |head| head.split_whitespace().count()).min(CPUS_MAX);
    // The interrupts of a virtio device are those of the device that it lies on.
    let mut numbers = root.names(&format!("sys/class/net/{name}/device/msi_irqs"));
    numbers.extend(root.names(&format!("sys/class/net/{name}/device/../msi_irqs")));
    let mut sums = vec![0_u64; cpus];
    for line in lines {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let is_its = numbers.iter().any(|other| other == number.trim())
            || rest.split_whitespace().skip(cpus).any(|word| word.split([',', '-', '@', ':']).any(|part| part == name));
        if is_its {
            for (sum, count) in sums.iter_mut().zip(rest.split_whitespace()) {
                *sum = sum.saturating_add(count.parse().unwrap_or(0));
            }
        }
    }
    if sums.iter().all(|sum| *sum == 0) { Vec::new() } else { sums }
}
