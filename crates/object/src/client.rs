//! Requests for ranges: one at a time goes over a connection, its answer is judged and read.
//!
//! Invariant: an answer is read to at most the asked length, and every wait in it is bounded. A
//! redirect is followed and remembered until its target refuses. A signed request is never
//! redirected: the signature is for one host. Objects call it.

use crate::address::Address;
use crate::answer::{self, Asked, Part};
use crate::connection::{Connections, Sender, speak};
use crate::deadline::within;
use crate::proxies::Proxies;
use crate::redirect::{self, REDIRECTS_MAX};
use crate::signing::{Signed, Signer};
use crate::tokens::Tokens;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION, RANGE, WWW_AUTHENTICATE};
use hyper::{Method, Response};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;

/// Time until the head of an answer. A store that has to fetch an object from elsewhere takes
/// seconds.
pub const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Time within which some byte of a body has to come. After it, another connection is better.
const SOME_WITHIN: Duration = Duration::from_secs(5);
/// Time for a whole body, besides that at [`RATE_MIN`].
const BODY_WITHIN: Duration = Duration::from_secs(20);
/// Lowest rate in bytes per second: a body that trickles holds a place among the requests.
pub const RATE_MIN: u64 = 128 << 10;
/// Most bytes that are read of the body of a refusal.
const REFUSAL_MAX: usize = 4 << 10;

/// Sends requests for one object.
pub struct Client {
    address: Address,
    access: Access,
    connections: Arc<Connections>,
    /// Where redirects led last.
    target: Mutex<Option<Address>>,
}

/// What makes a request one of somebody who may read.
#[derive(Debug, Clone)]
pub enum Access {
    Everybody,
    /// Requests are signed.
    Bucket(Signer),
    /// Requests have a token of the registry, but for those at other servers.
    Registry(Arc<Tokens>),
}

/// The result of [`read_over`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// The asked bytes, as many as were asked for.
    Bytes(Bytes),
    /// The address that would be asked next, without its query.
    Redirect(String),
}

/// The result of one request.
enum Exchange {
    Part(Part, Bytes),
    Redirect(String),
}

impl Client {
    /// A client for the object at this address.
    pub fn new(address: Address, access: Access, connections: Arc<Connections>) -> Self {
        Self { address, access, connections, target: Mutex::default() }
    }

    /// Connections that trust as `tls` does, through the proxies of the environment.
    pub fn connections(tls: Result<TlsConnector, String>) -> Arc<Connections> {
        Arc::new(Connections::new(tls, Proxies::of_environment()))
    }

    /// Reads a range. One attempt.
    pub async fn read(&self, asked: Asked) -> Result<(Part, Bytes), ObjectError> {
        let remembered = self.target().clone();
        if let Some(target) = remembered {
            match self.chain(target, asked).await {
                // A signed target is good for minutes; the object's own address for longer.
                Err(ObjectError::Failed { lasting: true, .. }) => *self.target() = None,
                answered => return answered,
            }
        }
        self.chain(self.address.clone(), asked).await
    }

    /// Follows redirects from an address on.
    async fn chain(&self, mut at: Address, asked: Asked) -> Result<(Part, Bytes), ObjectError> {
        for _ in 0..=REDIRECTS_MAX {
            match self.exchange(&at, asked).await? {
                Exchange::Part(part, bytes) => {
                    if at != self.address {
                        *self.target() = Some(at);
                    }
                    return Ok((part, bytes));
                }
                Exchange::Redirect(_) if matches!(self.access, Access::Bucket(_)) => {
                    let host = at.server.authority();
                    return Err(ObjectError::lasting(format!("{host} redirects: is the bucket in another region?")));
                }
                Exchange::Redirect(location) => {
                    at = redirect::follow(&at, &location).map_err(ObjectError::lasting)?;
                }
            }
        }
        Err(ObjectError::lasting(format!("{} redirects more than {REDIRECTS_MAX} times", self.address.server.host)))
    }

    /// One request and its answer.
    async fn exchange(&self, at: &Address, asked: Asked) -> Result<Exchange, ObjectError> {
        let used = self.token(at).await;
        let (mut sender, mut response) = self.send(at, asked, used.as_deref()).await?;
        if let (Access::Registry(tokens), 401, true) = (&self.access, response.status().as_u16(), self.is_own(at)) {
            let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            tokens.renew(&self.connections, at, used.as_deref(), challenge).await?;
            (sender, response) = self.send(at, asked, self.token(at).await.as_deref()).await?;
        }
        let taken = take(&at.server.authority(), asked, response).await?;
        if matches!(taken, Exchange::Part(..)) && sender.ready().await.is_ok() {
            self.connections.give_back(&at.server, sender);
        }
        Ok(taken)
    }

    /// Sends a request on an idle connection, or on a new one; returns when the head has come.
    async fn send(
        &self,
        at: &Address,
        asked: Asked,
        token: Option<&str>,
    ) -> Result<(Sender, Response<Incoming>), ObjectError> {
        if let Some(mut sender) = self.connections.idle(&at.server) {
            // The server may have closed it at this moment.
            if let Ok(response) = self.ask(&mut sender, at, asked, token).await {
                return Ok((sender, response));
            }
        }
        let mut sender = self.connections.connect(&at.server).await?;
        let response = self.ask(&mut sender, at, asked, token).await?;
        Ok((sender, response))
    }

    async fn ask(
        &self,
        sender: &mut Sender,
        at: &Address,
        asked: Asked,
        token: Option<&str>,
    ) -> Result<Response<Incoming>, ObjectError> {
        let host = at.server.authority();
        let range = format!("bytes={}-{}", asked.extent().start(), asked.extent().end() - 1);
        let request = self.connections.request(Method::GET, at);
        let mut request = request.header(ACCEPT_ENCODING, "identity").header(RANGE, &range);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Access::Bucket(signer) = &self.access {
            let (query, range) = (at.query.as_deref().unwrap_or_default(), Some(range.as_str()));
            let signed = Signed { method: "GET", host: &host, path: &at.path, query, range, body: b"" };
            for (name, value) in signer.headers(signed, SystemTime::now()).await? {
                request = request.header(name, value);
            }
        }
        let request = request.body(Full::default());
        let request = request.map_err(|error| ObjectError::lasting(format!("{host}: {error}")))?;
        match within(HEAD_WITHIN, sender.send_request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(ObjectError::passing(format!("{host}: {}", reason(&error)))),
            Err(_) => Err(ObjectError::passing(format!("{host}: no answer within {} s", HEAD_WITHIN.as_secs()))),
        }
    }

    /// True for the server itself: those that it redirects to must not see its token.
    fn is_own(&self, at: &Address) -> bool {
        at.server == self.address.server
    }

    /// The header for a request to this address, if it needs one.
    async fn token(&self, at: &Address) -> Option<String> {
        match &self.access {
            Access::Registry(tokens) if self.is_own(at) => tokens.header().await,
            Access::Registry(_) | Access::Bucket(_) | Access::Everybody => None,
        }
    }

    fn target(&self) -> std::sync::MutexGuard<'_, Option<Address>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One attempt to read a range of the object at a URL, over a stream that is connected already. It
/// is for streams to which no name leads. It has no credentials, and follows no redirect.
///
/// # Errors
/// As any read; also if the text is no URL.
pub async fn read_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &str,
    asked: Extent,
) -> Result<Over, ObjectError> {
    let asked = Asked::All(asked);
    let at = Address::parse(url).map_err(ObjectError::lasting)?;
    let none = Connections::new(Err("this stream has its own end".to_owned()), Proxies::none());
    let client = Client::new(at.clone(), Access::Everybody, Arc::new(none));
    let mut sender = speak(stream).await.map_err(|error| ObjectError::passing(error.to_string()))?;
    let response = client.ask(&mut sender, &at, asked, None).await?;
    match take(&at.server.authority(), asked, response).await? {
        Exchange::Part(_, bytes) => Ok(Over::Bytes(bytes)),
        Exchange::Redirect(location) => {
            let to = redirect::follow(&at, &location).map_err(ObjectError::lasting)?;
            Ok(Over::Redirect(to.to_string()))
        }
    }
}

/// Judges the answer of `host`, and reads the asked bytes in it.
async fn take(host: &str, asked: Asked, response: Response<Incoming>) -> Result<Exchange, ObjectError> {
    let status = response.status();
    if status.is_redirection() && status.as_u16() != 304 {
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let location = location.ok_or_else(|| ObjectError::lasting(format!("{host} redirects to nowhere")))?;
        return Ok(Exchange::Redirect(location.to_owned()));
    }
    let part = match answer::judge(host, asked, status, response.headers()) {
        Ok(part) => part,
        Err(error) => return Err(explained(error, response, SOME_WITHIN).await),
    };
    let length = part.bytes;
    let whole = BODY_WITHIN + Duration::from_secs(length / RATE_MIN);
    let bytes = within(whole, body(response.into_body(), length)).await;
    let bytes = bytes.map_err(|_| format!("less than {RATE_MIN} bytes a second")).and_then(|read| read);
    let bytes = bytes.map_err(|why| ObjectError::passing(format!("{host}: {why}")))?;
    Ok(Exchange::Part(part, bytes))
}

/// Reads a body of exactly `length` bytes.
async fn body(mut body: Incoming, length: u64) -> Result<Bytes, String> {
    let mut bytes = BytesMut::with_capacity(length as usize);
    loop {
        let frame = within(SOME_WITHIN, body.frame()).await;
        let frame = frame.map_err(|_| format!("no byte within {} s", SOME_WITHIN.as_secs()))?;
        match frame {
            None if bytes.len() as u64 == length => return Ok(bytes.freeze()),
            None => return Err(format!("the answer was cut after {} of {length} bytes", bytes.len())),
            Some(Err(error)) => {
                return Err(format!("the answer was cut after {} of {length} bytes: {}", bytes.len(), reason(&error)));
            }
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                if (bytes.len() + data.len()) as u64 > length {
                    return Err("the answer is longer than it says".to_owned());
                }
                bytes.extend_from_slice(&data);
            }
        }
    }
}

/// The error with the code that an object store puts into the body of a refusal, if that comes
/// `within` some time.
async fn explained(error: ObjectError, response: Response<Incoming>, within: Duration) -> ObjectError {
    let ObjectError::Failed { why, after, lasting } = error else { return error };
    let (mut body, mut text) = (response.into_body(), Vec::new());
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            text.extend_from_slice(&frame.into_data().unwrap_or_default());
            if text.len() >= REFUSAL_MAX {
                break;
            }
        }
    };
    // The part that has come by then counts.
    let _ = timeout(within, reading).await;
    let why = code(&String::from_utf8_lossy(&text)).map_or_else(|| why.clone(), |code| format!("{why} ({code})"));
    ObjectError::Failed { why, after, lasting }
}

/// The content of the element `Code` of an error of S3.
pub fn code(text: &str) -> Option<&str> {
    let (code, _) = text.split_once("<Code>")?.1.split_once("</Code>")?;
    let is_word = !code.is_empty() && code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then_some(code)
}

/// The innermost cause: hyper's own words are about its parts.
pub fn reason(error: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use hyper::header::HOST;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A server that drips must not hold a reader that waits for its refusal.
    #[tokio::test]
    async fn a_refusal_that_drips_is_not_read_to_its_end() {
        let (near, mut far) = tokio::io::duplex(64);
        let drips = tokio::spawn(async move {
            let (mut seen, mut dripped) = (Vec::new(), 0);
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(far.read_u8().await.unwrap());
            }
            let head = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {REFUSAL_MAX}\r\n\r\n");
            far.write_all(head.as_bytes()).await.unwrap();
            let mut drops = tokio::time::interval(Duration::from_millis(1));
            while dripped < REFUSAL_MAX && far.write_all(b"x").await.is_ok() {
                drops.tick().await;
                dripped += 1;
            }
            dripped
        });
        let mut sender = speak(near).await.unwrap();
        let request = Request::get("/x").header(HOST, "h").body(Full::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let error = ObjectError::lasting("403 Forbidden from h");
        assert_eq!(explained(error.clone(), response, Duration::from_millis(20)).await, error);
        drop(sender);
        assert!(drips.await.unwrap() < REFUSAL_MAX);
    }

    #[test]
    fn the_code_of_a_refusal_is_one_word() {
        let refusal =
            |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>x</Message></Error>");
        assert_eq!(code(&refusal("AccessDenied")), Some("AccessDenied"));
        for other in ["", "a b", "<b>", "\u{1b}[2J"] {
            assert_eq!(code(&refusal(other)), None, "{other:?}");
        }
        assert_eq!(code("<Code>"), None);
    }
}
