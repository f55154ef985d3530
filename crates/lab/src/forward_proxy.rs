//! A proxy as companies have it: the only way to a store, for those with a name and password.
//!
//! It knows one store, whatever its clients call it. It opens tunnels to it, passes plain requests
//! on, and counts both. One thread for each connection, and one more for a tunnel's way back.

use crate::LabError;
use crate::web::{self, Headers};
use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `Basic` and the base64 of [`ForwardProxy::LOGIN`].
const AUTHORIZATION: &str = "Basic cm9vbTpzZWNyZXQ=";

/// A running proxy.
#[derive(Debug)]
pub struct ForwardProxy {
    addr: SocketAddr,
    ends: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: SocketAddr,
    tunnels: AtomicU64,
    requests: AtomicU64,
}

impl ForwardProxy {
    /// The name and password that it wants, as they stand in a URL.
    pub const LOGIN: &str = "room:secret";

    /// Listens at a free port of `ip`, before the store at an address.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start(ip: IpAddr, store: SocketAddr) -> Result<Self, LabError> {
        let shared = Arc::new(Shared { store, tunnels: AtomicU64::new(0), requests: AtomicU64::new(0) });
        let of_connections = Arc::clone(&shared);
        let (addr, ends) = web::accept(ip, move |stream| of_connections.serve(stream))?;
        Ok(Self { addr, ends, shared })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Tunnels that it opened so far.
    pub fn tunnels(&self) -> u64 {
        self.shared.tunnels.load(Ordering::SeqCst)
    }

    /// Plain requests that it passed on so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        web::end(self.addr, &self.ends);
    }
}

impl Shared {
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mut to_client = client.try_clone()?;
        let mut from_client = BufReader::new(client);
        while let Some((line, headers)) = web::head(&mut from_client)? {
            let says = |name: &str| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
            if says("proxy-authorization") != Some(AUTHORIZATION) {
                to_client.write_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")?;
            } else if line.starts_with("CONNECT ") {
                return self.tunnel(from_client, to_client);
            } else {
                self.pass_on(&line, &headers, &mut to_client)?;
            }
        }
        Ok(())
    }

    fn tunnel(&self, mut from_client: BufReader<TcpStream>, mut to_client: TcpStream) -> io::Result<()> {
        self.tunnels.fetch_add(1, Ordering::SeqCst);
        let mut store = TcpStream::connect(self.store)?;
        to_client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        let mut answers = store.try_clone()?;
        let way_back = std::thread::spawn(move || {
            let passed = io::copy(&mut answers, &mut to_client);
            // An end of one way is the end of both.
            let _ = to_client.shutdown(Shutdown::Both);
            passed
        });
        let passed = io::copy(&mut from_client, &mut store);
        let _ = store.shutdown(Shutdown::Both);
        drop(way_back.join());
        passed.map(drop)
    }

    fn pass_on(&self, line: &str, headers: &Headers, to_client: &mut TcpStream) -> io::Result<()> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let mut store = TcpStream::connect(self.store)?;
        store.write_all(passed_on(line, headers)?.as_bytes())?;
        let mut answer = BufReader::new(store);
        let Some((status, headers)) = web::head(&mut answer)? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let mut head = format!("{status}\r\n");
        for (name, value) in &headers {
            head += &format!("{name}: {value}\r\n");
        }
        to_client.write_all(format!("{head}\r\n").as_bytes())?;
        io::copy(&mut answer.take(web::length(&headers)), to_client).map(drop)
    }
}

/// A request that names its store, as the store itself wants it.
fn passed_on(line: &str, headers: &Headers) -> io::Result<String> {
    let no_proxys = || io::Error::new(io::ErrorKind::InvalidData, format!("no request for a proxy: {line}"));
    let (method, rest) = line.split_once(" http://").ok_or_else(no_proxys)?;
    let (_, target) = rest.split_once('/').ok_or_else(no_proxys)?;
    let mut request = format!("{method} /{target}\r\n");
    for (name, value) in headers.iter().filter(|(name, _)| name != "proxy-authorization") {
        request += &format!("{name}: {value}\r\n");
    }
    Ok(request + "\r\n")
}
