//! The zone of a subnet: machines of one are near each other, and all of them can tell its name.

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vfield_console::failure::{Failure, plain};
use vfield_core::identity::Zone;

/// An IPv6 subnet's prefix has so many bits (RFC 4291, 2.5.1); an address that is known alone, as
/// DHCPv6 gives them, is of one too.
const IPV6_PREFIX: u32 = 64;

/// How many bits of an address of this machine are its subnet's; `None` if no interface has the
/// address.
pub fn prefix_of(ip: IpAddr) -> std::io::Result<Option<u32>> {
    let masks = getifaddrs()?.filter(|interface| interface.address.and_then(ip_of) == Some(ip));
    Ok(masks.filter_map(|interface| Some(ones(ip_of(interface.netmask?)?))).max())
}

/// The zone of the subnet that an address of this machine is in, such as `198.18.4.0/24`.
pub fn zone_of(ip: IpAddr) -> Result<Zone, Failure> {
    let hint = "name the zone: --zone NAME";
    let prefix = prefix_of(ip)
        .map_err(|error| Failure::failed(format!("--zone subnet: no network interface: {}", plain(&error))))?;
    let prefix = prefix.ok_or_else(|| {
        Failure::failed(format!("--zone subnet: no network interface of this machine has {ip}")).hint(hint)
    })?;
    zone(ip, prefix).ok_or_else(|| {
        Failure::failed(format!("--zone subnet: {ip}/{prefix} is in no subnet with other machines")).hint(hint)
    })
}

/// The zone of an address with a prefix of so many bits; `None` where that is the address alone.
fn zone(ip: IpAddr, prefix: u32) -> Option<Zone> {
    let name = match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            (prefix < 32).then(|| format!("{}/{prefix}", Ipv4Addr::from(u32::from(ip) & mask)))?
        }
        IpAddr::V6(ip) => {
            let prefix = prefix.min(IPV6_PREFIX);
            let network = u128::from(ip) & u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            let usual = format!("{}/{prefix}", Ipv6Addr::from(network));
            // Without colons it always fits.
            if usual.len() <= Zone::LENGTH_MAX { usual } else { format!("{:016x}/{prefix}", network >> 64) }
        }
    };
    Zone::named(&name)
}

pub(super) fn ip_of(addr: SockaddrStorage) -> Option<IpAddr> {
    let v4 = addr.as_sockaddr_in().map(|addr| addr.ip().into());
    v4.or_else(|| addr.as_sockaddr_in6().map(|addr| addr.ip().into()))
}

/// The length of the prefix that a mask keeps.
fn ones(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(mask) => u32::from(mask).leading_ones(),
        IpAddr::V6(mask) => u128::from(mask).leading_ones(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(ip: &str, prefix: u32) -> Option<String> {
        zone(ip.parse().unwrap(), prefix).map(|zone| zone.name().to_owned())
    }

    #[test]
    fn a_zone_is_named_as_its_subnet_is_written() {
        for (ip, prefix, zone) in [
            ("198.18.4.7", 24, "198.18.4.0/24"),
            ("198.18.255.255", 31, "198.18.255.254/31"),
            ("198.19.1.2", 15, "198.18.0.0/15"),
            ("198.18.4.7", 0, "0.0.0.0/0"),
            ("2001:db8:5::17", 64, "2001:db8:5::/64"),
            ("2001:db8:5::17", 48, "2001:db8:5::/48"),
            ("2001:db8:5::17", 0, "::/0"),
            ("fd12:3456:789a:bcde::17", 64, "fd123456789abcde/64"),
        ] {
            assert_eq!(name(ip, prefix).as_deref(), Some(zone));
        }
    }

    #[test]
    fn an_address_alone_is_a_subnet_in_ipv6_only() {
        assert_eq!(name("198.18.4.7", 32), None);
        assert_eq!(name("2001:db8:5::17", 128), name("2001:db8:5::9", 64));
        assert_ne!(name("2001:db8:5::17", 128), name("2001:db8:5:1::17", 128));
    }

    #[test]
    fn masks_have_lengths() {
        for (mask, length) in [("255.255.254.0", 23), ("0.0.0.0", 0), ("ffff:ffff:ffff:ffff::", 64)] {
            assert_eq!(ones(mask.parse().unwrap()), length);
        }
    }

    #[test]
    fn the_subnet_of_the_loopback_is_found_and_that_of_a_stranger_is_not() {
        assert_eq!(zone_of([127, 0, 0, 1].into()).unwrap().name(), "127.0.0.0/8");
        assert!(zone_of([192, 0, 2, 1].into()).unwrap_err().to_string().contains("192.0.2.1"));
    }
}
