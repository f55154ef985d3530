//! Checks of the kernel's TCP and UDP, and of its tables.

use super::percent;
use crate::facts::Facts;
use crate::finding::{Finding, Fix, Weight};
use vfield_console::values::size::human;

/// Round trip on a LAN with a busy processor in it, in milliseconds: what buffers have to cover.
const ROUND_TRIP_MS: u64 = 4;
/// Least buffer of a socket that is worth a finding: two chunks of the largest size.
const BUFFER_MIN: u64 = 2 << 20;
/// Segments sent again of a thousand that a good LAN never reaches.
const AGAIN_PER_MILLE: u64 = 2;
/// Counts of drops that a start or a burst causes.
const SOME: u64 = 100;
/// Congestion controls made for long or lossy paths, or for one data centre's switches.
const ODD: [&str; 6] = ["vegas", "veno", "westwood", "hybla", "lp", "yeah"];

fn sysctl(name: &str, value: impl ToString, before: impl ToString) -> Fix {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    Fix { path, value: value.to_string(), before: before.to_string() }
}

pub(super) fn backlog(facts: &Facts) -> Vec<Finding> {
    let (Some(dropped), Some(most)) = (facts.net.backlog_dropped, facts.net.backlog_max) else { return Vec::new() };
    if dropped <= SOME || most >= 1 << 20 {
        return Vec::new();
    }
    let fact = format!("processors dropped {dropped} packets, since {most} were waiting");
    let costs = format!("TCP sent up to {dropped} packets again");
    let fix = sysctl("net.core.netdev_max_backlog", most.saturating_mul(4).max(1000), most);
    vec![Finding::new("backlog", Weight::Slow, fact, costs).fixed(vec![fix])]
}

pub(super) fn buffers(facts: &Facts) -> Vec<Finding> {
    let Some((receive, send)) = facts.net.tcp_buffers_max else { return Vec::new() };
    // The rate of a virtual interface is made up.
    let devices = facts.links.iter().filter(|link| link.is_device());
    let mbit = devices.filter_map(|link| link.speed_mbit).filter(|mbit| *mbit < 1 << 22).max().unwrap_or(1000);
    let needs = (mbit * 125 * ROUND_TRIP_MS).max(BUFFER_MIN);
    if receive.min(send) >= needs {
        return Vec::new();
    }
    let fact = format!("TCP buffers end at {} (receive) and {} (send)", human(receive), human(send));
    let carries = receive.min(send) / ROUND_TRIP_MS / 125;
    let costs =
        format!("a connection carries at most {carries} Mbit/s with {ROUND_TRIP_MS} ms of delay; the link has {mbit}");
    // Larger values stay.
    let (more, most) = (receive.max(needs), send.max(needs));
    let command = format!("sysctl -w net.ipv4.tcp_rmem='4096 131072 {more}' net.ipv4.tcp_wmem='4096 65536 {most}'");
    let undo = format!("sysctl -w net.ipv4.tcp_rmem='4096 131072 {receive}' net.ipv4.tcp_wmem='4096 65536 {send}'");
    vec![Finding::new("tcp-buffers", Weight::Slow, fact, costs).typed(command, undo)]
}

pub(super) fn window_scaling(facts: &Facts) -> Vec<Finding> {
    if facts.net.window_scaling != Some(false) {
        return Vec::new();
    }
    let costs =
        format!("64 KiB in a round trip: {} Mbit/s with {ROUND_TRIP_MS} ms of delay", 65_536 / ROUND_TRIP_MS / 125);
    let finding = Finding::new("window-scaling", Weight::Bad, "TCP window scaling is off".to_owned(), costs);
    vec![finding.fixed(vec![sysctl("net.ipv4.tcp_window_scaling", 1, 0)])]
}

pub(super) fn sack(facts: &Facts) -> Vec<Finding> {
    if facts.net.sack != Some(false) {
        return Vec::new();
    }
    let (_, again) = facts.net.segments.unwrap_or_default();
    let costs = format!("after each loss more is sent again than was lost; {again} segments so far");
    let fact = "selective acknowledgements of TCP are off".to_owned();
    vec![Finding::new("sack", Weight::Slow, fact, costs).fixed(vec![sysctl("net.ipv4.tcp_sack", 1, 0)])]
}

pub(super) fn congestion(facts: &Facts) -> Vec<Finding> {
    let Some(control) = facts.net.congestion.as_deref().filter(|control| ODD.contains(control)) else {
        return Vec::new();
    };
    let (sent, again) = facts.net.segments.unwrap_or_default();
    let fact = format!("TCP's congestion control is {control}");
    let costs =
        format!("it yields to other traffic, or fills its queues; {} segments sent again", percent(again, sent));
    let fix = sysctl("net.ipv4.tcp_congestion_control", "cubic", control);
    vec![Finding::new("congestion", Weight::Note, fact, costs).fixed(vec![fix])]
}

pub(super) fn retransmits(facts: &Facts) -> Vec<Finding> {
    let Some((sent, again)) = facts.net.segments else { return Vec::new() };
    if again <= SOME || again.saturating_mul(1000) < sent.saturating_mul(AGAIN_PER_MILLE) {
        return Vec::new();
    }
    let fact = format!("TCP sent {} of its segments again", percent(again, sent));
    let costs = format!("{again} segments; each slows its connection down for some round trips");
    let command = "look at the checks of links, then at the switch: nstat -az TcpRetransSegs".to_owned();
    vec![Finding::new("retransmits", Weight::Slow, fact, costs).typed(command, "")]
}

pub(super) fn udp_drops(facts: &Facts) -> Vec<Finding> {
    let Some((came, dropped)) = facts.net.datagrams else { return Vec::new() };
    if dropped <= SOME || dropped.saturating_mul(1000) < came {
        return Vec::new();
    }
    let fact = format!("{dropped} datagrams were dropped for want of buffers");
    let costs = format!("{} of {came}; members that gossip is lost of are suspected", percent(dropped, came));
    let command = "sysctl -w net.core.rmem_default=425984".to_owned();
    vec![Finding::new("udp-drops", Weight::Note, fact, costs).typed(command, "sysctl -w net.core.rmem_default=212992")]
}

pub(super) fn listen_overflows(facts: &Facts) -> Vec<Finding> {
    let Some(dropped) = facts.net.listen_overflows.filter(|dropped| *dropped > SOME) else { return Vec::new() };
    let fact = format!("{dropped} connections were dropped before a program accepted them");
    let costs = format!("{dropped} times a peer waited a second or more for its next try");
    let command = "sysctl -w net.core.somaxconn=4096, and start the daemon again".to_owned();
    vec![Finding::new("listen-overflows", Weight::Note, fact, costs).typed(command, "")]
}

pub(super) fn neighbours(facts: &Facts) -> Vec<Finding> {
    let Some((now, most)) = facts.net.neighbours.filter(|(_, most)| *most > 0) else { return Vec::new() };
    let members = facts.field.as_ref().map_or(0, |field| field.members.len() as u64);
    let needs = now.max(members);
    if needs.saturating_mul(5) < most.saturating_mul(4) {
        return Vec::new();
    }
    let fact = format!("the table of neighbours has {now} of {most} entries, and the field {members} members");
    let costs = "packets to neighbours beyond it are dropped: members look dead at random".to_owned();
    let better = needs.saturating_mul(4).next_power_of_two().max(4096);
    let fix = sysctl("net.ipv4.neigh.default.gc_thresh3", better, most);
    vec![Finding::new("neighbours", Weight::Bad, fact, costs).fixed(vec![fix])]
}

pub(super) fn conntrack(facts: &Facts) -> Vec<Finding> {
    let Some((now, most)) = facts.net.tracked.filter(|(_, most)| *most > 0) else { return Vec::new() };
    if now.saturating_mul(5) < most.saturating_mul(4) {
        return Vec::new();
    }
    let fact = format!("{now} of at most {most} connections are tracked");
    let costs = "beyond it new connections are dropped: reads wait for nodes that are there".to_owned();
    let fix = sysctl("net.netfilter.nf_conntrack_max", most.saturating_mul(2), most);
    vec![Finding::new("conntrack", Weight::Bad, fact, costs).fixed(vec![fix])]
}
