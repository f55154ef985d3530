//! Address of an NBD server, `unix:PATH` or `tcp:ADDR`; the host may be a name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use vfield_console::failure::{BadValue, Failure};
use vfield_console::values::address::Address;
use vfield_export::nbd::{self, AddressError};

const HINT: &str = "give unix:PATH or tcp:ADDR, for example unix:/run/vfield/nbd.sock or tcp:127.0.0.1:10809";

/// Address of an NBD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An address, with NBD's own port where it names none.
    Tcp(Address),
}

impl Endpoint {
    /// The address to listen at or to connect to. A host name is looked up, and its first address
    /// counts.
    ///
    /// # Errors
    /// If the host has no address.
    pub fn resolve(&self) -> Result<nbd::Address, Failure> {
        match self {
            Self::Unix(path) => Ok(nbd::Address::Unix(path.clone())),
            Self::Tcp(address) => address.first(nbd::PORT).map(nbd::Address::Tcp),
        }
    }
}

impl FromStr for Endpoint {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        // Host names are this program's: the library looks none up.
        if let Some(address) = text.strip_prefix("tcp:") {
            return address.parse().map(Self::Tcp);
        }
        nbd::unix_path(text).map(Self::Unix).map_err(|error| {
            let hint = match error {
                AddressError::PathTooLong(_) => "choose a shorter path; the system allows no more",
                _ => HINT,
            };
            BadValue::new(error.to_string(), hint)
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_told_by_their_prefix() {
        assert_eq!("unix:/tmp/x".parse(), Ok(Endpoint::Unix("/tmp/x".into())));
        assert_eq!("tcp:127.0.0.1".parse(), Ok(Endpoint::Tcp("127.0.0.1".parse().unwrap())));
        for text in ["", "/tmp/x", "unix:", "tcp:", "tcp:1.2.3.4:x", "udp:1.2.3.4"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
        assert!(format!("unix:/{}", "x".repeat(107)).parse::<Endpoint>().is_err());
    }
}
