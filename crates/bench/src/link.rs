//! Which link leads to the peers, and how fast it is: what the kernel knows, sending nothing.
//!
//! A rate is believed where it is a card's. A virtual device has one only if a card is below it (a
//! bridge, a bond, a VLAN): a veth pair claims 10 Gbit/s whatever it leads through.

use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use vfield_node::route::local_towards;

/// Devices lie on each other at most so deep: a VLAN on a bridge on a bond on a card.
const DEPTH_MAX: usize = 4;

/// The link that is the limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The network device that leads to the peers, if it was found.
    pub device: Option<String>,
    /// Its rate in each direction, if it is known.
    pub bits_per_second: Option<u64>,
    /// True if the rate was given on the command line.
    pub given: bool,
}

impl Link {
    /// The link that leads to most of `peers`; `given` is believed more than the kernel.
    pub fn towards(peers: &[IpAddr], given: Option<u64>) -> Self {
        let mut devices: BTreeMap<String, usize> = BTreeMap::new();
        for device in peers.iter().filter_map(|peer| device(*peer)) {
            *devices.entry(device).or_default() += 1;
        }
        let device = devices.into_iter().max_by_key(|(_, peers)| *peers).map(|(device, _)| device);
        let found = device.as_deref().and_then(|device| rate(Path::new("/sys/class/net"), device));
        Self { device, bits_per_second: given.or(found), given: given.is_some() }
    }
}

/// The device through which packets to `peer` go.
fn device(peer: IpAddr) -> Option<String> {
    // The kernel's tables of routes in /proc do not have this machine's own addresses.
    let local = local_towards(SocketAddr::new(peer, 9)).ok()?;
    if peer.is_loopback() || local == peer {
        return Some("lo".to_owned());
    }
    let table = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    match peer {
        IpAddr::V4(peer) => route_v4(&table("route"), peer),
        IpAddr::V6(peer) => route_v6(&table("ipv6_route"), peer),
    }
}

/// The device of the longest prefix, and of the lowest metric, in `/proc/net/route`.
fn route_v4(table: &str, peer: Ipv4Addr) -> Option<String> {
    let peer = u32::from(peer);
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The table holds addresses as they lie in memory, which is network order.
        let address = |at: usize| {
            let number = u32::from_str_radix(fields.get(at)?, 16).ok()?;
            Some(u32::from_be_bytes(number.to_ne_bytes()))
        };
        let (network, mask) = (address(1)?, address(7)?);
        let metric: u32 = fields.get(6)?.parse().ok()?;
        (peer & mask == network).then(|| ((mask.leading_ones(), u32::MAX - metric), fields[0].to_owned()))
    };
    table.lines().skip(1).filter_map(route).max().map(|(_, device)| device)
}

/// The same in `/proc/net/ipv6_route`.
fn route_v6(table: &str, peer: Ipv6Addr) -> Option<String> {
    let peer = u128::from(peer);
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let network = u128::from_str_radix(fields.first()?, 16).ok()?;
        let length = u32::from_str_radix(fields.get(1)?, 16).ok().filter(|length| *length <= 128)?;
        let metric = u32::from_str_radix(fields.get(5)?, 16).ok()?;
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        // The kernel drops packets without a route at "lo".
        let device = fields.get(9).filter(|device| **device != "lo")?;
        (peer & mask == network).then(|| ((length, u32::MAX - metric), (*device).to_owned()))
    };
    table.lines().filter_map(route).max().map(|(_, device)| device)
}

/// Bits per second of a device below `root`, which is `/sys/class/net`.
fn rate(root: &Path, device: &str) -> Option<u64> {
    if !has_card(root, device, DEPTH_MAX) {
        return None;
    }
    let text = std::fs::read_to_string(root.join(device).join("speed")).ok()?;
    // -1 where the driver does not know it.
    let mbit: u64 = text.trim().parse().ok().filter(|mbit| (1..u64::from(u32::MAX)).contains(mbit))?;
    Some(mbit * 1_000_000)
}

/// True if a device is a card, or lies on one.
fn has_card(root: &Path, device: &str, depth: usize) -> bool {
    let dir = root.join(device);
    if dir.join("device").exists() {
        return true;
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    depth > 0
        && names
            .filter_map(|name| name.strip_prefix("lower_").map(str::to_owned))
            .any(|lower| has_card(root, &lower, depth - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(device: &str, network: [u8; 4], mask: [u8; 4], metric: u32) -> String {
        let number = |bytes| u32::from_ne_bytes(bytes);
        format!("{device}\t{:08X}\t00000000\t0001\t0\t0\t{metric}\t{:08X}\t0\t0\t0\n", number(network), number(mask))
    }

    #[test]
    fn the_longest_prefix_wins_and_then_the_lowest_metric() {
        let table = [
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n".to_owned(),
            row("wlan0", [0, 0, 0, 0], [0, 0, 0, 0], 600),
            row("eth0", [0, 0, 0, 0], [0, 0, 0, 0], 100),
            row("eth1", [192, 168, 1, 0], [255, 255, 255, 0], 0),
            "rubbish\n".to_owned(),
        ]
        .concat();
        assert_eq!(route_v4(&table, [192, 168, 1, 7].into()).as_deref(), Some("eth1"));
        assert_eq!(route_v4(&table, [10, 0, 0, 1].into()).as_deref(), Some("eth0"));
        assert_eq!(route_v4("", [10, 0, 0, 1].into()), None);
    }

    #[test]
    fn six_has_a_table_of_its_own() {
        let row = |network: &str, length: u8, device: &str| {
            let zeros = "0".repeat(32);
            format!("{network} {length:02x} {zeros} 00 {zeros} 00000100 00000001 00000000 00000001 {device:>8}\n")
        };
        let table = [
            row("fd000000000000000000000000000000", 64, "eth1"),
            row(&"0".repeat(32), 0, "eth0"),
            row(&"0".repeat(32), 0, "lo"),
        ]
        .concat();
        assert_eq!(route_v6(&table, "fd00::7".parse().unwrap()).as_deref(), Some("eth1"));
        assert_eq!(route_v6(&table, "2001:db8::7".parse().unwrap()).as_deref(), Some("eth0"));
    }

    #[test]
    fn only_what_lies_on_a_card_has_a_rate() {
        let root = tempfile::tempdir().unwrap();
        let device = |name: &str, speed: &str, parts: &[&str]| {
            let dir = root.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("speed"), speed).unwrap();
            parts.iter().for_each(|part| std::fs::create_dir(dir.join(part)).unwrap());
        };
        device("eth0", "1000\n", &["device"]);
        device("br0", "1000\n", &["lower_eth0"]);
        device("veth0", "10000\n", &[]);
        device("eth1", "-1\n", &["device"]);
        device("loop0", "1000\n", &["lower_loop0"]);
        let rate = |name| rate(root.path(), name);
        assert_eq!((rate("eth0"), rate("br0")), (Some(1_000_000_000), Some(1_000_000_000)));
        assert_eq!((rate("veth0"), rate("eth1"), rate("loop0"), rate("none")), (None, None, None, None));
    }

    #[test]
    fn what_is_given_is_believed() {
        let link = Link::towards(&["127.0.0.1".parse().unwrap()], Some(5));
        assert_eq!(link, Link { device: Some("lo".to_owned()), bits_per_second: Some(5), given: true });
        assert_eq!(Link::towards(&[], None), Link::default());
    }
}
