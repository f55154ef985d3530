//! The receiving half of a lane: frames come in, are verified, and become inputs of the core.
//!
//! The lane's task calls it. It owns the stream of frames, and knows no requests but those that the
//! lane gives it.

use super::Ask;
use super::inbound::{Broken, Came, Inbound};
use super::lane::{Lane, PROGRESS_EVERY};
use crate::buffers::Buffer;
use crate::changed;
use crate::compression::{self, Compressed};
use crate::driver::Driver;
use crate::image::LocalImage;
use crate::incoming::Incoming;
use crate::segments;
use crate::source::PATIENCE;
use crate::store::{Check, Inserted};
use crate::trace::{Did, micros};
use crate::traffic::PeerCounters;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree;
use vfield_core::identity::Identity;
use vfield_core::node::{Input, Keep};
use vfield_core::slice::{Slice, Verified};
use vfield_core::speed::Transit;
use vfield_core::wire::{self, Codec, FrameHeader, Kind, Priority, Refusal, WireError};

/// Most answers received before other tasks get their turn: a millisecond of work.
const FRAMES_MAX: usize = 16;
/// Bytes of a fill of which the core hears together, if all of them are there. It then asks for as
/// much at once, so that a fast peer wakes up for eight requests and not for each. The first chunk
/// of the usual size waits a third of a millisecond, until the others are verified. As many bytes
/// may lie here beyond those that the core counts, in each thread.
const TOGETHER_BYTES: u64 = 512 << 10;

/// The result of [`Receiver::receive`].
pub(super) struct Received {
    /// A request was answered.
    pub answered: bool,
    /// True if all available bytes were read.
    pub all: bool,
    /// True if the allowance was used up first.
    pub spent: bool,
}

/// The receiving half of a lane.
pub(super) struct Receiver<'a> {
    driver: &'a Arc<Driver>,
    peer: Identity,
    counters: Arc<PeerCounters>,
    pub inbound: Inbound,
    /// When the core was last told of progress.
    progress: Instant,
    /// When the last byte came.
    pub last_byte: Instant,
    begun: Begun,
    /// What the core is to hear, and how many bytes came with it.
    inputs: Vec<Input>,
    untold_bytes: u64,
    /// True once an answer has come that is longer than a packet.
    pub carries: bool,
    /// The image whose store has enough to write for now.
    crowded: Option<Arc<LocalImage>>,
}

/// The moment at which an answer began to come, and the bytes of chunks until then: from all peers,
/// and from this one.
#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    all: u64,
    peers: u64,
}

impl<'a> Receiver<'a> {
    /// Of a connection to this peer, with its counters, and the bytes that came with its greeting.
    pub fn new(driver: &'a Arc<Driver>, peer: Identity, counters: Arc<PeerCounters>, incoming: Incoming) -> Self {
        let (inbound, now) = (Inbound::new(incoming), Instant::now());
        Self {
            driver,
            peer,
            counters,
            inbound,
            progress: now,
            last_byte: now,
            begun: Begun { at: now, all: 0, peers: 0 },
            inputs: Vec::with_capacity(FRAMES_MAX),
            untold_bytes: 0,
            carries: false,
            crowded: None,
        }
    }

    /// Waits until the store that got chunks has written some of them, though not for long: others
    /// wait for this lane.
    pub async fn room(&mut self) {
        if let Some(image) = self.crowded.take() {
            let _ = tokio::time::timeout(PATIENCE, image.store().room()).await;
        }
    }

    /// Receives all available bytes, or as many as are allowed, and tells the core.
    pub fn receive(
        &mut self,
        lane: &Lane,
        stream: &TcpStream,
        unasked: bool,
        allowed: &mut u64,
    ) -> Result<Received, Broken> {
        let received = self.frames(lane, stream, unasked, allowed);
        // Frames before a broken one count.
        self.tell();
        received
    }

    fn frames(
        &mut self,
        lane: &Lane,
        stream: &TcpStream,
        unasked: bool,
        allowed: &mut u64,
    ) -> Result<Received, Broken> {
        let (mut answered, before) = (false, *allowed);
        if !self.inbound.is_under_way() {
            self.begin();
        }
        for _ in 0..FRAMES_MAX {
            match self.inbound.read(stream, unasked, || self.driver.chunk_bytes_max(), allowed)? {
                Came::Frame(header) => {
                    self.progress = Instant::now();
                    self.last_byte = self.progress;
                    answered |= self.frame(lane, header)?;
                    self.begin();
                }
                Came::Nothing(some) => {
                    self.progressed(some, unasked);
                    return Ok(Received { answered, all: true, spent: false });
                }
                Came::Allowed => {
                    self.progressed(*allowed < before, false);
                    return Ok(Received { answered, all: false, spent: true });
                }
            }
        }
        Ok(Received { answered, all: false, spent: false })
    }

    /// Some bytes of an answer came, or none. A timed check has waited long enough to tell.
    fn progressed(&mut self, some: bool, timed: bool) {
        if !some {
            return;
        }
        self.last_byte = Instant::now();
        if timed || self.progress.elapsed() >= PROGRESS_EVERY {
            self.progress = self.last_byte;
            self.inputs.push(Input::Progress(self.peer.node));
        }
    }

    /// Gives the core the inputs.
    fn tell(&mut self) {
        self.untold_bytes = 0;
        if !self.inputs.is_empty() {
            self.driver.apply_all(self.inputs.drain(..));
        }
    }

    /// The next answer begins to come, or has begun.
    fn begin(&mut self) {
        let (all, peers) = (self.driver.counters.came(), self.counters.came());
        self.begun = Begun { at: Instant::now(), all, peers };
    }

    /// How the answer came that is complete now.
    fn transit(&self) -> Transit {
        let (all, peers) = (self.driver.counters.came(), self.counters.came());
        // The two counters are not read at one moment.
        let beside = (all - self.begun.all).saturating_sub(peers - self.begun.peers);
        Transit { took: self.begun.at.elapsed(), beside }
    }

    fn frame(&mut self, lane: &Lane, header: FrameHeader) -> Result<bool, Broken> {
        if let Kind::Unknown(_) = header.kind {
            return Ok(false);
        }
        if header.kind == Kind::Patience {
            self.inputs.push(Input::Progress(self.peer.node));
            return Ok(false);
        }
        if header.kind == Kind::Synced {
            let snapshot = wire::decode_snapshot(self.inbound.payload())?;
            self.inputs.push(Input::Learned { from: self.peer.node, snapshot });
            return Ok(false);
        }
        if header.kind == Kind::AdmissionList {
            self.driver.take_list(wire::decode_list(self.inbound.payload())?)?;
            return Ok(false);
        }
        // An answer without a request may be one cancelled too late on an earlier connection:
        // harmless.
        let Some(ask) = lane.take(header.request) else { return Ok(false) };
        if header.refusal == Some(Refusal::SourceChanged) {
            changed::refused(self.driver, ask.image, self.peer.addr);
        }
        let input = match header.kind {
            Kind::Refuse => Input::Refused(ask.request, header.refusal.unwrap_or(Refusal::NotHeld)),
            Kind::Redirect => Input::Redirected(ask.request, wire::decode_redirect(self.inbound.payload())?),
            Kind::Slice => match ask.slice {
                Some(slice) => self.slice(&ask, slice),
                None => return Err(WireError::Field("kind").into()),
            },
            _ if ask.slice.is_some() => return Err(WireError::Field("kind").into()),
            _ => self.chunk(&ask, header),
        };
        self.carries |= header.length >= segments::LONG;
        self.inputs.push(input);
        self.untold_bytes += u64::from(header.length);
        // A reader of this chunk does not wait for others, and links are measured by when chunks
        // come.
        if ask.priority != Priority::Fill || self.untold_bytes >= TOGETHER_BYTES {
            self.tell();
        }
        Ok(true)
    }

    /// Verifies a slice and keeps it for its readers.
    fn slice(&self, ask: &Ask, slice: Slice) -> Input {
        let (answer, transit) = (self.inbound.payload(), self.transit());
        let Some(image) = self.driver.image(ask.image) else { return Input::Unusable(ask.request) };
        match slice.verified(image.geometry(), ask.chunk, |page| image.hash(page), answer) {
            Verified::Wrong => Input::Corrupt(ask.request),
            Verified::Unknown => Input::Unusable(ask.request),
            Verified::Right(bytes) => {
                self.counters.received(answer.len() as u64, ask.origin);
                self.driver.counters.received(answer.len() as u64);
                image.slices().keep(ask.chunk, slice.groups, bytes);
                Input::Arrived { request: ask.request, waited: Duration::ZERO, transit, zeros: Vec::new() }
            }
        }
    }

    /// Unpacks a compressed chunk into its own memory; `None` if the content has another length.
    fn unpack(&self, codec: Codec, image: &LocalImage, chunk: Chunk) -> Option<Buffer> {
        if !image.geometry().is_data(chunk) {
            return None;
        }
        let length = image.geometry().length(chunk) as usize;
        let mut memory = self.driver.buffers.take(length);
        let whole = compression::unpack(codec, self.inbound.payload(), &mut memory[..length]);
        // Memory that is not used goes back all the same.
        let buffer = self.driver.buffers.own(memory, 0..length);
        whole.then_some(buffer)
    }

    /// Verifies a chunk and puts it into the store.
    fn chunk(&mut self, ask: &Ask, header: FrameHeader) -> Input {
        let (came, transit) = (u64::from(header.length), self.transit());
        let waited = Duration::from_millis(header.waited_ms.into());
        let Some(image) = self.driver.image(ask.image) else { return Input::Unusable(ask.request) };
        let store = image.store();
        let since = self.driver.tracer.is_on().then(Instant::now);
        let codec = match header.kind {
            Kind::Compressed(codec) => Some(codec),
            _ => None,
        };
        let unpacked = codec.map(|codec| self.unpack(codec, &image, ask.chunk).map(|plain| (codec, plain)));
        if let Some(None) = unpacked {
            return Input::Corrupt(ask.request);
        }
        let (codec, unpacked) = unpacked.flatten().unzip();
        let bytes = unpacked.as_ref().map_or(self.inbound.payload(), Buffer::as_ref);
        let checked = image.check(ask.chunk, bytes);
        if let Some(since) = since {
            let came = Did::Came {
                request: ask.request.0,
                bytes: came,
                took_us: micros(transit.took),
                check_us: micros(since.elapsed()),
                peer_waited_ms: header.waited_ms.into(),
            };
            self.driver.tracer.note(self.driver.now(), None, came);
        }
        let transit = transit.stretched(bytes.len() as u64, came);
        match checked {
            Check::Bad => return Input::Corrupt(ask.request),
            Check::Unknown => return Input::Unusable(ask.request),
            Check::Good => {}
        }
        self.counters.received(came, ask.origin);
        self.driver.counters.received(came);
        if let Some(codec) = codec {
            self.driver.counters.unpacked.crossed(came, bytes.len() as u64);
            if ask.keep != Keep::Not {
                let bytes = Bytes::copy_from_slice(self.inbound.payload());
                image.compression().keep(ask.chunk, Compressed { codec, bytes });
            }
        }
        let arrived = |zeros| Input::Arrived { request: ask.request, waited, transit, zeros };
        let in_a_buffer = match ask.keep {
            Keep::Not => return arrived(Vec::new()),
            Keep::Passing => true,
            // Once the core counts it as stored, it settles.
            Keep::Stored => store.writes_behind(),
        };
        if in_a_buffer && image.geometry().is_data(ask.chunk) {
            let buffer = unpacked.unwrap_or_else(|| self.inbound.detach(&self.driver.buffers));
            store.pass(ask.chunk, buffer);
            if ask.keep == Keep::Stored && store.is_crowded() {
                self.crowded = Some(Arc::clone(&image));
            }
            return arrived(Vec::new());
        }
        match store.insert(ask.chunk, bytes) {
            Ok(Inserted::New | Inserted::Already) => {
                if store.found() > 0 && !image.geometry().is_data(ask.chunk) {
                    image.note_page();
                }
                let zeros: Vec<Range<u64>> =
                    hash_tree::zero_children(image.geometry(), store.zeros(), ask.chunk, bytes);
                arrived(zeros)
            }
            Ok(Inserted::Busy) => Input::Unusable(ask.request),
            // The store is full. Readers go on with what passes through.
            Err(_) if store.may_be_full() && image.geometry().is_data(ask.chunk) => {
                let buffer = unpacked.unwrap_or_else(|| self.inbound.detach(&self.driver.buffers));
                store.pass(ask.chunk, buffer);
                arrived(Vec::new())
            }
            Err(error) => {
                tracing::warn!(%error, "no memory for a chunk");
                Input::Unusable(ask.request)
            }
        }
    }
}
