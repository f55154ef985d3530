//! The checks: each a pure function from facts to findings.
//!
//! [`CHECKS`] is the table of all; `docs/reference/doctor.md` lists them, and a test compares the
//! two. A check says nothing if its facts are absent.

mod field;
mod firewalls;
mod links;
mod machine;
mod queues;
mod stack;

use crate::facts::Facts;
use crate::finding::Finding;

/// A check by its name.
#[derive(Debug)]
pub struct Check {
    /// Its name, in the document too.
    pub name: &'static str,
    /// The facts that it looks at, in words.
    pub about: &'static str,
    /// Empty if nothing is wrong, or if its facts are absent.
    find: fn(&Facts) -> Vec<Finding>,
}

const fn check(name: &'static str, about: &'static str, find: fn(&Facts) -> Vec<Finding>) -> Check {
    Check { name, about, find }
}

/// All checks, in the order of the document.
pub const CHECKS: [Check; 33] = [
    check("link-speed", "negotiated rate below what both sides offer, or below 1 Gbit/s", links::speed),
    check("link-duplex", "half duplex", links::duplex),
    check("link-errors", "damaged packets: a bad cable or port", links::errors),
    check("link-flaps", "a link that goes up and down", links::flaps),
    check("mtu", "packets smaller than Ethernet's, or unlike sizes on two links", links::mtu),
    check("rx-missed", "packets lost for want of receive buffers, and the ring's size", queues::missed),
    check("tx-dropped", "packets dropped on their way out", links::tx_dropped),
    check("channels", "fewer queues than the interface and the processors have", queues::channels),
    check("rps", "a device with one receive queue on several processors, without RPS", queues::rps),
    check("rfs", "RPS without a table of flows", queues::rfs),
    check("irq-affinity", "interrupts of several queues on one processor", queues::irq_affinity),
    check("coalescing", "interrupts that come too often or too late", queues::coalescing),
    check("gro", "generic receive offload is off", links::gro),
    check("gso", "segmentation offloads are off", links::gso),
    check("backlog", "packets dropped before the stack took them", stack::backlog),
    check("tcp-buffers", "socket buffers below what the link carries in a round trip", stack::buffers),
    check("window-scaling", "TCP windows above 64 KiB are off", stack::window_scaling),
    check("sack", "selective acknowledgements are off", stack::sack),
    check("congestion", "a congestion control that is not made for a LAN", stack::congestion),
    check("retransmits", "segments sent again", stack::retransmits),
    check("udp-drops", "datagrams of gossip dropped for want of buffers", stack::udp_drops),
    check("listen-overflows", "connections dropped before they were accepted", stack::listen_overflows),
    check("neighbours", "a table of neighbours too small for the field", stack::neighbours),
    check("conntrack", "a table of tracked connections that is nearly full", stack::conntrack),
    check("firewall", "a firewall that does not admit the node's port", firewalls::closed),
    check("cpu-features", "a processor without the instructions for hashes and seals", machine::cpu_features),
    check("governor", "a processor clock that saves power", machine::governor),
    check("clocksource", "a clock that is slow to read", machine::clocksource),
    check("memory", "stores that do not fit into the free memory, or are swapped", machine::memory),
    check("pressure", "programs that wait for a processor", machine::pressure),
    check("descriptors", "fewer open files than a node's connections need", machine::descriptors),
    check("numa", "an interface on one of several NUMA nodes", machine::numa),
    check("members", "members that cannot be reached, slow links, limits that hold reads back", field::members),
];

/// All findings, the gravest first, in the order of the checks otherwise.
pub fn run(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = CHECKS.iter().flat_map(|check| (check.find)(facts)).collect();
    found.sort_by_key(|finding| finding.weight);
    found
}

/// `part` of `all`, for people: three digits.
fn percent(part: u64, all: u64) -> String {
    format!("{:.3} %", part as f64 * 100.0 / all.max(1) as f64)
}
