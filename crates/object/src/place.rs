//! The place of an object, as it is named on a command line.
//!
//! Parsed and prepared before a daemon gives up its rights: it reads the system's authorities and
//! finds credentials. It makes no connection before something is opened.

use crate::address::Address;
use crate::client::Client;
use crate::connection::Connections;
use crate::object::Pinned;
use crate::s3;
use crate::signing::Signer;
use crate::trust;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use vfield_block::object::{Object, ObjectOpening, ObjectStore};

/// How places begin.
const SCHEMES: [&str; 3] = ["https://", "http://", "s3://"];

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPlace {
    /// The reason in words, without the text: that may be a secret.
    pub fact: String,
}

/// An object that can be opened.
pub struct Place {
    address: Address,
    /// As it is shown.
    shown: String,
    signer: Option<Signer>,
    connections: Arc<Connections>,
}

impl Place {
    /// True if a text is meant as a place, and not as a path.
    pub fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Reads the name of a place. `variable` looks up the environment.
    ///
    /// # Errors
    /// If it is none, or if it needs TLS and this system has no authorities.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, BadPlace> {
        let bad = |fact| BadPlace { fact };
        let (address, signer, shown) = match text.strip_prefix("s3://") {
            Some(rest) => {
                let (address, signer) = s3::resolve(rest, variable).map_err(bad)?;
                (address, Some(signer), text.to_owned())
            }
            None => {
                let address = Address::parse(text).map_err(bad)?;
                let shown = address.to_string();
                (address, None, shown)
            }
        };
        let tls = trust::connector();
        if let (true, Err(why)) = (address.server.tls, &tls) {
            return Err(bad(why.clone()));
        }
        Ok(Self { address, shown, signer, connections: Client::connections(tls) })
    }

    /// The last part of its path, decoded: the name that its image has if none is given.
    pub fn file_name(&self) -> String {
        self.address.file_name()
    }
}

impl ObjectStore for Place {
    fn address(&self) -> &str {
        &self.shown
    }

    fn files(&self) -> Vec<PathBuf> {
        self.signer.iter().filter_map(|signer| signer.credentials.path().cloned()).collect()
    }

    fn open(&self, suffix: &str) -> ObjectOpening<'_> {
        let client = Client::new(self.address.beside(suffix), self.signer.clone(), Arc::clone(&self.connections));
        Box::pin(async move { Ok(Box::new(Pinned::open(client).await?) as Box<dyn Object>) })
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_no_places() {
        for (text, is) in
            [("https://a/b", true), ("s3://a/b", true), ("./https://a", false), ("/s3:", false), ("a", false)]
        {
            assert_eq!(Place::is_meant(text), is, "{text}");
        }
    }

    #[test]
    fn a_place_is_shown_without_secrets() {
        let nothing = |_: &str| None;
        let place = Place::parse("http://a.example/b.img?signature=secret", &nothing).unwrap();
        assert_eq!((place.address(), place.file_name().as_str()), ("http://a.example/b.img?...", "b.img"));
        assert!(!format!("{place:?}").contains("secret"));
        let refused = Place::parse("https://user:secret@a/b", &nothing).unwrap_err();
        assert!(!refused.fact.contains("secret"), "{refused:?}");
    }
}
