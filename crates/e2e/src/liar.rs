//! Peers that do not answer as they should: an honest node whose answers are twisted on the way,
//! a node that answers with fixed bytes, and a node whose bytes are recorded.
//!
//! Their threads end with the test's process; their ports belong to the test's lab.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Magic, latest version, length of the rest, first version.
const GREETING_HEAD: usize = 16;
/// Length of the proof behind a greeting.
const PROOF: usize = 64;
/// Kind, priority, zero, refusal, length (4), request (8).
const FRAME_HEADER: usize = 16;
/// Kind of the frame that carries a chunk, of one with a slice, of a refusal, and of the word that
/// answers are on their way.
const DATA: u8 = 2;
const SLICE: u8 = 19;
const REFUSE: u8 = 3;
const PATIENCE: u8 = 8;
/// Kind of the frame that carries a header proof.
const HEADER_PROOF: u8 = 14;
/// A refusal's reason: it is not held.
const NOT_HELD: u8 = 1;
/// Bytes of the answers of a connection that carries no chunks: proofs and snapshots are tens of
/// KiB in a small field.
const QUESTIONS_MAX: usize = 512 << 10;
/// How often a byte trickles, or a promise is made.
const TRICKLE: Duration = Duration::from_millis(20);

/// The change of every chunk that a node sends, or of every header proof.
#[derive(Debug, Clone)]
pub enum Twist {
    /// One bit is turned over.
    Flip,
    /// It is sent in the place of the next one of its length.
    Delay,
    /// Bytes of another image take its place.
    Replace(Arc<Vec<u8>>),
    /// Its first half is sent as a chunk that is compressed, in a frame of this kind.
    Compress(u8),
    /// It is refused.
    Deny,
    /// One byte of it comes now and then.
    Trickle,
    /// It is promised, again and again.
    Promise,
    /// Its header says that it has so many bytes.
    Claim(u32),
    /// Chunks are left as they are; one bit of each header proof is turned over.
    HeaderProof,
}

/// Stands at `front` for the node at `back`: passes everything on, but twists every chunk that the
/// node sends.
///
/// # Errors
/// If `front` cannot be listened on.
pub fn twist(front: SocketAddr, back: SocketAddr, twist: Twist) -> io::Result<()> {
    relay(front, back, |_| ())?;
    serve(front, move |client| {
        let server = TcpStream::connect(back)?;
        let (mut client_in, mut server_out) = (client.try_clone()?, server.try_clone()?);
        std::thread::spawn(move || {
            let _ = io::copy(&mut client_in, &mut server_out);
            let _ = server_out.shutdown(std::net::Shutdown::Write);
        });
        twist_stream(server, client, &twist)
    })
}

/// Datagrams overheard on the way to and from a node.
#[derive(Debug, Clone, Default)]
pub struct Overheard {
    streams: Arc<Mutex<Vec<u8>>>,
    datagrams: Arc<Mutex<Vec<Vec<u8>>>>,
    ended: Arc<AtomicUsize>,
}

impl Overheard {
    /// Bytes of all connections, in both directions, as they came.
    pub fn streams(&self) -> Vec<u8> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections have ended that carried chunks; those with a question or two end when
    /// these are answered.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    /// Datagrams to the node.
    pub fn datagrams(&self) -> Vec<Vec<u8>> {
        self.datagrams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Stands at `front` for the node at `back`: passes everything on, and writes it down.
///
/// # Errors
/// If `front` cannot be listened on.
pub fn listen_in(front: SocketAddr, back: SocketAddr) -> io::Result<Overheard> {
    let overheard = Overheard::default();
    let datagrams = Arc::clone(&overheard.datagrams);
    relay(front, back, move |datagram| {
        datagrams.lock().unwrap_or_else(PoisonError::into_inner).push(datagram.to_vec());
    })?;
    let (streams, ended) = (Arc::clone(&overheard.streams), Arc::clone(&overheard.ended));
    serve(front, move |client| {
        let server = TcpStream::connect(back)?;
        let (to_server, to_client) = ((client.try_clone()?, server.try_clone()?), (server, client));
        let there = Arc::clone(&streams);
        std::thread::spawn(move || write_down(to_server.0, to_server.1, &there));
        if write_down(to_client.0, to_client.1, &streams) > QUESTIONS_MAX {
            ended.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(overheard)
}

/// Passes datagrams at `front` on to `back`, and each answer to whoever asked. Lost ones are
/// repeated by those who sent them.
fn relay(front: SocketAddr, back: SocketAddr, hear: impl Fn(&[u8]) + Send + 'static) -> io::Result<()> {
    let gossip = Arc::new(UdpSocket::bind(front)?);
    std::thread::spawn(move || {
        let (mut packet, mut askers) = ([0; 1 << 16], BTreeMap::new());
        while let Ok((length, asker)) = gossip.recv_from(&mut packet) {
            hear(&packet[..length]);
            let Ok(way) = way_back(&mut askers, asker, &gossip, back) else { continue };
            let _ = way.send_to(&packet[..length], back);
        }
    });
    Ok(())
}

/// The socket for one asker, whose answers go back to it.
fn way_back(
    askers: &mut BTreeMap<SocketAddr, Arc<UdpSocket>>,
    asker: SocketAddr,
    front: &Arc<UdpSocket>,
    back: SocketAddr,
) -> io::Result<Arc<UdpSocket>> {
    if let Some(way) = askers.get(&asker) {
        return Ok(Arc::clone(way));
    }
    let way = Arc::new(UdpSocket::bind((front.local_addr()?.ip(), 0))?);
    let (answers, front) = (Arc::clone(&way), Arc::clone(front));
    std::thread::spawn(move || {
        let mut packet = [0; 1 << 16];
        while let Ok((length, from)) = answers.recv_from(&mut packet) {
            if from == back {
                let _ = front.send_to(&packet[..length], asker);
            }
        }
    });
    askers.insert(asker, Arc::clone(&way));
    Ok(way)
}

/// Passes everything on and writes it down; how much it was.
fn write_down(mut from: TcpStream, mut to: TcpStream, into: &Mutex<Vec<u8>>) -> usize {
    let (mut buffer, mut total) = ([0; 1 << 16], 0);
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            // The other side may have gone before.
            let _ = to.shutdown(std::net::Shutdown::Write);
            break;
        }
        into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
        total += length;
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    total
}

/// Answers every connection to `addr` with the same bytes and waits for its end.
///
/// # Errors
/// If `addr` cannot be listened on.
pub fn answer(addr: SocketAddr, bytes: &'static [u8]) -> io::Result<()> {
    serve(addr, move |mut client| {
        client.write_all(bytes)?;
        io::copy(&mut client, &mut io::sink()).map(drop)
    })
}

/// Handles each connection in a thread of its own.
fn serve(addr: SocketAddr, handle: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let handle = handle.clone();
            // The other side hangs up when it has found out.
            std::thread::spawn(move || drop(handle(client)));
        }
    });
    Ok(())
}

/// Copies a node's answers, with each chunk twisted.
fn twist_stream(mut from: impl Read, mut to: impl Write, twist: &Twist) -> io::Result<()> {
    let length = |header: &[u8], at: usize| {
        let bytes: [u8; 4] = header[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let mut head = [0; GREETING_HEAD];
    from.read_exact(&mut head)?;
    to.write_all(&head)?;
    // What it says of itself, and the proof of it.
    let mut rest = vec![0; usize::from(u16::from_le_bytes([head[12], head[13]])) + PROOF];
    from.read_exact(&mut rest)?;
    to.write_all(&rest)?;
    let mut last = Vec::new();
    loop {
        let mut header = [0; FRAME_HEADER];
        from.read_exact(&mut header)?;
        let mut payload = vec![0; length(&header, 4)];
        from.read_exact(&mut payload)?;
        if matches!(header[0], DATA | SLICE) {
            match twist {
                Twist::Flip => {
                    if let Some(byte) = payload.last_mut() {
                        *byte ^= 1;
                    }
                }
                Twist::Delay => {
                    let next = std::mem::replace(&mut last, payload.clone());
                    if next.len() == payload.len() {
                        payload = next;
                    }
                }
                Twist::Replace(other) => payload = other[..payload.len()].to_vec(),
                Twist::Compress(kind) => {
                    payload.truncate(payload.len() / 2);
                    header[0] = *kind;
                    header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
                }
                Twist::Deny => {
                    (header[0], header[3]) = (REFUSE, NOT_HELD);
                    header[4..8].fill(0);
                    payload.clear();
                }
                Twist::Trickle => {
                    to.write_all(&header)?;
                    return trickle(to, &payload);
                }
                Twist::Promise => return promise(to),
                Twist::Claim(length) => header[4..8].copy_from_slice(&length.to_le_bytes()),
                Twist::HeaderProof => {}
            }
        }
        if let (HEADER_PROOF, Twist::HeaderProof, Some(byte)) = (header[0], twist, payload.last_mut()) {
            *byte ^= 1;
        }
        to.write_all(&header)?;
        to.write_all(&payload)?;
    }
}

/// One byte after the other, at leisure.
fn trickle(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        to.write_all(&[*byte])?;
        std::thread::sleep(TRICKLE);
    }
    Ok(())
}

/// Signs of life, and nothing else, for ever.
fn promise(mut to: impl Write) -> io::Result<()> {
    let mut header = [0; FRAME_HEADER];
    header[0] = PATIENCE;
    loop {
        to.write_all(&header)?;
        std::thread::sleep(TRICKLE);
    }
}
