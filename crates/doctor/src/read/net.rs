//! The kernel's TCP, UDP and tables, from `proc/sys/net` and `proc/net`.

use super::Root;
use crate::facts::Net;

pub(super) fn read(root: &Root) -> Net {
    let sysctl = |name: &str| root.number(&format!("proc/sys/net/{name}"));
    let flag = |name: &str| sysctl(name).map(|value| value != 0);
    let snmp = root.text("proc/net/snmp").unwrap_or_default();
    let netstat = root.text("proc/net/netstat").unwrap_or_default();
    let pair = |table: &str, protocol: &str, one: &str, other: &str| {
        Some((counter(table, protocol, one)?, counter(table, protocol, other)?))
    };
    let last = |name: &str| root.text(&format!("proc/sys/net/ipv4/{name}"))?.split_whitespace().nth(2)?.parse().ok();
    let neighbours = root.text("proc/net/arp").map(|table| table.lines().skip(1).count() as u64);
    Net {
        tcp_buffers_max: last("tcp_rmem").zip(last("tcp_wmem")),
        congestion: root.text("proc/sys/net/ipv4/tcp_congestion_control"),
        window_scaling: flag("ipv4/tcp_window_scaling"),
        sack: flag("ipv4/tcp_sack"),
        neighbours: neighbours.zip(sysctl("ipv4/neigh/default/gc_thresh3")),
        tracked: sysctl("netfilter/nf_conntrack_count").zip(sysctl("netfilter/nf_conntrack_max")),
        flow_entries: sysctl("core/rps_sock_flow_entries"),
        segments: pair(&snmp, "Tcp", "OutSegs", "RetransSegs"),
        datagrams: pair(&snmp, "Udp", "InDatagrams", "RcvbufErrors"),
        listen_overflows: counter(&netstat, "TcpExt", "ListenOverflows"),
        backlog_dropped: root.text("proc/net/softnet_stat").map(|text| dropped(&text)),
        backlog_max: sysctl("core/netdev_max_backlog"),
    }
}

/// A counter of a table with pairs of lines, names above values: `Tcp: RtoAlgorithm ...`.
fn counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut rows = table.lines().filter_map(|line| {
        let (of, values) = line.split_once(':')?;
        (of == protocol).then_some(values)
    });
    let (names, values) = (rows.next()?, rows.next()?);
    let at = names.split_whitespace().position(|other| other == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// The second column of each processor's line, in hexadecimal.
fn dropped(softnet: &str) -> u64 {
    let of = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(of).fold(0, u64::saturating_add)
}
