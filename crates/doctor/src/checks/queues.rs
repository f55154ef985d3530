//! Checks of receive queues, interrupts and the processors that take packets.

use super::percent;
use crate::facts::{Facts, Link};
use crate::finding::{Finding, Fix, Weight};

/// Below this one processor takes all packets with ease.
const FAST_MBIT: u64 = 5000;
/// Interrupts that make a share of one processor mean something.
const INTERRUPTS_MIN: u64 = 100_000;
/// Longest delay of an interrupt in microseconds that a read on a LAN does not notice: a verified
/// chunk one hop away takes some 500.
const USECS_MAX: u64 = 150;
/// Entries for flows: the kernel's document advises as many as connections are expected.
const FLOWS: u64 = 32_768;

/// True if a single processor may be too slow for it: a fast link, or a virtual one without a rate.
fn is_fast(link: &Link) -> bool {
    link.speed_mbit.map_or(link.driver == "virtio_net", |mbit| mbit >= FAST_MBIT)
}

pub(super) fn missed(facts: &Facts) -> Vec<Finding> {
    let of = |link: &Link| {
        let (missed, name) = (link.rx_missed, &link.name);
        if missed == 0 || missed.saturating_mul(100_000) < link.rx_packets {
            return None;
        }
        let fact = format!("{name} lost {missed} packets for want of receive buffers");
        let costs = format!("{} of {} packets", percent(missed, link.rx_packets), link.rx_packets);
        let finding = Finding::new("rx-missed", Weight::Slow, fact, costs);
        let room = link.ethtool.rx_ring.filter(|(now, most)| now < most);
        Some(match room {
            Some((now, most)) => {
                finding.typed(format!("ethtool -G {name} rx {most}"), format!("ethtool -G {name} rx {now}"))
            }
            None => finding.typed("give the queues to more processors: see the checks channels and rps", ""),
        })
    };
    facts.links.iter().filter_map(of).collect()
}

pub(super) fn channels(facts: &Facts) -> Vec<Finding> {
    let cpus = facts.machine.cpus as u64;
    let of = |link: &Link| {
        let (now, most) = link.ethtool.channels?;
        let useful = most.min(cpus);
        (now > 0 && now < useful && is_fast(link)).then(|| {
            let name = &link.name;
            let fact = format!("{name} uses {now} of {most} queues, on {cpus} processors");
            let costs = format!("{now} of {useful} processors take its {} packets", link.rx_packets);
            let command = |count: u64| format!("ethtool -L {name} combined {count}");
            Finding::new("channels", Weight::Slow, fact, costs).typed(command(useful), command(now))
        })
    };
    facts.links.iter().filter_map(of).collect()
}

/// The mask of all processors but the first, which has the interrupts, in the kernel's form.
fn mask(cpus: usize) -> String {
    let mut words: Vec<String> = (0..cpus.div_ceil(32))
        .map(|word| {
            let bits = (cpus - word * 32).min(32);
            let all = if bits == 32 { u32::MAX } else { (1 << bits) - 1 };
            format!("{:x}", if word == 0 && cpus > 1 { all & !1 } else { all })
        })
        .collect();
    words.reverse();
    words.join(",")
}

pub(super) fn rps(facts: &Facts) -> Vec<Finding> {
    let cpus = facts.machine.cpus;
    let of = |link: &Link| {
        // Queues that interrupt different processors need no help of software. A virtual interface
        // hands packets over on the processor of their sender, and RPS only adds a wake-up.
        let is_candidate = cpus > 1 && link.is_device() && link.rx_queues() == 1 && !link.has_rps() && is_fast(link);
        is_candidate.then(|| {
            let name = &link.name;
            let fact = format!("{name} has one receive queue on {cpus} processors, and RPS is off");
            let costs = format!("one processor took all {} packets", link.rx_packets);
            let path = format!("/sys/class/net/{name}/queues/rx-0/rps_cpus");
            let fix = Fix { path, value: mask(cpus), before: link.rps_cpus[0].clone() };
            Finding::new("rps", Weight::Slow, fact, costs).fixed(vec![fix])
        })
    };
    facts.links.iter().filter_map(of).collect()
}

pub(super) fn rfs(facts: &Facts) -> Vec<Finding> {
    let Some(0) = facts.net.flow_entries else { return Vec::new() };
    let of = |link: &Link| {
        (link.has_rps() && link.rx_queues() > 0).then(|| {
            let fact = format!("RPS is on for {} and RFS is off", link.name);
            let costs =
                "packets wake a processor that does not run the daemon, so it is woken a second time".to_owned();
            let entries = "/proc/sys/net/core/rps_sock_flow_entries".to_owned();
            let mut fix = vec![Fix { path: entries, value: FLOWS.to_string(), before: "0".to_owned() }];
            let each = FLOWS / link.rx_queues() as u64;
            fix.extend(link.rps_flow_cnt.iter().enumerate().map(|(queue, before)| Fix {
                path: format!("/sys/class/net/{}/queues/rx-{queue}/rps_flow_cnt", link.name),
                value: each.to_string(),
                before: before.to_string(),
            }));
            Finding::new("rfs", Weight::Note, fact, costs).fixed(fix)
        })
    };
    facts.links.iter().filter_map(of).collect()
}

pub(super) fn irq_affinity(facts: &Facts) -> Vec<Finding> {
    let of = |link: &Link| {
        let (all, most) = (link.interrupts.iter().sum::<u64>(), link.interrupts.iter().max().copied()?);
        let is_one = link.rx_queues() > 1 && facts.machine.cpus > 1 && all >= INTERRUPTS_MIN && most >= all / 10 * 9;
        is_one.then(|| {
            let cpu = link.interrupts.iter().position(|count| *count == most).unwrap_or(0);
            let fact =
                format!("processor {cpu} has the interrupts of all {} queues of {}", link.rx_queues(), link.name);
            let costs = format!("{most} of {all} interrupts came to it");
            let command = "systemctl start irqbalance".to_owned();
            Finding::new("irq-affinity", Weight::Slow, fact, costs).typed(command, "systemctl stop irqbalance")
        })
    };
    facts.links.iter().filter_map(of).collect()
}

pub(super) fn coalescing(facts: &Facts) -> Vec<Finding> {
    let of = |link: &Link| {
        let (usecs, name) = (link.ethtool.rx_usecs?, &link.name);
        if link.ethtool.adaptive_rx == Some(true) || (usecs <= USECS_MAX && (usecs > 0 || !is_fast(link))) {
            return None;
        }
        // Virtual interfaces answer 0 and moderate nothing.
        link.speed_mbit.filter(|mbit| *mbit > 0 && !link.driver.is_empty())?;
        let interrupts = link.interrupts.iter().sum::<u64>();
        let (fact, costs) = if usecs > USECS_MAX {
            (
                format!("{name} puts interrupts off by {usecs} us"),
                format!("each read of a chunk takes up to {usecs} us more"),
            )
        } else {
            let fact = format!("{name} interrupts for each packet");
            (fact, format!("{interrupts} interrupts for {} packets", link.rx_packets))
        };
        let command = format!("ethtool -C {name} adaptive-rx off rx-usecs 30");
        let undo = format!("ethtool -C {name} rx-usecs {usecs}");
        Some(Finding::new("coalescing", Weight::Note, fact, costs).typed(command, undo))
    };
    facts.links.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_the_kernels_form() {
        assert_eq!([1, 2, 4, 32, 33, 64].map(mask), ["1", "2", "e", "fffffffe", "1,fffffffe", "ffffffff,fffffffe"]);
    }
}
