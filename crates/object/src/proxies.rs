//! Proxies: the way to servers that this machine cannot reach by itself, as its environment says.
//!
//! The variables are those of other programs: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
//! `NO_PROXY`, in capitals or not. They are read once, when a place is named. A proxy opens a
//! tunnel to a server with TLS, and so sees no request; requests to other servers it passes on.
//! Invariant: this machine, and the services that a cloud has for it, are asked directly, whatever
//! the variables say.

use crate::address::Server;
use crate::connection::{Stream, USER};
use crate::deadline::within;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::handshake;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use std::net::IpAddr;
use std::time::Duration;
use vfield_block::object::ObjectError;

/// Time for a tunnel. The proxy looks for a name, connects, and may have to ask another proxy.
const TUNNEL_WITHIN: Duration = Duration::from_secs(10);
/// The name at which Google's machines ask for their credentials.
const METADATA: &str = "metadata.google.internal";
/// How the addresses begin at which Amazon's machines ask for theirs, of IPv6.
const EC2: [u16; 2] = [0xfd00, 0x0ec2];

/// Which servers are reached through which proxies.
pub struct Proxies {
    /// Without one, all are asked directly.
    named: Option<Matcher>,
}

/// The proxy for a server.
pub struct Proxy {
    pub server: Server,
    /// The header with its name and password.
    pub authorization: Option<HeaderValue>,
}

impl Proxies {
    /// Those that the environment names.
    pub fn of_environment() -> Self {
        Self { named: Some(Matcher::from_env()) }
    }

    /// No proxy for any server.
    pub const fn none() -> Self {
        Self { named: None }
    }

    /// The proxy for a server; `None` to ask it directly.
    ///
    /// # Errors
    /// In words, if it is of an unknown kind.
    pub fn to(&self, server: &Server) -> Result<Option<Proxy>, String> {
        let Some(named) = self.named.as_ref().filter(|_| !is_near(server)) else { return Ok(None) };
        let uri: Uri = server.url().parse().map_err(|_| "no name of a server".to_owned())?;
        let Some(found) = named.intercept(&uri) else { return Ok(None) };
        let tls = match found.uri().scheme_str() {
            Some("http") => false,
            Some("https") => true,
            other => {
                return Err(format!("its proxy is neither an http nor an https one: {}", other.unwrap_or_default()));
            }
        };
        let host = found.uri().host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = found.uri().port_u16().unwrap_or(if tls { 443 } else { 80 });
        let authorization = found.basic_auth().cloned();
        Ok(Some(Proxy { server: Server { tls, host, port }, authorization }))
    }
}

impl Proxy {
    /// Makes a connection to this proxy one to a server behind it.
    pub async fn tunnel(&self, stream: Stream, server: &Server) -> Result<Stream, ObjectError> {
        let to = server.with_port();
        let me = self.server.authority();
        let failed = |why: &dyn std::fmt::Display| ObjectError::passing(format!("{me}: {why}"));
        let refused = |why: &dyn std::fmt::Display| ObjectError::lasting(format!("{me}: {why}"));
        let mut request =
            Request::builder().method(Method::CONNECT).uri(&to).header(HOST, &to).header(USER_AGENT, USER);
        if let Some(authorization) = &self.authorization {
            request = request.header(PROXY_AUTHORIZATION, authorization);
        }
        let request = request.body(Full::<Bytes>::default()).map_err(|error| refused(&error))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        tokio::spawn(connection.with_upgrades());
        let answer = within(TUNNEL_WITHIN, sender.send_request(request)).await;
        let answer = answer.map_err(|_| failed(&format!("no answer within {} s", TUNNEL_WITHIN.as_secs())))?;
        let answer = answer.map_err(|error| failed(&error))?;
        match answer.status() {
            status if status.is_success() => {
                let tunnel = hyper::upgrade::on(answer).await.map_err(|error| failed(&error))?;
                Ok(Box::new(TokioIo::new(tunnel)))
            }
            StatusCode::PROXY_AUTHENTICATION_REQUIRED | StatusCode::UNAUTHORIZED => {
                Err(refused(&"it wants a name and password, as in http://NAME:PASSWORD@HOST:PORT"))
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => Err(failed(&status)),
            status => Err(refused(&status)),
        }
    }
}

/// The error, of a way that leads through a proxy.
pub fn on_the_way(error: ObjectError) -> ObjectError {
    let ObjectError::Failed { why, after, lasting } = error else { return error };
    ObjectError::Failed { why: format!("through a proxy: {why}"), after, lasting }
}

/// True for this machine, and for services that a cloud has for each machine.
fn is_near(server: &Server) -> bool {
    let is_on_the_link = |ip| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.segments().starts_with(&EC2),
    };
    server.is_own() || server.host == METADATA || server.host.parse().is_ok_and(is_on_the_link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    fn proxies(http: &str, https: &str, no: &str) -> Proxies {
        let (http, https, no) = (http.to_owned(), https.to_owned(), no.to_owned());
        Proxies { named: Some(Matcher::builder().http(http).https(https).no(no).build()) }
    }

    fn way(proxies: &Proxies, url: &str) -> Result<Option<(String, Option<String>)>, String> {
        let found = proxies.to(&Address::parse(url).unwrap().server)?;
        let text = |header: HeaderValue| header.to_str().unwrap().to_owned();
        Ok(found.map(|proxy| (proxy.server.url(), proxy.authorization.map(text))))
    }

    #[test]
    fn a_server_has_the_proxy_of_its_scheme_or_none() {
        let both = proxies("proxy.example:3128", "http://who:what@[2001:db8::1]:8080", "lan.example,198.18.0.0/15");
        let (plain, tls) = ("http://proxy.example:3128/", "http://[2001:db8::1]:8080/");
        assert_eq!(way(&both, "http://a.example/x"), Ok(Some((plain.to_owned(), None))));
        let authorization = Some("Basic d2hvOndoYXQ=".to_owned());
        assert_eq!(way(&both, "https://a.example/x"), Ok(Some((tls.to_owned(), authorization))));
        for url in ["https://lan.example/", "https://s3.lan.example/", "http://198.18.7.7/"] {
            assert_eq!(way(&both, url), Ok(None), "{url}");
        }
        assert_eq!(way(&proxies("", "", ""), "https://a.example/"), Ok(None));
        assert_eq!(way(&proxies("", "", ""), "https://[2001:db8::2]:444/"), Ok(None));
        assert_eq!(way(&Proxies::none(), "https://a.example/"), Ok(None));
        assert_eq!(
            way(&proxies("", "https://p.example", ""), "https://a.example/").unwrap().unwrap().0,
            "https://p.example/"
        );
    }

    #[test]
    fn what_is_near_is_asked_directly() {
        let both = proxies("p.example:1", "p.example:1", "");
        let of_clouds = ["169.254.169.254", "metadata.google.internal", "[fd00:ec2::23]"];
        for host in ["localhost", "127.0.0.1", "[::1]", "[fe80::1]"].into_iter().chain(of_clouds) {
            assert_eq!(way(&both, &format!("http://{host}/")), Ok(None), "{host}");
        }
    }

    #[test]
    fn other_kinds_are_refused_in_words() {
        let why = way(&proxies("", "socks5://p.example:1080", ""), "https://a.example/").unwrap_err();
        assert_eq!(why, "its proxy is neither an http nor an https one: socks5");
    }
}
