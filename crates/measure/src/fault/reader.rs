//! Readers: each goes through the whole image over and over, through the NBD socket of its host's
//! node, and compares every block. One whose node dies connects again as soon as there is another,
//! as the kernel's client does.

use super::field::Field;
use crate::storm::nbd::{Client, Target};
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vfield_lab::LabError;
use vfield_lab::wait::Deadline;

/// Bytes of a request, and requests in flight: what `nbdcopy` does with one connection.
const BLOCK_BYTES: u64 = 256 << 10;
const DEPTH: usize = 4;
/// Between two attempts to connect.
const CONNECT_EVERY: Duration = Duration::from_millis(5);
/// A read that takes longer hangs, and is an error.
pub(super) const HANGS: Duration = Duration::from_secs(90);

/// A reader that got nothing for so long is looked into: no fault explains it.
pub(super) const WAITS: Duration = Duration::from_secs(20);

/// A wait of this length is written down.
const STALL: Duration = Duration::from_millis(500);

/// A wait, to be compared with the faults of that time.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Stall {
    /// Whose reader waited.
    pub host: usize,
    /// When it ended, in seconds after the readers began.
    pub at_s: f64,
    /// How long it was.
    pub for_s: f64,
    /// The place in the image that the read waited for.
    pub offset: u64,
    /// True for the first read of a node that has just been started.
    pub is_first: bool,
}

/// What a reader saw.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) host: usize,
    pub(super) bytes: u64,
    pub(super) wrong: u64,
    pub(super) errors: Vec<String>,
    pub(super) stalls: Vec<Stall>,
    pub(super) longest_stall: Duration,
    pub(super) longest_restart: Duration,
}

/// All of them.
pub(super) struct Readers {
    stop: Arc<AtomicBool>,
    /// Bytes that each has read.
    bytes: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<Reading>>,
}

impl Readers {
    /// One for each node.
    pub(super) fn start(field: &Field<'_>) -> Result<Self, LabError> {
        let image = std::fs::read(field.image()).map_err(LabError::at(field.image()))?;
        let start = Instant::now();
        let (image, stop) = (Arc::new(image), Arc::new(AtomicBool::new(false)));
        let (mut bytes, mut threads) = (Vec::new(), Vec::new());
        for host in 1..=field.nodes() {
            let read = Arc::new(AtomicU64::new(0));
            let reader = Reader {
                target: Target::Unix(field.socket(host)),
                image: Arc::clone(&image),
                stop: Arc::clone(&stop),
                read: Arc::clone(&read),
                seen: Reading { host, ..Reading::default() },
                // Neighbours do not begin at the same place.
                next: (host as u64 * 7 * BLOCK_BYTES) % image.len() as u64 / BLOCK_BYTES * BLOCK_BYTES,
                died: None,
                start,
                pace: field.pace(BLOCK_BYTES * DEPTH as u64),
            };
            bytes.push(read);
            threads.push(std::thread::spawn(move || reader.go_on()));
        }
        Ok(Self { stop, bytes, threads })
    }

    /// Waits until everybody has read something more.
    pub(super) fn all_read(&self, limit: Duration) -> Result<(), LabError> {
        let before: Vec<u64> = self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect();
        let reads = |(bytes, before): (&Arc<AtomicU64>, &u64)| bytes.load(Ordering::Relaxed) > *before;
        Deadline::after(limit).poll("all readers read", || Ok(self.bytes.iter().zip(&before).all(reads).then_some(())))
    }

    /// Ends all readers and returns their readings.
    pub(super) fn stop(self) -> Vec<Reading> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
    }
}

struct Reader {
    target: Target,
    image: Arc<Vec<u8>>,
    stop: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    seen: Reading,
    /// Where it goes on.
    next: u64,
    /// When its node died.
    died: Option<Instant>,
    /// When all began.
    start: Instant,
    /// From the beginning of one burst of [`DEPTH`] requests to the next.
    pace: Duration,
}

impl Reader {
    fn go_on(mut self) -> Reading {
        while !self.stops() {
            let Ok(mut client) = Client::connect(&self.target) else {
                std::thread::sleep(CONNECT_EVERY);
                continue;
            };
            let ended = client.give_up_after(HANGS).and_then(|()| self.read_from(&mut client));
            match ended {
                Ok(()) => {}
                Err(error) if is_end(&error) => {
                    self.died.get_or_insert_with(Instant::now);
                }
                Err(error) => self.seen.errors.push(format!("host {}: {error}", self.seen.host)),
            }
        }
        self.seen
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reads in order and at its pace, around the end of the image, until it is to stop or the
    /// connection ends.
    fn read_from(&mut self, client: &mut Client) -> io::Result<()> {
        let (length, mut asked) = (self.image.len() as u64, VecDeque::new());
        let mut buffer = vec![0; BLOCK_BYTES as usize];
        let (mut next, mut last, mut is_first, mut due) = (self.next, Instant::now(), true, Instant::now());
        loop {
            if asked.is_empty() && !self.pace.is_zero() {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                last = Instant::now();
                due = last + self.pace;
            }
            let goes_on = self.pace.is_zero() || asked.is_empty();
            while goes_on && asked.len() < DEPTH && !self.stops() {
                let bytes = BLOCK_BYTES.min(length - next);
                client.ask(next, next, bytes as u32)?;
                asked.push_back((next, bytes));
                next = (next + bytes) % length;
            }
            if asked.is_empty() {
                return Ok(());
            }
            let offset = client.answer()?;
            let Some(at) = asked.iter().position(|(other, _)| *other == offset) else {
                return Err(io::Error::other("an answer to nothing"));
            };
            let (_, bytes) = asked.remove(at).expect("it is there");
            let buffer = &mut buffer[..bytes as usize];
            client.fill(buffer)?;
            self.seen.wrong += u64::from(*buffer != self.image[offset as usize..][..buffer.len()]);
            let waited = std::mem::replace(&mut last, Instant::now()).elapsed();
            self.seen.longest_stall = self.seen.longest_stall.max(waited);
            if waited >= STALL {
                let (at_s, for_s) = (self.start.elapsed().as_secs_f64(), waited.as_secs_f64());
                self.seen.stalls.push(Stall { host: self.seen.host, at_s, for_s, offset, is_first });
            }
            is_first = false;
            self.seen.bytes += bytes;
            self.read.store(self.seen.bytes, Ordering::Relaxed);
            self.next = asked.front().map_or(next, |(first, _)| *first);
            if let Some(died) = self.died.take() {
                self.seen.longest_restart = self.seen.longest_restart.max(died.elapsed());
            }
        }
    }
}

/// True for the end of a connection whose node has died, or was told to leave (`ESHUTDOWN`).
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) || error.to_string() == "NBD error 108"
}
