//! Answers: a head, and a body of one type for all sites, so that the program has one server.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use std::error::Error;

/// A body of bytes that may fail on the way.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;
/// What a client gets.
pub type Answer = Response<Body>;

/// These bytes, of this type.
pub fn found(kind: &'static str, bytes: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Plain text with a newline behind it. A browser takes it for nothing else.
pub fn text(code: StatusCode, text: &str) -> Answer {
    let mut answer = found("text/plain; charset=utf-8", Bytes::from(format!("{text}\n")));
    *answer.status_mut() = code;
    answer
}
