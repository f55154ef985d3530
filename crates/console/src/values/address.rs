//! Addresses of nodes as people write them: a host name or IP address, perhaps with a port.
//!
//! `192.168.1.1`, `192.168.1.1:4440`, `lab-1:4440`, `[fe80::1]:4440`, `::1`. Turning names into IP
//! addresses is the one thing here that asks the system.

use crate::failure::{BadValue, Failure, plain};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

const HINT: &str = "addresses look like 192.168.1.1, 192.168.1.1:4440, lab-1:4440 or [fd00::1]:4440";

/// A host and perhaps a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

impl Address {
    /// The port, if one was written.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The host name; `None` for an IP address.
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Ip(_) => None,
            Host::Name(name) => Some(name),
        }
    }

    /// Its IP addresses, asking the resolver for a name's; with `default_port` where none was
    /// written.
    pub fn resolve(&self, default_port: u16) -> Result<Vec<SocketAddr>, Failure> {
        let port = self.port.unwrap_or(default_port);
        let name = match &self.host {
            Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, port)]),
            Host::Name(name) => name,
        };
        let found = (name.as_str(), port).to_socket_addrs().map_err(|error| {
            let why = plain(&error);
            let why = why.strip_prefix("failed to lookup address information: ").unwrap_or(&why).to_lowercase();
            Failure::failed(format!("host {name:?} has no address: {why}"))
                .hint("give its IP address, or check its name")
        })?;
        let mut addrs: Vec<SocketAddr> = found.collect();
        addrs.dedup();
        if addrs.is_empty() {
            return Err(Failure::failed(format!("host {name:?} has no address")).hint("give its IP address"));
        }
        Ok(addrs)
    }
}

impl Address {
    /// The first of its IP addresses, an IPv4 one if there is any.
    ///
    /// # Errors
    /// Those of [`Address::resolve`].
    pub fn first(&self, default_port: u16) -> Result<SocketAddr, Failure> {
        let addrs = self.resolve(default_port)?;
        Ok(*addrs.iter().find(|addr| addr.is_ipv4()).unwrap_or(&addrs[0]))
    }
}

impl FromStr for Address {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue::new(format!("{text:?} is not an address{why}"), HINT);
        if is_link_local(text) {
            let why = format!("{text:?} is a link-local address, which no other machine can use as it is");
            return Err(BadValue::new(why, "give another address of that machine: `ip address` shows them"));
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (ip, after) = rest.split_once(']').ok_or_else(|| bad(": the ] is missing"))?;
            let ip: Ipv6Addr = ip.parse().map_err(|_| bad(": the text in brackets is no IPv6 address"))?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(parse_port(text, port)?),
                None if after.is_empty() => None,
                None => return Err(bad("")),
            };
            return Ok(Self { host: Host::Ip(ip.into()), port });
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self { host: Host::Ip(ip), port: None });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(parse_port(text, port)?)),
            None => (text, None),
        };
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Self { host: Host::Ip(ip), port });
        }
        if !is_host_name(host) {
            return Err(bad(""));
        }
        Ok(Self { host: Host::Name(host.to_owned()), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]")?,
            Host::Ip(ip) => write!(f, "{ip}")?,
            Host::Name(name) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// True for an address of IPv6 that holds on one link, with a zone or without, and a port or not.
/// The zone is another one on each machine.
fn is_link_local(text: &str) -> bool {
    let bare = text.trim_start_matches('[').split(['%', ']']).next().unwrap_or_default();
    bare.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_unicast_link_local())
}

fn parse_port(text: &str, port: &str) -> Result<u16, BadValue> {
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { port.parse().ok() } else { None };
    number.ok_or_else(|| BadValue::new(format!("{text:?} is not an address: {port:?} is no port (0 to 65535)"), HINT))
}

/// Letters, digits, `-`, `_` and single dots; and not something that only a mistyped IP address
/// looks like.
fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit());
    host.len() <= 253 && !numeric && host.strip_suffix('.').unwrap_or(host).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_take_the_default_port_where_they_have_none() {
        for (text, want) in [
            ("192.168.1.1", "192.168.1.1:4440"),
            ("192.168.1.1:7", "192.168.1.1:7"),
            ("::1", "[::1]:4440"),
            ("fd00::2", "[fd00::2]:4440"),
            ("[fd00::2]", "[fd00::2]:4440"),
            ("[fd00::2]:9", "[fd00::2]:9"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.resolve(4440).unwrap(), vec![want.parse::<SocketAddr>().unwrap()], "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            ":",
            ":4440",
            "host:",
            "host:x",
            "host:65536",
            "host:-1",
            "1.2.3",
            "256.1.1.1",
            "1.2.3.4.5",
            "[::1",
            "[::1]x",
            "[1.2.3.4]",
            "a b",
            "host/path",
            "-h",
            "a..b",
            "http://x",
            "unix:/x",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn link_local_addresses_are_refused_with_the_reason() {
        for text in ["fe80::1", "fe80::1%eth0", "[fe80::1]", "[fe80::1%eth0]:4440", "febf::1%2"] {
            let why = text.parse::<Address>().unwrap_err().to_string();
            assert!(why.contains("is a link-local address"), "{text}: {why}");
        }
        assert!("fec0::1".parse::<Address>().is_ok());
    }

    #[test]
    fn names_and_their_ports_are_kept() {
        let address: Address = "lab-1.example:4441".parse().unwrap();
        assert_eq!((address.to_string().as_str(), address.port()), ("lab-1.example:4441", Some(4441)));
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_a_refusal(text in "\\PC{0,24}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
            }
        }
    }
}
