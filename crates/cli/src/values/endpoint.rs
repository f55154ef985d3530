//! `--nbd`: where an NBD server listens, `unix:PATH` or `tcp:ADDR`.

use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_console::values::address::Address;
use vfield_export::nbd::UNIX_PATH_BYTES_MAX;

const HINT: &str = "give unix:PATH or tcp:ADDR, for example unix:/run/vfield/nbd.sock or tcp:127.0.0.1:10809";

/// A place to listen at for NBD clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An address, with NBD's own port where it names none.
    Tcp(Address),
}

impl FromStr for Endpoint {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(BadValue::new("unix: without a path", HINT));
            }
            if path.len() > UNIX_PATH_BYTES_MAX || path.contains('\0') {
                let fact = format!("socket path {path:?} is longer than {UNIX_PATH_BYTES_MAX} bytes");
                return Err(BadValue::new(fact, "choose a shorter path; the system allows no more"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(address) = text.strip_prefix("tcp:") {
            return address.parse().map(Self::Tcp);
        }
        Err(BadValue::new(format!("{text:?} starts neither with unix: nor with tcp:"), HINT))
    }
}

impl TryFrom<String> for Endpoint {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
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
