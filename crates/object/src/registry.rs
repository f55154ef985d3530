//! `oci:HOST/REPOSITORY:TAG`: an image that is a blob of a registry.
//!
//! After the OCI distribution specification, version 1. A tag names a manifest, which names blobs
//! by their digests. The blob that is no file of hashes is the image. Invariant: a blob is opened
//! by its digest, so a tag that moves changes nothing before the next start.

use crate::address::{Address, Server};
use crate::connection::Connections;
use crate::text::{Question, Text, ask};
use crate::tokens::Tokens;
use hyper::StatusCode;
use hyper::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use vfield_block::object::ObjectError;

/// Most indexes that name each other.
const DEPTH_MAX: usize = 3;
/// The kinds of manifests that are read.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                        application/vnd.docker.distribution.manifest.v2+json, \
                        application/vnd.docker.distribution.manifest.list.v2+json";
/// How places in registries begin; the second one is without TLS.
pub const SCHEMES: [&str; 2] = ["oci:", "oci+http:"];

/// A tag or a digest in a repository.
#[derive(Debug, Clone)]
pub struct Repository {
    server: Server,
    name: String,
    /// A tag, or a digest with its algorithm.
    reference: String,
    pub tokens: Arc<Tokens>,
}

/// An index, which names manifests, or a manifest, which names blobs.
#[derive(Debug, Deserialize)]
struct Named {
    #[serde(default)]
    manifests: Vec<Blob>,
    #[serde(default)]
    layers: Vec<Blob>,
}

#[derive(Debug, Clone, Deserialize)]
struct Blob {
    digest: String,
    #[serde(default, rename = "mediaType")]
    kind: String,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Annotations {
    #[serde(rename = "org.opencontainers.image.title")]
    title: Option<String>,
}

impl Repository {
    /// Reads a place, which begins with one of [`SCHEMES`].
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let (scheme, rest) = text.split_once(':').ok_or("it names no registry")?;
        let rest = rest.trim_start_matches("//");
        let (host, path) = rest.split_once('/').ok_or("it names no repository: oci:HOST/REPOSITORY:TAG")?;
        let (name, reference) = match path.split_once('@') {
            Some((name, digest)) => (name, digest),
            None => path.rsplit_once(':').ok_or("it names no tag: oci:HOST/REPOSITORY:TAG")?,
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 255 || !name.bytes().all(is_name) || name.contains("..") {
            return Err("no name of a repository".to_owned());
        }
        let fits = reference.len() <= 128 && !reference.is_empty() && reference.bytes().all(is_tag);
        if !is_digest(reference) && (!fits || path.contains('@')) {
            return Err("neither a tag nor a digest: sha256: and 64 digits".to_owned());
        }
        let (host, registry, name) = match host {
            "docker.io" if !name.contains('/') => (HUB, HUB_LOGIN, format!("library/{name}")),
            "docker.io" => (HUB, HUB_LOGIN, name.to_owned()),
            _ => (host, host, name.to_owned()),
        };
        let mut server = Address::parse(&format!("https://{host}"))?.server;
        // Registries of the machine itself have no certificates, by a custom of all clients.
        if scheme == "oci+http" || server.is_own() {
            server = Address::parse(&format!("http://{host}"))?.server;
        }
        let in_home = || variable("HOME").map(|home| format!("{home}/.docker"));
        let of_docker = || Some(format!("{}/config.json", variable("DOCKER_CONFIG").or_else(in_home)?));
        let file = variable("REGISTRY_AUTH_FILE").or_else(of_docker).map(PathBuf::from);
        let tokens = Arc::new(Tokens::new(registry.to_owned(), file));
        Ok(Self { server, name, reference: reference.to_owned(), tokens })
    }

    /// True if it is reached by TLS.
    pub const fn has_tls(&self) -> bool {
        self.server.tls
    }

    /// The last part of the repository's name.
    pub fn file_name(&self) -> String {
        self.name.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// The tag; `None` for a digest.
    pub fn tag(&self) -> Option<&str> {
        Some(self.reference.as_str()).filter(|reference| !is_digest(reference))
    }

    /// The address of something in the repository.
    pub fn address(&self, kind: &str, reference: &str) -> Address {
        let path = format!("/v2/{}/{kind}/{reference}", self.name);
        Address { server: self.server.clone(), path, query: None }
    }

    /// The address of the image's blob; of its hashes' one, if `suffix` is not empty.
    pub async fn blob(&self, connections: &Connections, suffix: &str) -> Result<Address, ObjectError> {
        let mut reference = self.reference.clone();
        // A digest may be that of a blob itself, which has no hashes beside it. Registries refuse
        // it as a manifest in several ways.
        let mut may_be_blob = is_digest(&reference) && suffix.is_empty();
        for _ in 0..DEPTH_MAX {
            let at = self.address("manifests", &reference);
            let named = match self.manifest(&at, connections).await {
                Ok(named) => named,
                Err(_) if std::mem::take(&mut may_be_blob) => return Ok(self.address("blobs", &reference)),
                Err(refused) => return Err(refused),
            };
            may_be_blob = false;
            let host = self.server.authority();
            let next = match &named.manifests[..] {
                [] => {
                    let blob = choose(&named.layers, suffix)
                        .map_err(|why| ObjectError::lasting(format!("{host}: {}: {why}", self.name)))?;
                    return Ok(self.address("blobs", &blob.digest));
                }
                [one] => one.digest.clone(),
                several => {
                    let why = format!(
                        "{host}: {} has {} manifests under it: name one by its digest",
                        self.name,
                        several.len()
                    );
                    return Err(ObjectError::lasting(why));
                }
            };
            if !is_digest(&next) {
                return Err(ObjectError::lasting(format!("{host}: an index with a digest that is no SHA-256")));
            }
            reference = next;
        }
        Err(ObjectError::lasting(format!("{}: indexes of indexes", self.server.authority())))
    }

    /// The manifest at an address.
    async fn manifest(&self, at: &Address, connections: &Connections) -> Result<Named, ObjectError> {
        let host = at.server.authority();
        let headers = [(ACCEPT, ACCEPTED.to_owned())];
        let answer = self.ask(connections, Question { headers: &headers, ..Question::get(at) }).await?;
        if answer.status != StatusCode::OK {
            return Err(answer.refusal(&host));
        }
        let named = serde_json::from_slice(&answer.bytes);
        named.map_err(|_| ObjectError::passing(format!("{host} answers with something else than a manifest")))
    }

    /// Asks with the access that this or another server of the registry wants.
    pub async fn ask(&self, connections: &Connections, question: Question<'_>) -> Result<Text, ObjectError> {
        let mut is_renewed = false;
        loop {
            let is_own = question.at.server == self.server;
            let header = if is_own { self.tokens.header().await } else { None };
            let access = header.clone().map(|header| (AUTHORIZATION, header));
            let headers: Vec<_> = question.headers.iter().cloned().chain(access).collect();
            let answer = ask(connections, Question { headers: &headers, ..question.clone() }).await?;
            if answer.status != StatusCode::UNAUTHORIZED || is_renewed || !is_own {
                return Ok(answer);
            }
            let challenge = answer.headers.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            self.tokens.renew(connections, question.at, header.as_deref(), challenge).await?;
            is_renewed = true;
        }
    }
}

/// Docker's registry, and its name in files of credentials.
const HUB: &str = "registry-1.docker.io";
const HUB_LOGIN: &str = "https://index.docker.io/v1/";

fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_digit))
}

/// The blob that is the image, or that is named like it with `suffix` behind.
fn choose<'a>(blobs: &'a [Blob], suffix: &str) -> Result<&'a Blob, String> {
    let is_beside = |blob: &&Blob| blob.annotations.title.as_ref().is_some_and(|title| title.ends_with(".vfh"));
    let meant: Vec<&Blob> = blobs.iter().filter(|blob| is_beside(blob) != suffix.is_empty()).collect();
    match meant[..] {
        [one] if one.kind.contains("tar") && suffix.is_empty() => {
            Err("its layer is a tar of a container: make an image of it with `vfield pack`".to_owned())
        }
        [one] if is_digest(&one.digest) => Ok(one),
        [_] => Err("a digest that is no SHA-256".to_owned()),
        [] if suffix.is_empty() => Err("a manifest without a blob".to_owned()),
        [] => Err("no hashes beside the image".to_owned()),
        _ => Err(format!("a manifest of {} blobs: name one by its digest", meant.len())),
    }
}
