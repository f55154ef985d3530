//! What a node is asked for: chunks that it has, with the hashes that their bytes must have.
//!
//! Trust comes down from the image id, page by page, as in a node that joins. Of a large image only
//! its front is taken: enough for the run, and bounded in pages.

use super::guest::{Guest, Reach, Reply};
use super::load::{Answer, Channel};
use std::collections::HashMap;
use std::sync::Arc;
use vfield_console::failure::Failure;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{Hash, ZeroHashes, verify};
use vfield_core::image::{Geometry, ImageId};
use vfield_core::placement::Ring;
use vfield_core::record::Record;

/// Most pages that are fetched: with chunks of 64 KiB the hashes of 8 GiB.
const PAGES_MAX: usize = 64;

/// Chunks of an image that a node has.
#[derive(Debug)]
pub struct Sample {
    image: ImageId,
    chunks: Vec<(Chunk, Hash)>,
}

impl Sample {
    /// Chunks with at least `want_bytes` in all, if the node that said `record` has so many.
    ///
    /// # Errors
    /// If the node does not give the pages of the hash tree, or has no chunk.
    pub fn gather(guest: &mut Guest, record: &Record, geometry: &Geometry, want_bytes: u64) -> Result<Self, Failure> {
        let zeros = ZeroHashes::new(geometry);
        let has = holdings(record, geometry);
        let mut chunks = Vec::new();
        let mut bytes = 0;
        let mut pages = vec![(geometry.top(), None)];
        let mut fetched = 0;
        while let Some((page, hash)) = pages.pop() {
            if bytes >= want_bytes || fetched == PAGES_MAX {
                break;
            }
            fetched += 1;
            let content = verified(guest, record, geometry, page, hash)?;
            let children = geometry.children(page).enumerate().map(|(place, child)| (place, Chunk(child)));
            let children = children.filter_map(|(place, child)| Some((child, Hash::in_page(&content, place)?)));
            // Zero chunks are known by their hash and never sent.
            let mut below: Vec<_> = children.filter(|(child, hash)| *hash != zeros.of(*child)).collect();
            if geometry.level(page) == Some(0) {
                below.retain(|(chunk, _)| has(*chunk));
                bytes += below.iter().map(|(chunk, _)| geometry.length(*chunk)).sum::<u64>();
                chunks.append(&mut below);
            } else {
                // The front of the image is to come off the stack first.
                pages.extend(below.into_iter().rev().map(|(page, hash)| (page, Some(hash))));
            }
        }
        if chunks.is_empty() {
            let failure = Failure::failed(format!("node {} has no chunk of it yet", guest.addr()));
            return Err(failure.hint("wait until its store has filled, or choose another node"));
        }
        Ok(Self { image: record.image(), chunks })
    }

    /// How many chunks.
    pub fn len(&self) -> u64 {
        self.chunks.len() as u64
    }
}

/// Which chunks a node has, by its own word.
fn holdings(record: &Record, geometry: &Geometry) -> impl Fn(Chunk) -> bool {
    let size = geometry.chunks();
    let ring = Ring::new(size);
    let (origin, arc, filled) = (record.origin, record.arc, record.filled);
    let fits = arc.fits(size) && filled.from < size && filled.count <= size;
    move |chunk| origin || (fits && arc.contains(ring.place(chunk), size) && filled.contains(chunk, size))
}

/// Fetches a page and checks it: the top page against the image id, the others against `hash`.
fn verified(
    guest: &mut Guest,
    record: &Record,
    geometry: &Geometry,
    page: Chunk,
    hash: Option<Hash>,
) -> Result<Vec<u8>, Failure> {
    let addr = guest.addr();
    let content = guest.fetch(record.image(), page)?.ok_or_else(|| {
        let failure = Failure::failed(format!("node {addr} does not have the hash page {page} and cannot get it"));
        failure.hint("`vfield status` there says what is missing")
    })?;
    let right = content.len() as u64 == geometry.length(page)
        && hash
            .map_or_else(|| ImageId::of(geometry.header(), &content) == record.image(), |hash| verify(&hash, &content));
    if right { Ok(content) } else { Err(wrong(addr, page)) }
}

fn wrong(addr: std::net::SocketAddr, chunk: Chunk) -> Failure {
    Failure::failed(format!("node {addr} sent {chunk} with wrong bytes")).hint("check that machine and its memory")
}

/// A stream of requests to a node.
pub struct PeerChannel {
    guest: Guest,
    sample: Arc<Sample>,
    under_way: HashMap<u64, usize>,
}

impl PeerChannel {
    /// Asks for chunks of a sample; their numbers are places in it.
    pub fn new(guest: Guest, sample: Arc<Sample>) -> Self {
        Self { guest, sample, under_way: HashMap::new() }
    }
}

impl Channel for PeerChannel {
    fn ask(&mut self, request: u64, block: u64) -> Result<(), Failure> {
        let place = block as usize;
        self.under_way.insert(request, place);
        self.guest.ask(request, self.sample.image, self.sample.chunks[place].0, Reach::Here)
    }

    fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<Answer, Failure> {
        let addr = self.guest.addr();
        let Some((request, reply)) = self.guest.answer(is_over)? else { return Ok(Answer::Over) };
        let Some(place) = self.under_way.remove(&request) else {
            return Err(Failure::failed(format!("node {addr} answered an unknown request")));
        };
        let (chunk, hash) = self.sample.chunks[place];
        match reply {
            Reply::Refused => Ok(Answer::Refused { request }),
            Reply::Chunk(bytes) if verify(&hash, bytes) => Ok(Answer::Bytes { request, bytes: bytes.len() as u64 }),
            Reply::Chunk(_) => Err(wrong(addr, chunk)),
        }
    }
}
