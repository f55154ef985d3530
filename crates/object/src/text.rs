//! Small answers that are read whole: manifests, tokens, keys.
//!
//! Invariant: at most [`TEXT_MAX`] bytes are read, and every wait is bounded. No redirect is
//! followed. Registries and lenders of credentials are asked; ranges of objects are the client's.

use crate::address::Address;
use crate::answer::refusal;
use crate::client::{RATE_MIN, code};
use crate::connection::Connections;
use crate::deadline;
use crate::s3;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use hyper::{Method, StatusCode};
use std::time::Duration;
use vfield_block::object::ObjectError;

/// Longest text in bytes. Registries refuse longer manifests.
const TEXT_MAX: usize = 4 << 20;
/// Time for a question and its answer, besides that of the body at [`RATE_MIN`].
const WITHIN: Duration = Duration::from_secs(15);

/// An answer that was read whole.
pub struct Text {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Text {
    /// The error of `host` that its status tells.
    pub fn refusal(&self, host: &str) -> ObjectError {
        refusal(host, self.status, &self.headers)
    }

    /// Its text, unless it is a refusal of `host`, about which `what` says more.
    pub fn sound(&self, host: &str, what: &str) -> Result<String, ObjectError> {
        let text = String::from_utf8_lossy(&self.bytes);
        if self.status.is_success() {
            return Ok(text.trim().to_owned());
        }
        let code = code(&text).map_or_else(String::new, |code| format!(" ({code})"));
        Err(match self.refusal(host) {
            ObjectError::Failed { why, after, lasting } => {
                ObjectError::Failed { why: format!("{why}, {what}{code}"), after, lasting }
            }
            changed @ ObjectError::Changed(_) => changed,
        })
    }
}

/// A question for a text.
#[derive(Clone)]
pub struct Question<'a> {
    pub method: Method,
    pub at: &'a Address,
    pub headers: &'a [(HeaderName, String)],
    pub body: Bytes,
    /// The kind of the body; empty without one.
    pub kind: &'a str,
}

impl<'a> Question<'a> {
    /// For the text at an address.
    pub const fn get(at: &'a Address) -> Self {
        Self { method: Method::GET, at, headers: &[], body: Bytes::new(), kind: "" }
    }

    /// With the fields of a form.
    pub fn form(at: &'a Address, fields: &[(&str, &str)]) -> Self {
        let field = |(name, value): &(&str, &str)| format!("{name}={}", s3::encode(value, ""));
        let form = fields.iter().map(field).collect::<Vec<_>>().join("&");
        let kind = "application/x-www-form-urlencoded";
        Self { method: Method::POST, body: form.into(), kind, ..Self::get(at) }
    }
}

/// Asks for a text. One attempt.
pub async fn ask(connections: &Connections, question: Question<'_>) -> Result<Text, ObjectError> {
    let Question { method, at, headers, body, kind } = question;
    let within = WITHIN + Duration::from_secs(body.len() as u64 / RATE_MIN);
    let host = at.server.authority();
    let mut request = connections.request(method, at);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if !kind.is_empty() {
        request = request.header(CONTENT_TYPE, kind);
    }
    let request = request.body(Full::from(body));
    let request = request.map_err(|error| ObjectError::lasting(format!("{host}: {error}")))?;
    let failed = |why: String| ObjectError::passing(format!("{host}: {why}"));
    let asking = async {
        let mut sender = connections.connect(&at.server).await?;
        let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, TEXT_MAX).collect().await.map_err(|error| failed(error.to_string()))?;
        Ok(Text { status: head.status, headers: head.headers, bytes: body.to_bytes() })
    };
    deadline::within(within, asking).await.map_err(|_| failed(format!("no answer within {} s", within.as_secs())))?
}
