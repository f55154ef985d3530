//! An image for exports to read: hits at once from memory, misses through the core.
//!
//! A hit touches the store's atomics and nothing else. A miss registers a token, tells the core,
//! and waits; dropping the wait cancels it.

mod away;

use crate::driver::Driver;
use crate::image::LocalImage;
use crate::source::Source;
use crate::store::withheld::Waiter;
use crate::survey;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, Piece, ReadError, Reading, Urgency};
use vfield_core::chunk::Chunk;
use vfield_core::doubling::Doubling;
use vfield_core::fetch::Token;
use vfield_core::image::ImageId;
use vfield_core::node::Input;
use vfield_core::read_ahead::ReadAhead;
use vfield_core::slicing::Slicing;

/// Bytes of a long extent requested at once. It keeps many peers busy. It is a small part of the
/// transient cache, so the end of an answer does not evict its beginning.
const WANT_BYTES: u64 = 4 << 20;
/// A block status of more runs is answered in parts.
const RUNS_MAX: usize = 4096;
/// First pause after a chunk was evicted before its reader came to it; it doubles each time. If
/// that happens often, others need the room, and a reader that retries without a pause would take
/// their CPU time. The longest is well below the second in which a read is answered while a node
/// has its bytes.
const AGAIN_AFTER: Doubling = Doubling { first: Duration::from_millis(1), longest: Duration::from_millis(256) };

/// A reader of one image.
pub struct ImageReader {
    driver: Arc<Driver>,
    image: Arc<LocalImage>,
    ahead: Mutex<ReadAhead>,
    slicing: Mutex<Slicing>,
}

/// Tells the core when a reader no longer waits.
struct Waiting<'a> {
    driver: &'a Arc<Driver>,
    token: Token,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.driver.give_up(self.token);
    }
}

impl ImageReader {
    /// Reads `image`, which the core of `driver` takes part in.
    pub fn new(driver: Arc<Driver>, image: Arc<LocalImage>) -> Self {
        let chunks_ahead = driver.look(|core| core.chunks_ahead(image.id()));
        let ahead = ReadAhead::new(image.geometry().data_chunks(), chunks_ahead);
        Self { driver, image, ahead: Mutex::new(ahead), slicing: Mutex::default() }
    }

    /// Notes a read, and fetches ahead if it looks sequential, or if others went on from there. Two
    /// readers at one moment: one goes unnoted.
    fn note(&self, extent: Extent) {
        let learned = self.image.learned();
        learned.note(extent, || self.driver.now());
        if self.image.is_complete() {
            return;
        }
        let chunks = self.image.geometry().covering(extent);
        let (ahead, leads) = learned.ahead(chunks.clone());
        for ahead in ahead {
            self.hint(ahead, Urgency::Soon);
        }
        let Ok(mut ahead) = self.ahead.try_lock() else { return };
        if leads {
            // It knows where a sequential reader stops.
            ahead.note_led(chunks);
        } else {
            let chunks = ahead.note(chunks);
            drop(ahead);
            self.hint(chunks, Urgency::Soon);
        }
    }

    fn hint(&self, chunks: Range<u64>, urgency: Urgency) {
        if let Some(object) = self.image.object() {
            object.prefetch(chunks);
        } else if !chunks.is_empty() {
            self.driver.hint(Input::Prefetch { image: self.image.id(), chunks, priority: urgency.into() });
        }
    }

    /// Waits until the first of `chunks` is here, for the `round`th time, counted from 0.
    async fn wait(&self, chunks: Range<u64>, round: u32) -> Result<(), ReadError> {
        if round > 0 {
            tokio::time::sleep(AGAIN_AFTER.pause(round - 1)).await;
        }
        self.ask(|token, image| Input::Read { token, image, chunks }).await
    }

    /// Waits for the core's answer to a read.
    async fn ask(&self, input: impl FnOnce(Token, ImageId) -> Input) -> Result<(), ReadError> {
        let token = Token(self.driver.number());
        let answer = self.driver.expect(token);
        let waiting = Waiting { driver: &self.driver, token };
        self.driver.apply(input(token, self.image.id()));
        let answer = answer.await.unwrap_or(Err(ReadError::ShuttingDown));
        drop(waiting);
        answer
    }

    /// Reads an extent that is much shorter than its chunk with a slice, at most once. False if the
    /// whole chunk is to be waited for, or has come.
    async fn read_slice(&self, extent: Extent, pieces: &mut Vec<Piece>) -> Result<bool, ReadError> {
        if self.image.source().is_some() {
            // The file has a bad place, and this node is asked for the rest of the image.
            return Ok(false);
        }
        let slice = self.slicing.try_lock().ok().and_then(|mut known| known.note(self.image.geometry(), extent));
        let Some((chunk, groups)) = slice else { return Ok(false) };
        self.ask(|token, image| Input::ReadSlice { token, image, chunk, groups }).await?;
        let bytes = self.image.sliced(extent);
        let came = bytes.is_some();
        pieces.extend(bytes.map(Piece::Bytes));
        Ok(came)
    }

    async fn wait_and_read(&self, extent: Extent) -> Result<Vec<Piece>, ReadError> {
        let mut pieces = Vec::new();
        let wanted = extent.take(WANT_BYTES);
        if let Some(Source::File(origin)) = self.image.source() {
            let since = Instant::now();
            let here = self.read_file(origin, wanted, &mut pieces).await?;
            self.note(wanted.take(here));
            self.driver.counters.from_store(here);
            self.driver.counters.delays.add(since.elapsed());
            return Ok(pieces);
        }
        let mut here = self.stored(extent, &mut pieces).await;
        if here == 0 {
            survey::look(&self.driver, &self.image, self.image.geometry().covering(wanted)).await;
            here = self.stored(extent, &mut pieces).await;
        }
        if here > 0 {
            self.driver.counters.from_store(here);
            self.note(extent.take(here));
            return Ok(pieces);
        }
        if let Some(bytes) = self.image.sliced(extent) {
            self.driver.counters.from_store(extent.len());
            return Ok(vec![Piece::Bytes(bytes)]);
        }
        self.note(wanted);
        let since = Instant::now();
        if let Some(object) = self.image.object() {
            let here = self.bring(object, extent, &mut pieces).await?;
            self.driver.counters.from_store(here);
            self.driver.counters.delays.add(since.elapsed());
            return Ok(pieces);
        }
        if self.read_slice(extent, &mut pieces).await? || self.image.pieces(extent, &mut pieces) > 0 {
            self.driver.counters.delays.add(since.elapsed());
            return Ok(pieces);
        }
        for round in 0.. {
            self.wait(self.image.geometry().covering(wanted), round).await?;
            // The chunk may have been evicted between the core's answer and now; then once more.
            if self.image.pieces(extent, &mut pieces) > 0 {
                break;
            }
        }
        self.driver.counters.delays.add(since.elapsed());
        Ok(pieces)
    }

    /// Appends the pieces of as long a part of `extent`, from its start, as the store has. Chunks
    /// on a disk are brought first, and then it is a shorter part.
    async fn stored(&self, extent: Extent, pieces: &mut Vec<Piece>) -> u64 {
        let store = self.image.store();
        if !store.is_on_disk() {
            return self.image.pieces(extent, pieces);
        }
        let part = extent.take(WANT_BYTES);
        // Chunks that the disk does not deliver are withheld: not here any more.
        let _ = store.bring(part, Waiter::Reader).await;
        self.image.pieces(part, pieces)
    }

    async fn runs(&self, extent: Extent) -> Result<Vec<Allocation>, ReadError> {
        let (geometry, store) = (self.image.geometry(), self.image.store());
        let mut runs: Vec<Allocation> = Vec::new();
        for chunk in geometry.covering(extent).map(Chunk) {
            let (mut known, mut round) = (None, 0);
            while known.is_none() {
                let page = geometry.parent(chunk).map_or(geometry.top(), |(page, _)| page);
                known = if store.is_zero(chunk) {
                    Some(true)
                } else if store.is_resident(chunk) || store.is_resident(page) {
                    Some(false)
                } else if !runs.is_empty() {
                    return Ok(runs);
                } else {
                    self.wait(page.0..page.0 + 1, round).await?;
                    round += 1;
                    None
                };
            }
            let zero = known == Some(true);
            let length_bytes = geometry.extent(chunk).clip(extent).len();
            let full = runs.len() == RUNS_MAX;
            match runs.last_mut() {
                Some(last) if last.zero == zero => last.length_bytes += length_bytes,
                _ if full => return Ok(runs),
                _ => runs.push(Allocation { length_bytes, zero }),
            }
        }
        Ok(runs)
    }
}

impl BlockSource for ImageReader {
    fn name(&self) -> &str {
        self.image.name()
    }

    fn names(&self) -> Vec<&str> {
        self.image.names().iter().collect()
    }

    fn description(&self) -> String {
        format!("V-FIELD image {}", self.image.id())
    }

    fn size_bytes(&self) -> u64 {
        self.image.geometry().header().length_bytes()
    }

    fn chunk_bytes(&self) -> u32 {
        self.image.geometry().chunk_bytes() as u32
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        let before = pieces.len();
        if !self.image.is_in_memory(extent) || self.image.pieces(extent, pieces) < extent.len() {
            pieces.truncate(before);
            return false;
        }
        self.driver.counters.from_store(extent.len());
        self.note(extent);
        true
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        Box::pin(self.wait_and_read(extent))
    }

    fn prefetch(&self, extent: Extent, urgency: Urgency) {
        if !self.image.is_complete() {
            self.hint(self.image.geometry().covering(extent.take(WANT_BYTES)), urgency);
        }
    }

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        match self.image.source() {
            Some(origin) => {
                let runs = origin.allocation(extent);
                Box::pin(std::future::ready(Ok(runs)))
            }
            None => Box::pin(self.runs(extent)),
        }
    }

    fn is_complete(&self) -> bool {
        self.image.is_complete()
    }
}
