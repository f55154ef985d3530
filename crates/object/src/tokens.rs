//! Access to a registry: the answer to its challenge, and the token that it gave.
//!
//! A registry refuses the first request with the place where a token is given (`Bearer`), or asks
//! for a name and a password (`Basic`). Invariant: credentials go to the place that the registry
//! names, never without TLS from a registry with TLS. They are read from the file for each token.
//! No secret is in any `Debug` text.

use crate::address::Address;
use crate::connection::Connections;
use crate::text::{Question, ask};
use hyper::header::AUTHORIZATION;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use tokio::sync::Mutex;
use vfield_block::object::ObjectError;

/// Longest file of credentials.
const FILE_MAX: u64 = 1 << 20;

/// The access to one repository.
pub struct Tokens {
    /// The registry's name in the file of credentials.
    pub registry: String,
    /// The file that `docker login` writes.
    pub file: Option<PathBuf>,
    /// The header of requests, if one is needed.
    header: Mutex<Option<String>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tokens of {}", self.registry)
    }
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Login>,
}

#[derive(Deserialize)]
struct Login {
    auth: Option<String>,
}

#[derive(Deserialize)]
struct Given {
    token: Option<String>,
    access_token: Option<String>,
}

/// What a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, query: Vec<(&'static str, String)> },
}

impl Tokens {
    pub fn new(registry: String, file: Option<PathBuf>) -> Self {
        Self { registry, file, header: Mutex::default() }
    }

    /// The header `Authorization` of the next request.
    pub async fn header(&self) -> Option<String> {
        self.header.lock().await.clone()
    }

    /// Answers the challenge to a request from `at`, which had the header `used`. Several requests
    /// with one old token get one new token.
    pub async fn renew(
        &self,
        connections: &Connections,
        at: &Address,
        used: Option<&str>,
        challenge: Option<&str>,
    ) -> Result<(), ObjectError> {
        let host = at.server.authority();
        let refused = |why: &str| ObjectError::lasting(format!("401 Unauthorized from {host}: {why}"));
        let mut header = self.header.lock().await;
        if header.as_deref() != used {
            return Ok(());
        }
        let challenge = challenge.and_then(Challenge::parse).ok_or_else(|| refused("it asks for no known access"))?;
        let login = self.login().map(|auth| format!("Basic {auth}"));
        let (realm, query) = match challenge {
            Challenge::Basic if login.is_none() => return Err(refused("log in with `docker login` first")),
            Challenge::Basic if login.as_deref() == used => return Err(refused("it refuses the login")),
            Challenge::Basic => {
                *header = login;
                return Ok(());
            }
            Challenge::Bearer { realm, query } => (realm, query),
        };
        let mut realm = Address::parse(&realm).map_err(|why| refused(&format!("its place for tokens: {why}")))?;
        if at.server.tls && !realm.server.tls {
            return Err(refused("its place for tokens is not encrypted"));
        }
        let query = query.iter().map(|(key, value)| format!("{key}={}", encode(value)));
        realm.query = Some(realm.query.into_iter().chain(query).collect::<Vec<_>>().join("&"));
        let headers: Vec<_> = login.into_iter().map(|login| (AUTHORIZATION, login)).collect();
        let given = ask(connections, Question { headers: &headers, ..Question::get(&realm) }).await?;
        let from = realm.server.authority();
        if !given.status.is_success() {
            let why = format!("{} from {from}, which gives tokens for {host}", given.status);
            let lasts = given.status.is_client_error() && given.status.as_u16() != 429;
            return Err(ObjectError::Failed { why, after: None, lasting: lasts });
        }
        let given: Option<Given> = serde_json::from_slice(&given.bytes).ok();
        let token = given.and_then(|given| given.token.or(given.access_token));
        let token = token.filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
        let token = token.ok_or_else(|| ObjectError::passing(format!("{from} answers with no token")))?;
        *header = Some(format!("Bearer {token}"));
        Ok(())
    }

    /// Name and password as they go on the wire.
    fn login(&self) -> Option<String> {
        let path = self.file.as_ref()?;
        let about = std::fs::metadata(path).ok()?;
        let text = (about.is_file() && about.len() <= FILE_MAX).then(|| std::fs::read(path).ok())??;
        let config: Config = serde_json::from_slice(&text).ok()?;
        let auth = config.auths.get(&self.registry)?.auth.clone()?;
        auth.bytes().all(|byte| byte.is_ascii_graphic()).then_some(auth)
    }
}

impl Challenge {
    /// Reads a header `WWW-Authenticate` with one challenge.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut query) = (None, Vec::new());
        while let Some((key, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"')?;
            match key.trim_matches([' ', ',']) {
                "realm" => realm = Some(value.to_owned()),
                "service" => query.push(("service", value.to_owned())),
                "scope" => query.push(("scope", value.to_owned())),
                _ => {}
            }
            rest = after;
        }
        Some(Self::Bearer { realm: realm?, query })
    }
}

/// Percent-encodes all but letters, digits and characters that are plain in a query.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/,".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer = |realm: &str, query: &[(&'static str, &str)]| {
            let query = query.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
            Some(Challenge::Bearer { realm: realm.to_owned(), query })
        };
        for (text, read) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a/token\",service=\"r\",scope=\"repository:a/b:pull,push\"",
                bearer("https://a/token", &[("service", "r"), ("scope", "repository:a/b:pull,push")]),
            ),
            ("Bearer realm=\"https://a/token\", error=\"invalid_token\"", bearer("https://a/token", &[])),
            ("Bearer service=\"r\"", None),
            ("Bearer realm=\"cut", None),
            ("Negotiate", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(text), read, "{text}");
        }
    }

    #[test]
    fn a_login_is_that_of_the_registry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, r#"{"auths":{"a.example":{"auth":"YTpi"},"b":{}},"credsStore":"x"}"#).unwrap();
        let login = |registry: &str| Tokens::new(registry.to_owned(), Some(path.clone())).login();
        assert_eq!((login("a.example").as_deref(), login("b"), login("c")), (Some("YTpi"), None, None));
        std::fs::write(&path, r#"{"auths":{"a.example":{"auth":"a\nb: c"}}}"#).unwrap();
        assert_eq!(login("a.example"), None);
        std::fs::write(&path, "no JSON").unwrap();
        assert_eq!(login("a.example"), None);

        let mut tokens = Tokens::new("a.example".to_owned(), None);
        *tokens.header.get_mut() = Some("Bearer secret".to_owned());
        assert!(!format!("{tokens:?}").contains("secret"));
    }
}
