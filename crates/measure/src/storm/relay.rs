//! A chain of relays: each host takes the image as a stream from the one before it, and hands every
//! byte on at once.
//!
//! No product, but the best that hosts can do for each other on these links: nothing is chosen or
//! asked for, one copy leaves the origin, every link is busy both ways. What a real system lacks of
//! it is its own doing. It delivers in order, to all at the same time, and ends with the first host
//! that fails.

use super::role::{Outcome, Word, await_end, await_go, seconds_since};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Bytes that are handed on at once: small against what lies in the links, large against a call.
const BLOCK_BYTES: usize = 64 << 10;

/// What a relay is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Where the bytes come from.
    pub source: Source,
    /// Where the next host connects; `None` on the last one.
    pub listen: Option<SocketAddr>,
}

/// Where a relay's bytes come from.
#[derive(Debug, Serialize, Deserialize)]
pub enum Source {
    /// The image itself.
    File(PathBuf),
    /// The host before this one.
    Peer {
        /// Where it listens.
        addr: SocketAddr,
        /// Length of the image.
        size_bytes: u64,
        /// BLAKE3 of it, in hexadecimal.
        hash: String,
    },
}

/// Runs the order and reports the outcome.
pub(super) fn play(order: &Order) -> io::Result<()> {
    let listener = order.listen.map(TcpListener::bind).transpose()?;
    let (addr, size_bytes, hash) = match &order.source {
        Source::File(file) => return serve(file, listener),
        Source::Peer { addr, size_bytes, hash } => (addr, *size_bytes, hash),
    };
    let (onward, blocks) = mpsc::channel();
    if let Some(listener) = listener {
        std::thread::spawn(move || pass_on(&listener, &blocks));
    }
    let start_ns = await_go()?;
    let mut outcome = Outcome::default();
    let taken = take(*addr, size_bytes, hash, &onward, &mut outcome);
    outcome.error = taken.err().map(|error| error.to_string());
    outcome.seconds = seconds_since(start_ns);
    drop(onward);
    Word::Done(outcome).say()?;
    await_end()
}

/// The first of the chain.
fn serve(file: &PathBuf, listener: Option<TcpListener>) -> io::Result<()> {
    let listener = listener.ok_or_else(|| io::Error::other("the origin of a chain has somebody to serve"))?;
    let mut file = File::open(file)?;
    Word::Ready.say()?;
    let (mut peer, _) = listener.accept()?;
    io::copy(&mut file, &mut peer)?;
    drop(peer);
    await_end()
}

/// Takes all of the image, and gives it on block by block.
fn take(
    addr: SocketAddr,
    size_bytes: u64,
    hash: &str,
    onward: &mpsc::Sender<Arc<[u8]>>,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let mut source = TcpStream::connect(addr)?;
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut hasher = blake3::Hasher::new();
    let mut last = Instant::now();
    let mut gap = Duration::ZERO;
    while outcome.bytes < size_bytes {
        let count = source.read(&mut buffer)?;
        gap = gap.max(last.elapsed());
        last = Instant::now();
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the relay before this one has ended"));
        }
        outcome.bytes += count as u64;
        // Nobody takes it on the last host, or after the next one has ended.
        let _ = onward.send(Arc::from(&buffer[..count]));
        hasher.update(&buffer[..count]);
    }
    outcome.longest_gap_s = gap.as_secs_f64();
    outcome.slowest_read_s = outcome.longest_gap_s;
    let right = *hasher.finalize().to_hex() == *hash;
    right.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the bytes are not the image's"))
}

/// Sends blocks to the next host as they come.
fn pass_on(listener: &TcpListener, blocks: &mpsc::Receiver<Arc<[u8]>>) {
    let sent = listener.accept().and_then(|(mut peer, _)| blocks.iter().try_for_each(|block| peer.write_all(&block)));
    if let Err(error) = sent {
        eprintln!("the next relay: {error}");
    }
}
