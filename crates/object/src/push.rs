//! A repository of a registry as a place to push to: blobs in parts, and a manifest under a tag.
//!
//! After the OCI distribution specification, version 1. Each call is one attempt of bounded
//! duration, and takes bounded memory: retries are the caller's. Invariant: the token goes to the
//! registry alone, never to a server that it names for an upload. Publishers call it.

use crate::address::Address;
use crate::client::Client;
use crate::connection::Connections;
use crate::place::BadPlace;
use crate::redirect;
use crate::registry::{Repository, SCHEMES};
use crate::text::{Question, Text};
use crate::trust;
use bytes::Bytes;
use hyper::header::{CONTENT_RANGE, HeaderName, LOCATION, RANGE};
use hyper::{Method, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfield_block::object::ObjectError;

/// The kind of an artifact's manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A tag in a repository, to be pushed.
pub struct Push {
    repository: Repository,
    tag: String,
    shown: String,
    connections: Arc<Connections>,
    sent_bytes: AtomicU64,
}

/// An upload under way. Each answer names the place of the next part.
#[derive(Debug, Clone)]
pub struct Upload(Address);

impl Push {
    /// True if a text is meant as a place in a registry.
    pub fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Reads `oci:HOST/REPOSITORY:TAG`. `variable` looks up the environment.
    ///
    /// # Errors
    /// If it is no such place, or if it needs TLS and this system has no authorities.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, BadPlace> {
        let bad = |fact| BadPlace { fact };
        let repository = Repository::parse(text, variable).map_err(bad)?;
        let tag = repository.tag().ok_or_else(|| bad("it names a digest, and no tag".to_owned()))?.to_owned();
        let tls = trust::connector();
        if let (true, Err(why)) = (repository.has_tls(), &tls) {
            return Err(bad(why.clone()));
        }
        let (shown, connections) = (text.to_owned(), Client::connections(tls));
        Ok(Self { repository, tag, shown, connections, sent_bytes: AtomicU64::new(0) })
    }

    /// Its address for people.
    pub fn address(&self) -> &str {
        &self.shown
    }

    /// Bytes of all blobs and manifests that were sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// True if the repository has a blob of this digest.
    ///
    /// # Errors
    /// If the registry refuses.
    pub async fn has(&self, digest: &str) -> Result<bool, ObjectError> {
        let at = self.repository.address("blobs", digest);
        let answer = self.ask(Question { method: Method::HEAD, ..Question::get(&at) }).await?;
        match answer.status {
            // Some send a client that looks for a blob to the server that has it.
            StatusCode::OK => Ok(true),
            status if status.is_redirection() => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(refused(&at, &answer)),
        }
    }

    /// Begins a blob, which nobody sees before it is [ended](Push::end).
    ///
    /// # Errors
    /// If the registry refuses.
    pub async fn begin(&self) -> Result<Upload, ObjectError> {
        let at = self.repository.address("blobs", "uploads/");
        let answer = self.ask(Question { method: Method::POST, ..Question::get(&at) }).await?;
        goes_on(&at, &answer, StatusCode::ACCEPTED)
    }

    /// Sends the next part of a blob, whose first byte is that at `from`.
    ///
    /// # Errors
    /// If the registry refuses.
    pub async fn part(&self, upload: &Upload, from: u64, bytes: Bytes) -> Result<Upload, ObjectError> {
        let (at, length) = (&upload.0, bytes.len() as u64);
        let headers = [(CONTENT_RANGE, format!("{from}-{}", from + length - 1))];
        let question = Question { method: Method::PATCH, headers: &headers, body: bytes, ..octets(at) };
        let answer = self.ask(question).await?;
        goes_on(at, &answer, StatusCode::ACCEPTED)
    }

    /// How many bytes of a blob the registry has, after a part whose answer did not come.
    ///
    /// # Errors
    /// If the registry refuses.
    pub async fn so_far(&self, upload: &Upload) -> Result<(Upload, u64), ObjectError> {
        let answer = self.ask(Question::get(&upload.0)).await?;
        let next = goes_on(&upload.0, &answer, StatusCode::NO_CONTENT)?;
        let range = header(&answer, &RANGE).and_then(|range| range.rsplit_once('-'));
        let last: Option<u64> = range.and_then(|(_, last)| last.parse().ok());
        // An empty upload is 0-0 as well, and is begun anew: one byte more or less is not told.
        Ok((next, last.filter(|last| *last > 0).map_or(0, |last| last.saturating_add(1))))
    }

    /// Makes a blob of the parts that were sent.
    ///
    /// # Errors
    /// If the registry refuses, as it does if the digest is another one.
    pub async fn end(&self, upload: &Upload, digest: &str) -> Result<(), ObjectError> {
        let query = upload.0.query.iter().cloned().chain([format!("digest={digest}")]);
        let at = Address { query: Some(query.collect::<Vec<_>>().join("&")), ..upload.0.clone() };
        let answer = self.ask(Question { method: Method::PUT, ..octets(&at) }).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refused(&at, &answer)) }
    }

    /// Has the tag name this manifest.
    ///
    /// # Errors
    /// If the registry refuses.
    pub async fn tag(&self, manifest: Bytes) -> Result<(), ObjectError> {
        let at = self.repository.address("manifests", &self.tag);
        let question = Question { method: Method::PUT, body: manifest, kind: MANIFEST, ..Question::get(&at) };
        let answer = self.ask(question).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refused(&at, &answer)) }
    }

    async fn ask(&self, question: Question<'_>) -> Result<Text, ObjectError> {
        let length = question.body.len() as u64;
        let answer = self.repository.ask(&self.connections, question).await?;
        self.sent_bytes.fetch_add(length, Ordering::Relaxed);
        Ok(answer)
    }
}

/// The error of the server at an address that its answer tells.
fn refused(at: &Address, answer: &Text) -> ObjectError {
    answer.refusal(&at.server.authority())
}

/// The place of the next part, as an answer with this status names it.
fn goes_on(at: &Address, answer: &Text, status: StatusCode) -> Result<Upload, ObjectError> {
    if answer.status != status {
        return Err(refused(at, answer));
    }
    let location = header(answer, &LOCATION).map(|location| redirect::follow(at, location));
    let missing = || Err(format!("{} names no place for the upload", at.server.authority()));
    location.unwrap_or_else(missing).map(Upload).map_err(ObjectError::lasting)
}

/// A question with bytes.
const fn octets(at: &Address) -> Question<'_> {
    let mut question = Question::get(at);
    question.kind = "application/octet-stream";
    question
}

fn header<'a>(answer: &'a Text, name: &HeaderName) -> Option<&'a str> {
    answer.headers.get(name)?.to_str().ok()
}
