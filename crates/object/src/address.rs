//! The address of an object: scheme, host, port and path of a URL.
//!
//! Invariant: the path is absolute and goes on the wire as it stands. An address has no credentials
//! in it, and no fragment. For people it is written without its query, which may be a secret.

use hyper::Uri;
use std::fmt;
use std::net::IpAddr;

/// Longest URL; more is a mistake, and servers refuse it anyway.
const LENGTH_MAX: usize = 8 << 10;

/// Where requests for an object go.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub server: Server,
    /// With its leading slash, percent-encoded.
    pub path: String,
    /// Behind the question mark.
    pub query: Option<String>,
}

/// A server that connections go to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    pub tls: bool,
    /// A name or an address; an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
}

impl Server {
    /// As it stands in a URL and in the header `Host`: without the usual port.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// The same with its port in each case.
    pub fn with_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme(), self.authority())
    }

    /// True for an address of this machine, which is reached without a network.
    pub fn is_own(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl Address {
    /// Reads a URL of http or https.
    ///
    /// # Errors
    /// In words, without the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("longer than {LENGTH_MAX} bytes"));
        }
        let text = text.split('#').next().unwrap_or_default();
        let uri: Uri = text.parse().map_err(|_| "not a URL".to_owned())?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("neither an http nor an https URL".to_owned()),
        };
        let authority = uri.authority().ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("a name or password in a URL would be seen in the list of processes".to_owned());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let digits = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.contains(']'));
        let port = match (authority.port_u16(), digits) {
            (Some(port), _) => port,
            (None, Some(_)) => return Err("its port is none".to_owned()),
            (None, None) if tls => 443,
            (None, None) => 80,
        };
        if host.is_empty() || port == 0 {
            return Err("it names no host".to_owned());
        }
        let server = Server { tls, host, port };
        Ok(Self { server, path: uri.path().to_owned(), query: uri.query().map(str::to_owned) })
    }

    /// The address of the object that is named like this one, with `suffix` behind.
    pub fn beside(&self, suffix: &str) -> Self {
        Self { path: format!("{}{suffix}", self.path), ..self.clone() }
    }

    /// Path and query, for a request.
    pub fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// The last part of the path, decoded; empty if the path ends with a slash.
    pub fn file_name(&self) -> String {
        decode(self.path.rsplit('/').next().unwrap_or_default())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.query.is_some() { "?..." } else { "" };
        write!(f, "{}://{}{}{query}", self.server.scheme(), self.server.authority(), self.path)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Resolves `%2F` and alike. A result that is no UTF-8 leaves the text as it was.
fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written() {
        for (text, server, path, written) in [
            ("https://a.example/x/y.img", ("a.example", 443), "/x/y.img", "https://a.example/x/y.img"),
            ("http://a.example:8080/y", ("a.example", 8080), "/y", "http://a.example:8080/y"),
            ("http://[2001:db8::1]:81/y", ("2001:db8::1", 81), "/y", "http://[2001:db8::1]:81/y"),
            ("https://a.example/y?key=secret#part", ("a.example", 443), "/y", "https://a.example/y?..."),
            ("https://a.example", ("a.example", 443), "/", "https://a.example/"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.server.host.as_str(), address.server.port), server, "{text}");
            assert_eq!((address.path.as_str(), address.to_string().as_str()), (path, written), "{text}");
        }
        assert_eq!(Address::parse("https://a/x.img?v=1").unwrap().beside(".vfh").target(), "/x.img.vfh?v=1");
    }

    #[test]
    fn others_are_refused() {
        let long = format!("https://a/{}", "x".repeat(LENGTH_MAX));
        for text in [
            "",
            "a",
            "/a",
            "ftp://a/b",
            "https://",
            "https:///a",
            "https://u:p@a/b",
            "https://a:0/b",
            "http://a:b/c",
            &long,
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_decoded() {
        for (path, name) in [("a%20b.img", "a b.img"), ("100%.img", "100%.img"), ("%ff", "%ff"), ("%C3%A4", "\u{e4}")] {
            assert_eq!(Address::parse(&format!("http://h/d/{path}")).unwrap().file_name(), name);
        }
    }
}
