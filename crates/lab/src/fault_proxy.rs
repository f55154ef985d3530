//! A proxy in front of an object store that makes the mistakes of stores and networks.
//!
//! It passes requests on and changes the answers as the [`Fault`] in force says, and counts what it
//! passed. One thread for each connection of a client, and one connection to the store for each
//! request.

use crate::LabError;
use crate::web;
use std::io::{self, BufReader, Read, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The change that the proxy makes to each answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It passes as it is.
    None,
    /// The connection ends without an answer.
    Closed,
    /// This status instead, with a pause in seconds to ask for if it is not 0.
    Status(u16, u32),
    /// A page for people instead, as of a proxy that wants a login.
    Page,
    /// The connection ends in the middle of the body.
    Cut,
    /// The head comes, and the body after this time.
    Stalled(Duration),
    /// Another `ETag`, and the same bytes.
    OtherETag,
    /// One byte of each body is another.
    WrongByte,
    /// `Range` is not heeded.
    NoRanges,
    /// At most so many bytes a second.
    Slow(u32),
}

/// Counts of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Requests, answered or not.
    pub requests: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
}

#[derive(Debug)]
struct Shared {
    store: SocketAddr,
    fault: Mutex<Fault>,
    requests: AtomicU64,
    body_bytes: AtomicU64,
}

/// A running proxy; it ends with its value, but for connections that are open then.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    ends: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// Listens at a free port of `ip`, in front of the store at an address.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start(ip: IpAddr, store: SocketAddr) -> Result<Self, LabError> {
        let shared = Shared {
            store,
            fault: Mutex::new(Fault::None),
            requests: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        let of_connections = Arc::clone(&shared);
        let (addr, ends) = web::accept(ip, move |stream| of_connections.serve(stream))?;
        Ok(Self { addr, ends, shared })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Does this to all answers from now on.
    pub fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The counts so far.
    pub fn passed(&self) -> Passed {
        let [requests, body_bytes] =
            [&self.shared.requests, &self.shared.body_bytes].map(|count| count.load(Ordering::SeqCst));
        Passed { requests, body_bytes }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        web::end(self.addr, &self.ends);
    }
}

impl Shared {
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mut to_client = client.try_clone()?;
        let mut from_client = BufReader::new(client);
        while let Some((line, headers)) = web::head(&mut from_client)? {
            self.requests.fetch_add(1, Ordering::SeqCst);
            let fault = *self.fault.lock().unwrap_or_else(PoisonError::into_inner);
            match fault {
                Fault::Closed => return Ok(()),
                Fault::Status(status, pause) => {
                    let pause = if pause > 0 { format!("Retry-After: {pause}\r\n") } else { String::new() };
                    write!(to_client, "HTTP/1.1 {status} No\r\n{pause}Content-Length: 0\r\n\r\n")?;
                }
                Fault::Page => {
                    let page = "<html><body>Please log in</body></html>";
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: ";
                    write!(to_client, "{head}{}\r\n\r\n{page}", page.len())?;
                }
                fault => self.pass(&mut to_client, &line, &headers, fault)?,
            }
        }
        Ok(())
    }

    fn pass(
        &self,
        to_client: &mut TcpStream,
        line: &str,
        headers: &[(String, String)],
        fault: Fault,
    ) -> io::Result<()> {
        let mut store = TcpStream::connect(self.store)?;
        let mut request = format!("{line}\r\nConnection: close\r\n");
        let heeded = |name: &str| name != "connection" && (fault != Fault::NoRanges || name != "range");
        for (name, value) in headers.iter().filter(|(name, _)| heeded(name)) {
            request += &format!("{name}: {value}\r\n");
        }
        store.write_all(format!("{request}\r\n").as_bytes())?;
        let mut answer = BufReader::new(store);
        let Some((status, headers)) = web::head(&mut answer)? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let mut head = format!("{status}\r\n");
        for (name, value) in headers.iter().filter(|(name, _)| name != "connection") {
            let value = if name == "etag" && fault == Fault::OtherETag { "\"another\"" } else { value };
            head += &format!("{name}: {value}\r\n");
        }
        to_client.write_all(format!("{head}\r\n").as_bytes())?;
        let length = web::length(&headers) as usize;
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        if let Fault::Stalled(time) = fault {
            std::thread::sleep(time);
        }
        if let (Fault::WrongByte, Some(byte)) = (fault, body.get_mut(length / 2)) {
            *byte ^= 1;
        }
        let part = if fault == Fault::Cut { length / 2 } else { length };
        self.send(to_client, &body[..part], fault)?;
        if fault == Fault::Cut { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn send(&self, to_client: &mut TcpStream, body: &[u8], fault: Fault) -> io::Result<()> {
        let (part, pause) = match fault {
            Fault::Slow(rate) => (rate.div_ceil(20).max(1) as usize, Duration::from_millis(50)),
            _ => (64 << 10, Duration::ZERO),
        };
        for part in body.chunks(part) {
            to_client.write_all(part)?;
            self.body_bytes.fetch_add(part.len() as u64, Ordering::SeqCst);
            std::thread::sleep(pause);
        }
        Ok(())
    }
}
