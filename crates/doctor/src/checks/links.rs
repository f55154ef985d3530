//! Checks of each network interface by itself.

use super::percent;
use crate::facts::{Facts, Link};
use crate::finding::{Finding, Weight};

/// Below this a node slows others down that have the usual link.
const USUAL_MBIT: u64 = 1000;
/// Damaged packets in a million that a good cable never reaches.
const ERRORS_PER_MILLION: u64 = 1;
/// More changes than a machine's start and a few restarts of a switch cause.
const FLAPS: u64 = 20;
/// Payload of an Ethernet frame.
const ETHERNET_MTU: u64 = 1500;
/// Bytes of the image that times are given for.
const GIB: u64 = 1 << 30;

fn each(facts: &Facts, find: impl Fn(&Link) -> Option<Finding>) -> Vec<Finding> {
    facts.links.iter().filter_map(find).collect()
}

/// Seconds that a GiB takes at this rate.
fn gib_s(mbit: u64) -> u64 {
    GIB * 8 / (mbit.max(1) * 1_000_000)
}

pub(super) fn speed(facts: &Facts) -> Vec<Finding> {
    each(facts, |link| {
        let (speed, name) = (link.speed_mbit?, &link.name);
        let best = link.offered_mbit.unwrap_or(0).max(USUAL_MBIT);
        (speed < best && speed > 0).then(|| {
            let offered = link.offered_mbit.filter(|offered| *offered > speed);
            let why = offered.map_or_else(String::new, |offered| format!(", and both sides offer {offered} Mbit/s"));
            let fact = format!("{name} runs at {speed} Mbit/s{why}");
            let costs = format!("1 GiB takes {} s; at {best} Mbit/s it takes {} s", gib_s(speed), gib_s(best));
            let again = format!("change the cable or the port, then: ethtool -r {name}");
            Finding::new("link-speed", Weight::Bad, fact, costs).typed(again, "")
        })
    })
}

pub(super) fn duplex(facts: &Facts) -> Vec<Finding> {
    each(facts, |link| {
        (link.duplex.as_deref() == Some("half")).then(|| {
            let fact = format!("{} is half duplex", link.name);
            let costs =
                format!("it sends or receives: {} packets came, {} were damaged", link.rx_packets, link.rx_crc_errors);
            let command = format!("ethtool -s {} autoneg on", link.name);
            Finding::new("link-duplex", Weight::Bad, fact, costs)
                .typed(command, format!("ethtool -s {} autoneg off", link.name))
        })
    })
}

pub(super) fn errors(facts: &Facts) -> Vec<Finding> {
    each(facts, |link| {
        let (errors, all) = (link.rx_crc_errors, link.rx_packets);
        let is_bad = errors > 0 && errors.saturating_mul(1_000_000) >= all.saturating_mul(ERRORS_PER_MILLION);
        is_bad.then(|| {
            let fact = format!("{} received {errors} damaged packets", link.name);
            let costs = format!("{} of {all} packets were lost, and TCP slows down for each", percent(errors, all));
            Finding::new("link-errors", Weight::Bad, fact, costs)
                .typed("change the cable, then the port of the switch", "")
        })
    })
}

pub(super) fn flaps(facts: &Facts) -> Vec<Finding> {
    each(facts, |link| {
        let changes = link.carrier_changes.filter(|changes| *changes > FLAPS)?;
        let fact = format!("{} went up or down {changes} times", link.name);
        let costs = format!("{} times all connections broke, and others took the node for dead", changes / 2);
        let command = format!("change the cable; then watch: cat /sys/class/net/{}/carrier_changes", link.name);
        Some(Finding::new("link-flaps", Weight::Slow, fact, costs).typed(command, ""))
    })
}

pub(super) fn mtu(facts: &Facts) -> Vec<Finding> {
    let small = each(facts, |link| {
        let (mtu, name) = (link.mtu.filter(|mtu| (68..ETHERNET_MTU).contains(mtu))?, &link.name);
        let fact = format!("{name} has packets of {mtu} bytes");
        let costs =
            format!("a chunk of 64 KiB takes {} packets; 46 at 1500 bytes", 65_536 / mtu.saturating_sub(52).max(1) + 1);
        let command = format!("ip link set {name} mtu {ETHERNET_MTU}");
        Some(Finding::new("mtu", Weight::Note, fact, costs).typed(command, format!("ip link set {name} mtu {mtu}")))
    });
    let jumbo = facts.links.iter().filter(|link| link.speed_mbit.is_some());
    let sizes: Vec<(u64, &str)> = jumbo.filter_map(|link| Some((link.mtu?, link.name.as_str()))).collect();
    let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) else { return small };
    let unlike = (least.0 >= ETHERNET_MTU && most.0 > least.0).then(|| {
        let fact = format!("{} has packets of {} bytes, {} of {}", least.1, least.0, most.1, most.0);
        let costs = format!("packets of {} bytes are lost wherever a path only takes {}", most.0, least.0);
        let command =
            format!("ping -M do -s {} MEMBER; if that fails: ip link set {} mtu {}", most.0 - 28, most.1, least.0);
        Finding::new("mtu", Weight::Note, fact, costs).typed(command, format!("ip link set {} mtu {}", most.1, most.0))
    });
    small.into_iter().chain(unlike).collect()
}

pub(super) fn tx_dropped(facts: &Facts) -> Vec<Finding> {
    each(facts, |link| {
        let dropped = link.tx_dropped;
        (dropped > 1000).then(|| {
            let fact = format!("{} dropped {dropped} packets on their way out", link.name);
            let costs = format!("TCP sent {dropped} packets again");
            let command = format!("tc -s qdisc show dev {}", link.name);
            Finding::new("tx-dropped", Weight::Note, fact, costs).typed(command, "")
        })
    })
}

pub(super) fn gro(facts: &Facts) -> Vec<Finding> {
    each(facts, |link| {
        // Between virtual interfaces packets stay as large as the sender made them.
        (link.ethtool.gro == Some(false) && link.is_device()).then(|| {
            let fact = format!("generic receive offload is off on {}", link.name);
            let costs = "each packet goes through the stack alone: 46 for a chunk instead of 1 or 2".to_owned();
            let (on, off) = (format!("ethtool -K {} gro on", link.name), format!("ethtool -K {} gro off", link.name));
            Finding::new("gro", Weight::Slow, fact, costs).typed(on, off)
        })
    })
}

pub(super) fn gso(facts: &Facts) -> Vec<Finding> {
    each(facts, |link| {
        let off: Vec<&str> = [("gso", link.ethtool.gso), ("tso", link.ethtool.tso)]
            .into_iter()
            .filter_map(|(name, on)| (on == Some(false)).then_some(name))
            .collect();
        // A virtual interface has nothing that could segment.
        let matters =
            off.contains(&"gso") || (off.contains(&"tso") && link.speed_mbit.is_some_and(|mbit| mbit >= 10_000));
        matters.then(|| {
            let fact = format!("{} off on {}", off.join(" and "), link.name);
            let costs = "the processor cuts each chunk into 46 packets, in or before the driver".to_owned();
            let words = |state: &str| off.iter().map(|name| format!(" {name} {state}")).collect::<String>();
            let command = |state: &str| format!("ethtool -K {}{}", link.name, words(state));
            Finding::new("gso", Weight::Slow, fact, costs).typed(command("on"), command("off"))
        })
    })
}
