//! Which of this machine's addresses other machines see. Sends nothing.

pub mod card;
pub mod subnet;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vfield_console::failure::{Failure, plain};
use vfield_node::config::DEFAULT_PORT;
use vfield_node::route::local_towards;

/// The local address towards the first of `members` to which there is a route, and those of
/// `members` that are of its kind.
pub fn facing(members: &[SocketAddr]) -> Result<(SocketAddr, Vec<SocketAddr>), Failure> {
    let mut why = String::from("no address");
    for member in members {
        match local_towards(*member) {
            Ok(ip) => {
                let same = members.iter().copied().filter(|addr| addr.is_ipv4() == ip.is_ipv4()).collect();
                return Ok((SocketAddr::new(ip, DEFAULT_PORT), same));
            }
            Err(error) => why = plain(&error),
        }
    }
    let names = members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(Failure::failed(format!("no way to {names}: {why}"))
        .hint("check the address, and that this machine's network is up"))
}

/// The address under which a node that listens on all of them is best known, with `listen`'s port;
/// `None` where this machine has only a loopback.
pub fn own_address(listen: SocketAddr) -> Option<SocketAddr> {
    // Addresses kept for documentation: routed by a default route and by nothing else.
    let far_v4 = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 9);
    let far_v6 = SocketAddr::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), 9);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let towards = |addr: SocketAddr| local_towards(addr).ok().filter(|ip| !ip.is_loopback());
    let v6 = || towards(far_v6).or_else(|| global(&read("/proc/net/if_inet6")));
    let v4 = || towards(far_v4).or_else(|| neighbours(&read("/proc/net/route")).into_iter().find_map(towards));
    let ip = if listen.is_ipv4() { v4() } else { v6().or_else(v4) }?;
    Some(SocketAddr::new(ip, listen.port()))
}

/// The first address of this machine that is not of one link only, from the kernel's table of IPv6
/// addresses.
fn global(table: &str) -> Option<IpAddr> {
    let address = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let bits = u128::from_str_radix(fields.first()?, 16).ok()?;
        (fields.get(3) == Some(&"00")).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    };
    table.lines().find_map(address)
}

/// An address in each network that is connected directly, from the kernel's table of routes.
fn neighbours(table: &str) -> Vec<SocketAddr> {
    let neighbour = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|text| u32::from_str_radix(text, 16).ok());
        let (network, gateway) = (number(1)?, number(2)?);
        // The table holds numbers as they lie in memory, which is network order.
        let network = u32::from_be_bytes(network.to_ne_bytes());
        (gateway == 0 && network != 0).then(|| SocketAddr::new(Ipv4Addr::from(network | 1).into(), 9))
    };
    table.lines().skip(1).filter_map(neighbour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directly_connected_networks_are_read_from_the_table() {
        let network = u32::from_ne_bytes([198, 18, 5, 0]);
        let table = format!(
            "Iface\tDestination\tGateway \tFlags\nveth0\t00000000\t0112C612\t0003\nveth0\t{network:08X}\t00000000\t0001\nrubbish"
        );
        assert_eq!(neighbours(&table), vec!["198.18.5.1:9".parse().unwrap()]);
    }

    #[test]
    fn an_address_of_all_networks_is_read_from_the_table() {
        let table =
            "fe800000000000000000000000000001 02 40 20 80 eth0\nfd000000000000000000000000000007 02 40 00 80 eth0\n";
        assert_eq!(global(table), Some("fd00::7".parse().unwrap()));
        assert_eq!(global("rubbish\n"), None);
    }

    #[test]
    fn a_loopback_member_is_faced_from_the_loopback() {
        let (listen, members) = facing(&["127.0.0.9:1".parse().unwrap(), "[::1]:1".parse().unwrap()]).unwrap();
        assert_eq!(listen, "127.0.0.1:4440".parse().unwrap());
        assert_eq!(members, vec!["127.0.0.9:1".parse().unwrap()]);
    }
}
