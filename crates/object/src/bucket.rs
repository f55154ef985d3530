//! A bucket as a place to write to: small objects whole, large ones in parts, lists, conditions.
//!
//! A [`Bucket`] is `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`; all names in it lie below that
//! prefix. Each call is one attempt of bounded duration, and takes bounded memory: retries are the
//! caller's. Invariant: a write with a condition is sent at most once, so its answer is about that
//! write. Publishers call it, and origins of packed images.

use crate::address::Address;
use crate::answer::{self, Asked};
use crate::client::{Access, Client, RATE_MIN, code, reason};
use crate::connection::{Connections, Sender};
use crate::deadline;
use crate::listing::{self, Listing};
use crate::place::BadPlace;
use crate::s3;
use crate::signing::{Signed, Signer};
use crate::trust;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, StatusCode};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;

/// Time for a request and its answer, besides that of the body at [`RATE_MIN`]. A store that joins
/// ten thousand parts takes most of it.
const WITHIN: Duration = Duration::from_secs(60);
/// Most bytes of an answer about a write, and of a refusal.
const ANSWER_MAX: usize = 64 << 10;
/// Most bytes of one list: a thousand names of a kilobyte, and as much about each.
const LIST_MAX: usize = 4 << 20;

/// A prefix in a bucket.
pub struct Bucket {
    /// The bucket's; its path has no slash at its end.
    root: Address,
    /// Without a slash at its end; empty for the bucket itself.
    prefix: String,
    signer: Signer,
    shown: String,
    connections: Arc<Connections>,
    sent_bytes: AtomicU64,
}

/// The state in which an object has to be for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When<'a> {
    /// Any state, or none.
    Always,
    /// It does not exist.
    Absent,
    /// It has this ETag.
    Is(&'a str),
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The object was in another state.
    Lost,
    /// The store did not write; or, if that may pass, it is not known whether it did.
    Failed(ObjectError),
}

impl WriteError {
    /// True if the store knows no conditions of writes.
    pub fn knows_no_conditions(&self) -> bool {
        matches!(self, Self::Failed(ObjectError::Failed { why, .. }) if why.contains("(NotImplemented)"))
    }
}

impl From<ObjectError> for WriteError {
    fn from(error: ObjectError) -> Self {
        Self::Failed(error)
    }
}

/// A small object that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// All its bytes.
    pub bytes: Bytes,
    /// Its state; empty if the store names none.
    pub etag: String,
}

/// A range that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The bytes of the range, or of its part before the object's end.
    pub bytes: Bytes,
    /// Length of the whole object.
    pub length_bytes: u64,
}

/// One request and the bounds of its answer.
struct Ask<'a> {
    method: Method,
    /// Name below the prefix; `None` for the bucket itself.
    name: Option<&'a str>,
    /// In the order of the names.
    query: &'a [(&'a str, &'a str)],
    when: When<'a>,
    body: Bytes,
    answer_max: usize,
}

/// An answer that was read whole.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    bytes: Bytes,
}

impl Answer {
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn etag(&self) -> String {
        self.header(&ETAG).unwrap_or_default().to_owned()
    }

    /// The code of a refusal, or of a write that failed after its head was sent.
    fn code(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        text.contains("<Error").then(|| code(&text).map(str::to_owned)).flatten()
    }
}

impl Bucket {
    /// True if a text is meant as the address of something in a bucket.
    pub fn is_meant(text: &str) -> bool {
        s3::split(text).is_some()
    }

    /// Reads `s3://BUCKET` or `s3://BUCKET/PREFIX`, or either with `gs://`. `variable` looks up the
    /// environment.
    ///
    /// # Errors
    /// If it is no such place, or if it needs TLS and this system has no authorities.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, BadPlace> {
        let bad = |fact: String| BadPlace { fact };
        let (keeper, rest) = s3::split(text).ok_or_else(|| bad("it is no bucket: s3://BUCKET/PREFIX".to_owned()))?;
        let s3::Root { address: root, signer, key } = s3::root(keeper, rest, variable).map_err(bad)?;
        let tls = match root.server.tls {
            true => Ok(trust::connector().map_err(bad)?),
            false => Err("the bucket is reached without TLS".to_owned()),
        };
        let prefix = key.trim_matches('/').to_owned();
        let shown = text.trim_end_matches('/').to_owned();
        Ok(Self { root, prefix, signer, shown, connections: Client::connections(tls), sent_bytes: AtomicU64::new(0) })
    }

    /// Its address for people.
    pub fn address(&self) -> &str {
        &self.shown
    }

    /// The last part of its prefix, or the bucket's name.
    pub fn name(&self) -> &str {
        self.shown.rsplit('/').next().unwrap_or_default()
    }

    /// Files that it reads for each request.
    pub fn files(&self) -> Vec<PathBuf> {
        self.signer.credentials.path().into_iter().cloned().collect()
    }

    /// True if requests are signed.
    pub fn has_credentials(&self) -> bool {
        self.signer.credentials.is_some()
    }

    /// Bytes of all bodies that were sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Reads all of a range of an object, which is not empty.
    ///
    /// # Errors
    /// [`ObjectError::Changed`] if the object ends before the range does.
    pub async fn read(&self, name: &str, extent: Extent) -> Result<Range, ObjectError> {
        self.ranged(name, Asked::All(extent)).await
    }

    /// Reads a range of an object, or the part of it before the object's end.
    ///
    /// # Errors
    /// [`ObjectError::Changed`] if the object ends before the range begins.
    pub async fn read_up_to_end(&self, name: &str, extent: Extent) -> Result<Range, ObjectError> {
        self.ranged(name, Asked::UpToEnd(extent)).await
    }

    async fn ranged(&self, name: &str, asked: Asked) -> Result<Range, ObjectError> {
        let access = Access::Bucket(self.signer.clone());
        let client = Client::new(self.at(Some(name)), access, Arc::clone(&self.connections));
        let (part, bytes) = client.read(asked).await?;
        Ok(Range { bytes, length_bytes: part.pin.length_bytes })
    }

    /// Reads a whole object of at most so many bytes; `None` if there is none of this name.
    ///
    /// # Errors
    /// If it is longer, or cannot be read.
    pub async fn whole(&self, name: &str, most: usize) -> Result<Option<Whole>, ObjectError> {
        let answer = self.ask(Ask { answer_max: most, ..ask(Method::GET, name) }).await?;
        if answer.status == StatusCode::NOT_FOUND && answer.code().is_none_or(|code| code == "NoSuchKey") {
            return Ok(None);
        }
        let answer = self.sound(answer)?;
        Ok(Some(Whole { etag: answer.etag(), bytes: answer.bytes }))
    }

    /// The length of an object in bytes; `None` if there is none of this name, or no such bucket.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn length(&self, name: &str) -> Result<Option<u64>, ObjectError> {
        let answer = self.ask(ask(Method::HEAD, name)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = self.sound(answer)?;
        let length = answer.header(&CONTENT_LENGTH).and_then(|length| length.parse().ok());
        length.map(Some).ok_or_else(|| ObjectError::passing(format!("{} names no length", self.host())))
    }

    /// Writes a whole object; returns its ETag.
    ///
    /// # Errors
    /// [`WriteError::Lost`] if it is not in the expected state.
    pub async fn put(&self, name: &str, bytes: Bytes, when: When<'_>) -> Result<String, WriteError> {
        self.written(Ask { body: bytes, when, ..ask(Method::PUT, name) }).await.map(|answer| answer.etag())
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn remove(&self, name: &str) -> Result<(), ObjectError> {
        let answer = self.ask(ask(Method::DELETE, name)).await?;
        if answer.status == StatusCode::NOT_FOUND && answer.code().is_none_or(|code| code == "NoSuchKey") {
            return Ok(());
        }
        self.sound(answer).map(drop)
    }

    /// Lists objects whose names begin with `prefix`, from where a list before ended.
    ///
    /// # Errors
    /// If the store refuses, or answers with something else than a list.
    pub async fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing, ObjectError> {
        let prefix = self.key(prefix);
        let mut query = vec![("list-type", "2"), ("prefix", prefix.as_str())];
        query.splice(0..0, after.map(|after| ("continuation-token", after)));
        let answer = self.ask(Ask { name: None, query: &query, answer_max: LIST_MAX, ..ask(Method::GET, "") }).await?;
        let answer = self.sound(answer)?;
        listing::parse(&String::from_utf8_lossy(&answer.bytes))
            .map_err(|why| ObjectError::passing(format!("{} answers to a list with {why}", self.host())))
    }

    /// Begins an object of parts, which nobody sees before it is [joined](Bucket::join); returns
    /// its ticket.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn begin(&self, name: &str) -> Result<String, ObjectError> {
        let answer = self.ask(Ask { query: &[("uploads", "")], ..ask(Method::POST, name) }).await?;
        let answer = self.sound(answer)?;
        let ticket = listing::element(&String::from_utf8_lossy(&answer.bytes), "UploadId");
        ticket.ok_or_else(|| ObjectError::passing(format!("{} names no upload", self.host())))
    }

    /// Sends a part, counted from 1, and returns its ETag. All but the last have 5 MiB at least.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn part(&self, name: &str, ticket: &str, number: u32, bytes: Bytes) -> Result<String, ObjectError> {
        let number = number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", ticket)];
        let answer = self.ask(Ask { query: &query, body: bytes, ..ask(Method::PUT, name) }).await?;
        self.sound(answer).map(|answer| answer.etag())
    }

    /// Makes an object of its parts, all at once.
    ///
    /// # Errors
    /// [`WriteError::Lost`] if it is not in the expected state.
    pub async fn join(&self, name: &str, ticket: &str, etags: &[String], when: When<'_>) -> Result<(), WriteError> {
        let part = |(number, etag): (u32, &String)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", listing::encode(etag))
        };
        let parts: String = (1..).zip(etags).map(part).collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into();
        self.written(Ask { query: &[("uploadId", ticket)], body, when, ..ask(Method::POST, name) }).await.map(drop)
    }

    /// Gives up an object of parts.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn give_up(&self, name: &str, ticket: &str) -> Result<(), ObjectError> {
        let answer = self.ask(Ask { query: &[("uploadId", ticket)], ..ask(Method::DELETE, name) }).await?;
        self.sound(answer).map(drop)
    }

    /// The key of a name.
    fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    fn at(&self, name: Option<&str>) -> Address {
        let path = name.map_or_else(
            || if self.root.path.is_empty() { "/".to_owned() } else { self.root.path.clone() },
            |name| format!("{}/{}", self.root.path, s3::encode(&self.key(name), "/")),
        );
        Address { path, ..self.root.clone() }
    }

    fn host(&self) -> String {
        self.root.server.authority()
    }

    fn failed(&self, why: String) -> ObjectError {
        ObjectError::passing(format!("{}: {why}", self.host()))
    }

    async fn written(&self, ask: Ask<'_>) -> Result<Answer, WriteError> {
        let answer = self.ask(ask).await?;
        match answer.status {
            StatusCode::PRECONDITION_FAILED => Err(WriteError::Lost),
            StatusCode::CONFLICT if answer.code().is_none_or(|code| code.starts_with("Conditional")) => {
                Err(WriteError::Lost)
            }
            _ => Ok(self.sound(answer)?),
        }
    }

    /// The answer, unless it is a refusal.
    fn sound(&self, answer: Answer) -> Result<Answer, ObjectError> {
        let code = answer.code();
        if answer.status.is_success() && code.is_none() {
            return Ok(answer);
        }
        let host = self.host();
        let code = code.map_or_else(String::new, |code| format!(" ({code})"));
        if answer.status.is_redirection() {
            return Err(ObjectError::lasting(format!("{host} redirects: is the bucket in another region?{code}")));
        }
        if answer.status.is_success() {
            return Err(ObjectError::passing(format!("{host} could not write it{code}")));
        }
        Err(match answer::refusal(&host, answer.status, &answer.headers) {
            ObjectError::Failed { why, after, lasting } => {
                ObjectError::Failed { why: format!("{why}{code}"), after, lasting }
            }
            changed @ ObjectError::Changed(_) => changed,
        })
    }

    /// Sends a request and reads its answer whole.
    async fn ask(&self, ask: Ask<'_>) -> Result<Answer, ObjectError> {
        let within = WITHIN + Duration::from_secs(ask.body.len() as u64 / RATE_MIN);
        let asking = async {
            let idle = if ask.when == When::Always { self.connections.idle(&self.root.server) } else { None };
            if let Some(mut sender) = idle {
                // The server may have closed it at this moment.
                if let Ok(answer) = self.exchange(&mut sender, &ask).await {
                    return Ok((sender, answer));
                }
            }
            let mut sender = self.connections.connect(&self.root.server).await?;
            let answer = self.exchange(&mut sender, &ask).await?;
            Ok((sender, answer))
        };
        let answered = deadline::within(within, asking).await;
        let (mut sender, answer) =
            answered.map_err(|_| self.failed(format!("no answer within {} s", within.as_secs())))??;
        if sender.ready().await.is_ok() {
            self.connections.give_back(&self.root.server, sender);
        }
        Ok(answer)
    }

    async fn exchange(&self, sender: &mut Sender, ask: &Ask<'_>) -> Result<Answer, ObjectError> {
        let encoded = |(name, value): &(&str, &str)| format!("{}={}", s3::encode(name, ""), s3::encode(value, ""));
        let query = ask.query.iter().map(encoded).collect::<Vec<_>>().join("&");
        let (at, host) = (self.at(ask.name), self.host());
        let at = Address { query: Some(query.clone()).filter(|query| !query.is_empty()), ..at };
        let request = self.connections.request(ask.method.clone(), &at);
        let mut request = match ask.when {
            When::Always => request,
            When::Absent => request.header(IF_NONE_MATCH, "*"),
            When::Is(etag) => request.header(IF_MATCH, etag),
        };
        let signed = Signed {
            method: ask.method.as_str(),
            host: &host,
            path: &at.path,
            query: &query,
            range: None,
            body: &ask.body,
        };
        for (name, value) in self.signer.headers(signed, SystemTime::now()).await? {
            request = request.header(name, value);
        }
        let request =
            request.body(Full::new(ask.body.clone())).map_err(|error| ObjectError::lasting(error.to_string()))?;
        let failed = |error: hyper::Error| self.failed(reason(&error));
        let response = sender.send_request(request).await.map_err(failed)?;
        self.sent_bytes.fetch_add(ask.body.len() as u64, Ordering::Relaxed);
        let (head, mut body) = response.into_parts();
        let mut bytes = BytesMut::new();
        let most = if head.status.is_success() { ask.answer_max } else { ANSWER_MAX };
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(failed)?.into_data().unwrap_or_default();
            if bytes.len() + data.len() > most {
                return Err(ObjectError::lasting(format!("{} answers with more than {most} bytes", self.host())));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Answer { status: head.status, headers: head.headers, bytes: bytes.freeze() })
    }
}

fn ask(method: Method, name: &str) -> Ask<'_> {
    Ask { method, name: Some(name), query: &[], when: When::Always, body: Bytes::new(), answer_max: ANSWER_MAX }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
