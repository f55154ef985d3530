//! Small answers that are read whole: manifests, tokens.
//!
//! Invariant: at most [`TEXT_MAX`] bytes are read, and every wait is bounded. No redirect is
//! followed. Registries ask; ranges of objects are the client's.

use crate::address::Address;
use crate::connection::Connections;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HOST, HeaderMap, HeaderName, USER_AGENT};
use hyper::{Request, StatusCode};
use std::time::Duration;
use tokio::time::timeout;
use vfield_block::object::ObjectError;

/// Longest text in bytes. Registries refuse longer manifests.
const TEXT_MAX: usize = 4 << 20;
/// Time for a whole answer.
const WITHIN: Duration = Duration::from_secs(15);

/// An answer that was read whole.
pub struct Text {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

/// Asks for the text at an address, with these headers besides. One attempt.
pub async fn text(
    connections: &Connections,
    at: &Address,
    headers: &[(HeaderName, String)],
) -> Result<Text, ObjectError> {
    let host = at.server.authority();
    let mut request =
        Request::get(at.target()).header(HOST, &host).header(USER_AGENT, concat!("vfield/", env!("CARGO_PKG_VERSION")));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::default());
    let request = request.map_err(|error| ObjectError::lasting(format!("{host}: {error}")))?;
    let failed = |why: String| ObjectError::passing(format!("{host}: {why}"));
    let asking = async {
        let mut sender = connections.connect(&at.server).await?;
        let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, TEXT_MAX).collect().await.map_err(|error| failed(error.to_string()))?;
        Ok(Text { status: head.status, headers: head.headers, bytes: body.to_bytes() })
    };
    timeout(WITHIN, asking).await.map_err(|_| failed(format!("no answer within {} s", WITHIN.as_secs())))?
}
