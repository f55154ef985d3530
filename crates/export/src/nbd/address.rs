//! Where an export listens, as people write it: `unix:PATH` or `tcp:ADDRESS[:PORT]`.
//!
//! Owns the two spellings and the URI that clients take. It opens nothing.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The port that IANA gave to NBD.
pub const PORT: u16 = 10809;

/// Longest path of a unix socket in bytes: `sun_path` of `unix(7)` without its last zero.
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A socket file that only its owner may open.
    Unix(PathBuf),
    /// An address of this machine; port 0 means any free one.
    Tcp(SocketAddr),
}

/// Text that is not an [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither `unix:` nor `tcp:`.
    #[error("{0:?} starts neither with unix: nor with tcp:")]
    Kind(String),
    /// `unix:` and nothing.
    #[error("unix: without a path")]
    NoPath,
    /// Longer than the operating system allows.
    #[error("socket path {0:?} is longer than {UNIX_PATH_BYTES_MAX} bytes")]
    PathTooLong(String),
    /// A path with a zero byte in it.
    #[error("socket path with a zero byte")]
    PathWithZero,
    /// No IP address after `tcp:`. Names are not looked up: what one listens on must not hang on
    /// DNS.
    #[error("{0:?} is no IP address with an optional port")]
    Ip(String),
}

impl Address {
    /// The URI for clients of the export called `name` ("" is the first one), without TLS.
    pub fn uri(&self, name: &str) -> String {
        self.uri_with("nbd", name)
    }

    /// The same for a server with certificates. Clients of a unix socket need none.
    pub fn uri_tls(&self, name: &str) -> String {
        self.uri_with("nbds", name)
    }

    fn uri_with(&self, tcp_scheme: &str, name: &str) -> String {
        let name: String = name.bytes().map(escaped).collect();
        match self {
            Self::Unix(path) => {
                let path: String = path.as_os_str().as_encoded_bytes().iter().copied().map(escaped).collect();
                format!("nbd+unix:///{name}?socket={path}")
            }
            Self::Tcp(address) => format!("{tcp_scheme}://{address}/{name}"),
        }
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    }
}

/// The path in `unix:PATH`; any other text is of no kind that exists.
///
/// # Errors
/// If the text begins differently, or no socket can have the path.
pub fn unix_path(text: &str) -> Result<PathBuf, AddressError> {
    let path = text.strip_prefix("unix:").ok_or_else(|| AddressError::Kind(text.to_owned()))?;
    match path.len() {
        0 => Err(AddressError::NoPath),
        _ if path.contains('\0') => Err(AddressError::PathWithZero),
        1..=UNIX_PATH_BYTES_MAX => Ok(path.into()),
        _ => Err(AddressError::PathTooLong(path.to_owned())),
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let Some(host) = text.strip_prefix("tcp:") else { return unix_path(text).map(Self::Unix) };
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let with_port = host.parse::<SocketAddr>().ok();
        let without = || host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT));
        let in_brackets = || Some(SocketAddr::new(bracketed?.parse::<Ipv6Addr>().ok()?.into(), PORT));
        let found = with_port.or_else(without).or_else(in_brackets);
        found.map(Self::Tcp).ok_or_else(|| AddressError::Ip(host.to_owned()))
    }
}

impl fmt::Display for Address {
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
    fn addresses_are_read_back_as_they_are_written() {
        for text in ["unix:/run/v field.sock", "unix:here", "tcp:127.0.0.1:1", "tcp:[::1]:10809"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for (short, long) in
            [("tcp:0.0.0.0", "tcp:0.0.0.0:10809"), ("tcp:[::]", "tcp:[::]:10809"), ("tcp:::1", "tcp:[::1]:10809")]
        {
            assert_eq!(short.parse::<Address>().unwrap().to_string(), long);
        }
    }

    #[test]
    fn what_is_no_address_is_told_so() {
        let error = |text: &str| text.parse::<Address>().unwrap_err();
        assert!(matches!(error("/run/x"), AddressError::Kind(_)));
        assert!(matches!(error(""), AddressError::Kind(_)));
        assert_eq!(error("unix:"), AddressError::NoPath);
        assert_eq!(error("unix:a\0b"), AddressError::PathWithZero);
        assert!(error(&format!("unix:/{}", "x".repeat(107))).to_string().contains("longer than 107 bytes"));
        assert!(error("tcp:localhost:1").to_string().contains("\"localhost:1\" is no IP address"));
        assert!(matches!(error("tcp:"), AddressError::Ip(_)));
    }

    #[test]
    fn uris_escape_what_is_not_plain() {
        let unix = Address::Unix("/run/a b?.sock".into());
        assert_eq!(unix.uri("os v1"), "nbd+unix:///os%20v1?socket=/run/a%20b%3F.sock");
        assert_eq!(unix.uri_tls("os"), unix.uri("os"), "TLS is for TCP alone");
        let tcp: Address = "tcp:[::1]:7".parse().unwrap();
        assert_eq!((tcp.uri(""), tcp.uri_tls("a b")), ("nbd://[::1]:7/".into(), "nbds://[::1]:7/a%20b".into()));
    }
}
