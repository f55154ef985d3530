//! The place of an object, as it is named on a command line.
//!
//! Parsed and prepared before a daemon gives up its rights: it reads the system's authorities and
//! finds credentials. It makes no connection before something is opened.

use crate::address::Address;
use crate::azure;
use crate::client::{Access, Client};
use crate::connection::Connections;
use crate::credentials::Variable;
use crate::object::Pinned;
use crate::registry::{self, Repository};
use crate::s3;
use crate::signing::Signer;
use crate::trust;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use vfield_block::object::{Object, ObjectOpening, ObjectStore};

/// How places begin, besides those in buckets.
const SCHEMES: [&str; 5] = ["https://", "http://", azure::SCHEME, registry::SCHEMES[0], registry::SCHEMES[1]];

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPlace {
    /// The reason in words, without the text: that may be a secret.
    pub fact: String,
}

/// An object that can be opened.
pub struct Place {
    at: At,
    /// As it is shown.
    shown: String,
    connections: Arc<Connections>,
}

/// How the address of an object is found.
enum At {
    Address(Box<Address>, Access),
    Repository(Repository),
}

impl Place {
    /// True if a text is meant as a place, and not as a path.
    pub fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme)) || s3::split(text).is_some()
    }

    /// Reads the name of a place. `variable` looks up the environment.
    ///
    /// # Errors
    /// If it is none, or if it needs TLS and this system has no authorities.
    pub fn parse(text: &str, variable: Variable<'_>) -> Result<Self, BadPlace> {
        let bad = |fact| BadPlace { fact };
        let (at, has_tls, shown) = if registry::SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            let repository = Repository::parse(text, variable).map_err(bad)?;
            let has_tls = repository.has_tls();
            (At::Repository(repository), has_tls, text.to_owned())
        } else if let Some(resolved) = of_account(text, variable) {
            let (address, signer) = resolved.map_err(bad)?;
            let has_tls = address.server.tls;
            (At::Address(Box::new(address), Access::Bucket(signer)), has_tls, text.to_owned())
        } else {
            let address = Address::parse(text).map_err(bad)?;
            let (has_tls, shown) = (address.server.tls, address.to_string());
            (At::Address(Box::new(address), Access::Everybody), has_tls, shown)
        };
        let tls = trust::connector();
        if let (true, Err(why)) = (has_tls, &tls) {
            return Err(bad(why.clone()));
        }
        Ok(Self { at, shown, connections: Client::connections(tls) })
    }

    /// The last part of its path, decoded: the name that its image has if none is given.
    pub fn file_name(&self) -> String {
        match &self.at {
            At::Address(address, _) => address.file_name(),
            At::Repository(repository) => repository.file_name(),
        }
    }
}

/// The address and the signer of an object that is read with an account; `None` for another one.
fn of_account(text: &str, variable: Variable<'_>) -> Option<Result<(Address, Signer), String>> {
    let in_bucket = s3::split(text).map(|(keeper, rest)| s3::resolve(keeper, rest, variable));
    in_bucket.or_else(|| text.strip_prefix(azure::SCHEME).map(|rest| azure::resolve(rest, variable)))
}

impl ObjectStore for Place {
    fn address(&self) -> &str {
        &self.shown
    }

    fn files(&self) -> Vec<PathBuf> {
        let file = match &self.at {
            At::Address(_, Access::Bucket(signer)) => signer.credentials.path(),
            At::Address(..) => None,
            At::Repository(repository) => repository.tokens.file.as_ref(),
        };
        file.into_iter().cloned().collect()
    }

    fn open(&self, suffix: &str) -> ObjectOpening<'_> {
        let suffix = suffix.to_owned();
        Box::pin(async move {
            let (address, access) = match &self.at {
                At::Address(address, access) => (address.beside(&suffix), access.clone()),
                At::Repository(repository) => {
                    let blob = repository.blob(&self.connections, &suffix).await?;
                    (blob, Access::Registry(Arc::clone(&repository.tokens)))
                }
            };
            let client = Client::new(address, access, Arc::clone(&self.connections));
            Ok(Box::new(Pinned::open(client).await?) as Box<dyn Object>)
        })
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
        for (text, is) in [
            ("https://a/b", true),
            ("s3://a/b", true),
            ("gs://a/b", true),
            ("az://a/b/c", true),
            ("oci:a/b:c", true),
            ("./https://a", false),
            ("/s3:", false),
            ("a", false),
        ] {
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
