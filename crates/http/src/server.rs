//! The server: accepts clients, and asks its caller for each answer.
//!
//! Owns the bounds of one request: its time, its bytes and its method. A client that exceeds one is
//! cut off or refused; the answer's function sees GET and HEAD only. A body is never read.

use super::answer::{Answer, text};
use super::visitors::{Place, TAKES_NOTHING, Visitors};
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// An answer to come.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;
/// A site: called with each GET and HEAD.
pub type Site = dyn Fn(Request<Incoming>) -> Answering + Send + Sync;

/// A client that has not sent its request by then is cut off; so is a connection without one.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a request's head: a browser sends one or two thousand.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// After an error of the system, most likely for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Answers clients for as long as it is polled.
pub async fn serve(listener: TcpListener, visitors: Arc<Visitors>, site: Arc<Site>) {
    let mut fails = false;
    loop {
        match listener.accept().await {
            // While it waits for room, those behind it wait in the kernel.
            Ok((stream, addr)) => {
                fails = false;
                match visitors.admit(addr.ip()).await {
                    Some(place) => drop(tokio::spawn(entertain(stream, place, Arc::clone(&site)))),
                    None => tracing::debug!(%addr, "turned away: its address has too many connections"),
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut fails, true) {
                    tracing::warn!(%error, "accepting a client failed, trying again");
                }
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Answers one client until it goes, or has to.
async fn entertain(stream: TcpStream, place: Place, site: Arc<Site>) {
    let service = service_fn(|request: Request<Incoming>| {
        let allowed = [Method::GET, Method::HEAD].contains(request.method());
        let answering = allowed.then(|| site(request));
        async {
            Ok::<_, Infallible>(match answering {
                Some(answering) => answering.await,
                None => refusal(),
            })
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_PATIENCE).max_buf_size(REQUEST_BYTES_MAX);
    let stream = TokioIo::new(place.watch(stream, TAKES_NOTHING));
    let served = tokio::select! {
        served = server.serve_connection(stream, service) => served,
        () = place.shown_out() => return,
    };
    if let Err(error) = served {
        tracing::debug!(%error, "http connection");
    }
}

/// Nothing is changed over HTTP.
fn refusal() -> Answer {
    let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD");
    refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// The answer to these bytes, to the end of the connection.
    async fn asked(bytes: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let site = |request: Request<Incoming>| -> Answering {
            let path = request.uri().path().to_owned();
            Box::pin(async move { text(StatusCode::OK, &path) })
        };
        let serving = tokio::spawn(serve(listener, Visitors::new(4, 4), Arc::new(site)));
        // It may be cut off before it has said all.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        serving.abort();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn only_what_changes_nothing_is_answered() {
        let end = "HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        assert!(asked(format!("GET /a {end}").as_bytes()).await.ends_with("\r\n\r\n/a\n"));
        let head = asked(format!("HEAD /a {end}").as_bytes()).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "LEAVE"] {
            let answer = asked(format!("{method} /a {end}").as_bytes()).await;
            assert!(!answer.contains("HTTP/1.1 2"), "{method}: {answer}");
        }
        let post = asked(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n\r\nx").await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("allow: GET, HEAD\r\n"), "{post}");
    }

    #[tokio::test]
    async fn a_request_without_end_is_none() {
        let long = [b"GET / HTTP/1.1\r\nx: ".to_vec(), vec![b'x'; 2 * REQUEST_BYTES_MAX]].concat();
        assert!(!asked(&long).await.contains(" 200 "));
        assert!(asked(b"\x16\x03\x01\x02\x00\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    }
}
