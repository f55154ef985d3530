//! Connections to servers: names resolved, TCP, TLS, HTTP/1.1, through a proxy if there is one.
//!
//! Owns the idle connections, at most [`IDLE_MAX`], and the last known addresses of each server.
//! Invariant: a connection is idle only if its last answer was read to the end. The client takes
//! connections and gives them back.

use crate::address::{Address, Server};
use crate::deadline::within;
use crate::proxies::{Proxies, Proxy, on_the_way};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use vfield_block::object::ObjectError;

/// Most idle connections; a node has fewer requests under way.
const IDLE_MAX: usize = 32;
/// Time for each step: the name, the connection, TLS. Three round trips around the world take one
/// second.
const STEP_MAX: Duration = Duration::from_secs(4);
/// Most addresses of a server that one attempt tries.
const ADDRESSES_MAX: usize = 4;

/// How requests name this program.
pub const USER: &str = concat!("vfield/", env!("CARGO_PKG_VERSION"));

/// A stream of bytes both ways, with TLS or without.
pub type Stream = Box<dyn Duplex>;

/// A stream that is being opened.
type Opening<'a> = Pin<Box<dyn Future<Output = Result<Stream, ObjectError>> + Send + 'a>>;

/// Bytes to read and to write.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection that a request can be sent on.
pub type Sender = SendRequest<Full<Bytes>>;

/// Makes connections and keeps those that are idle.
pub struct Connections {
    tls: Result<TlsConnector, String>,
    proxies: Proxies,
    idle: Mutex<Vec<(Server, Sender)>>,
    known: Mutex<BTreeMap<Server, Vec<SocketAddr>>>,
}

impl Connections {
    /// None yet. Without `tls`, for the reason in it, only plain ones can be made.
    pub fn new(tls: Result<TlsConnector, String>, proxies: Proxies) -> Self {
        Self { tls, proxies, idle: Mutex::default(), known: Mutex::default() }
    }

    /// A request for the bytes at an address, for a connection to its server.
    pub fn request(&self, method: Method, at: &Address) -> Builder {
        let request = Request::builder().method(method).header(HOST, at.server.authority()).header(USER_AGENT, USER);
        // Through a tunnel, the server itself is spoken to.
        let proxy = if at.server.tls { None } else { self.proxies.to(&at.server).ok().flatten() };
        let Some(proxy) = proxy else { return request.uri(at.target()) };
        let request = request.uri(format!("{}{}", at.server.url().trim_end_matches('/'), at.target()));
        match proxy.authorization {
            Some(authorization) => request.header(PROXY_AUTHORIZATION, authorization),
            None => request,
        }
    }

    /// An idle connection to the server, if there is one.
    pub fn idle(&self, server: &Server) -> Option<Sender> {
        let mut idle = lock(&self.idle);
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().rposition(|(to, sender)| to == server && sender.is_ready())?;
        Some(idle.remove(at).1)
    }

    /// Takes back a connection whose answer was read to the end.
    pub fn give_back(&self, server: &Server, sender: Sender) {
        let mut idle = lock(&self.idle);
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push((server.clone(), sender));
    }

    /// A new connection.
    pub async fn connect(&self, server: &Server) -> Result<Sender, ObjectError> {
        let host = server.authority();
        let proxy = self.proxies.to(server).map_err(|why| ObjectError::lasting(format!("{host}: {why}")))?;
        let opened = self.open(server, proxy.as_ref()).await;
        let stream = if proxy.is_some() { opened.map_err(on_the_way)? } else { opened? };
        speak(stream).await.map_err(|error| ObjectError::passing(format!("{host}: {error}")))
    }

    /// A stream to a server. Its future is boxed: those of callers hold it many levels deep.
    fn open<'a>(&'a self, server: &'a Server, proxy: Option<&'a Proxy>) -> Opening<'a> {
        Box::pin(async move {
            let nearest = proxy.map_or(server, |proxy| &proxy.server);
            let mut stream: Stream = Box::new(self.dial(nearest).await?);
            if let Some(proxy) = proxy {
                if proxy.server.tls {
                    stream = self.secure(&proxy.server, stream).await?;
                }
                if server.tls {
                    stream = proxy.tunnel(stream, server).await?;
                }
            }
            if server.tls { self.secure(server, stream).await } else { Ok(stream) }
        })
    }

    /// TLS with a server over a stream to it.
    async fn secure(&self, server: &Server, stream: Stream) -> Result<Stream, ObjectError> {
        let failed = |why: &dyn std::fmt::Display| ObjectError::passing(format!("{}: {why}", server.authority()));
        let tls = self.tls.as_ref().map_err(|why| ObjectError::lasting(why.clone()))?;
        let name = ServerName::try_from(server.host.clone());
        let name = name.map_err(|_| ObjectError::lasting(format!("{}: no name of a server", server.host)))?;
        let secured = within(STEP_MAX, tls.connect(name, stream)).await;
        let secured = secured.map_err(|_| failed(&"no answer to the TLS handshake"))?;
        let secured = secured.map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(why)) => {
                ObjectError::lasting(format!("{}: its certificate is not trusted: {why}", server.authority()))
            }
            _ => failed(&format!("TLS: {error}")),
        })?;
        Ok(Box::new(secured))
    }

    /// A stream to the first address that answers.
    async fn dial(&self, server: &Server) -> Result<TcpStream, ObjectError> {
        let mut why = "it has no address".to_owned();
        for addr in self.addresses(server).await?.into_iter().take(ADDRESSES_MAX) {
            match within(STEP_MAX, TcpStream::connect(addr)).await {
                Ok(Ok(stream)) => {
                    // Requests are one packet each.
                    stream.set_nodelay(true).map_err(|error| ObjectError::passing(error.to_string()))?;
                    return Ok(stream);
                }
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = "no answer to the connection attempt".to_owned(),
            }
        }
        Err(ObjectError::passing(format!("{}: {why}", server.authority())))
    }

    /// The addresses of a server; those known last if its name cannot be resolved now.
    async fn addresses(&self, server: &Server) -> Result<Vec<SocketAddr>, ObjectError> {
        let found = within(STEP_MAX, lookup_host((server.host.as_str(), server.port))).await;
        let why = match found {
            Ok(Ok(found)) => {
                let found: Vec<SocketAddr> = found.collect();
                lock(&self.known).insert(server.clone(), found.clone());
                return Ok(found);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer from the name server".to_owned(),
        };
        let known = lock(&self.known).get(server).cloned();
        known.ok_or_else(|| ObjectError::passing(format!("{}: {why}", server.host)))
    }
}

/// Begins HTTP on a stream; the connection ends when its sender is dropped.
pub async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Sender> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to an object store ended");
        }
    });
    Ok(sender)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
