//! The names by which clients may call a server.
//!
//! A page of anybody on the web may point its own name at 127.0.0.1, and read what it finds there
//! with the browser of somebody on this machine (DNS rebinding). The browser then sends that name
//! as `Host`. So a name counts only if it is this machine's, or was given by the operator. An IP
//! address is no name, and cannot be pointed elsewhere.

use hyper::Request;
use hyper::header::HOST;
use hyper::http::uri::Authority;
use std::net::IpAddr;

/// The names of one server besides its IP addresses.
#[derive(Debug, Clone, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// These names, and `localhost`.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().chain(["localhost".to_owned()]).filter(|name| !name.is_empty()).collect())
    }

    /// True if a request may be answered: it calls the server by an IP address or one of the names.
    pub fn admit<B>(&self, request: &Request<B>) -> bool {
        // A target with a host of its own overrules the header.
        if let Some(authority) = request.uri().authority() {
            return self.has(authority.host());
        }
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = hosts.next().and_then(|host| Authority::try_from(host.as_bytes()).ok());
        hosts.next().is_none() && host.is_some_and(|host| self.has(host.host()))
    }

    fn has(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = bare.trim_end_matches('.');
        bare.parse::<IpAddr>().is_ok() || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(uri: &str, hosts: &[&str]) -> bool {
        let request = hosts.iter().fold(Request::get(uri), |request, host| request.header(HOST, *host));
        Names::new(["Node-1.lab".to_owned(), String::new()]).admit(&request.body(()).unwrap())
    }

    #[test]
    fn a_name_of_somebody_else_is_refused() {
        for host in
            ["127.0.0.1", "127.0.0.1:9740", "[::1]:9740", "[fd00::1]", "localhost:1", "LOCALHOST.", "node-1.lab:80"]
        {
            assert!(admitted("/", &[host]), "{host}");
            assert!(admitted(&format!("http://{host}/x"), &["x"]), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", ":80", "127.1", "a b", "node-1"]
        {
            assert!(!admitted("/", &[host]), "{host}");
        }
        assert!(!admitted("/", &[]) && !admitted("/", &["localhost", "evil.example"]));
        assert!(!admitted("http://evil.example/", &["localhost"]));
    }
}
