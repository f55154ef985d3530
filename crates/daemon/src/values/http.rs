//! Where the dashboard listens: an address, or only a port of this machine's own.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use vfield_console::failure::{BadValue, Failure};
use vfield_console::values::address::Address;

/// The port where none is written.
pub const PORT: u16 = 9740;

/// An address with or without a port, or a port alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAddress {
    /// A port of 127.0.0.1.
    Port(u16),
    /// An address of this machine.
    Address(Address),
}

impl HttpAddress {
    /// The address to listen at; a host name is looked up.
    ///
    /// # Errors
    /// If the host has no address.
    pub fn resolve(&self) -> Result<SocketAddr, Failure> {
        match self {
            Self::Port(port) => Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), *port)),
            Self::Address(address) => address.first(PORT),
        }
    }
}

impl FromStr for HttpAddress {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let port = text.strip_prefix(':').unwrap_or(text);
        if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
            let bad = |_| BadValue::new(format!("{port:?} is no port (0 to 65535)"), "the usual port is 9740");
            return port.parse().map(Self::Port).map_err(bad);
        }
        text.parse().map(Self::Address)
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "{port}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_address_it_is_this_machine_alone() {
        let addr = |text: &str| text.parse::<HttpAddress>().unwrap().resolve().unwrap().to_string();
        assert_eq!(addr("9740"), "127.0.0.1:9740");
        assert_eq!(addr(":80"), "127.0.0.1:80");
        assert_eq!(addr("192.168.1.1"), "192.168.1.1:9740");
        assert_eq!(addr("[fd00::1]:81"), "[fd00::1]:81");
        assert_eq!(addr("::1"), "[::1]:9740");
        for text in ["", ":", "65536", ":x", "a b", "http://127.0.0.1"] {
            assert!(text.parse::<HttpAddress>().is_err(), "{text}");
        }
    }
}
