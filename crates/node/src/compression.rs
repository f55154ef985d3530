//! Compressed chunks of one image: made for slow links, and passed on as they came.
//!
//! A chunk is compressed once on its way through a field. The node that has it plain, and a peer on
//! a slow link, makes it; the others pass on what they received and verified. Hashes are those of
//! the plain bytes, so stores and image ids know nothing of it. Memory is bounded by
//! [`KEPT_BYTES_MAX`].

use crate::codec;
use crate::pieces::bytes_of;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::wire::Codec;

/// Most bytes of compressed chunks kept, for peers that asked already: those of 0.4 s on a link of
/// 160 Mbit/s, as peers' requests cover ([`vfield_core::tuning::PEER_DELAY`]). If one goes too
/// early, the chunk is compressed again.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// A chunk is sent compressed if that saves at least this part of it: less is not worth the time of
/// those who unpack it.
const GAIN_MIN: usize = 16;
/// After so many chunks in a row without a gain, one in as many is tried. A try costs as much as a
/// hash.
const TRIES: u32 = 16;

/// A compressed chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compressed {
    /// How it was compressed.
    pub codec: Codec,
    /// The compressed bytes.
    pub bytes: Bytes,
}

/// The compressed chunks of one image.
#[derive(Debug, Default)]
pub struct Compression(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    kept: HashMap<Chunk, Compressed>,
    /// The same, the oldest first.
    order: VecDeque<Chunk>,
    bytes: usize,
    /// Chunks in a row that were not worth it.
    poor: u32,
}

impl Compression {
    /// A chunk that came compressed, or was made before.
    pub fn find(&self, chunk: Chunk) -> Option<Compressed> {
        self.state().kept.get(&chunk).cloned()
    }

    /// Keeps a compressed chunk, whose plain bytes are right, for peers that ask for it.
    pub fn keep(&self, chunk: Chunk, compressed: Compressed) {
        let mut state = self.state();
        state.bytes += compressed.bytes.len();
        match state.kept.insert(chunk, compressed) {
            Some(before) => state.bytes -= before.bytes.len(),
            None => state.order.push_back(chunk),
        }
        while state.bytes > KEPT_BYTES_MAX {
            let Some(gone) = state.order.pop_front().and_then(|oldest| state.kept.remove(&oldest)) else { return };
            state.bytes -= gone.bytes.len();
        }
    }

    /// Compresses a chunk on the calling thread; `None` if it gains too little, or is not tried.
    pub fn make(&self, codec: Codec, chunk: Chunk, piece: &Piece) -> Option<Compressed> {
        if !self.is_tried() {
            return None;
        }
        let made = compressed(codec, piece).ok().flatten();
        let mut state = self.state();
        state.poor = if made.is_some() { 0 } else { state.poor.saturating_add(1) };
        drop(state);
        if let Some(made) = &made {
            self.keep(chunk, made.clone());
        }
        made
    }

    fn is_tried(&self) -> bool {
        let mut state = self.state();
        if state.poor < TRIES {
            return true;
        }
        // The chunks that are left out count as well.
        state.poor += 1;
        if state.poor < 2 * TRIES {
            return false;
        }
        state.poor = TRIES;
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The compressed bytes of a piece, if they are few enough.
fn compressed(codec: Codec, piece: &Piece) -> io::Result<Option<Compressed>> {
    let plain = bytes_of(piece)?;
    let made = codec::compress(codec, &plain).filter(|made| made.len() <= plain.len() - plain.len() / GAIN_MIN);
    Ok(made.map(|made| Compressed { codec, bytes: made.into() }))
}

/// Unpacks a compressed chunk into `plain`, which has its length; false if it is another, or if
/// they are no compressed bytes.
pub fn unpack(codec: Codec, compressed: &[u8], plain: &mut [u8]) -> bool {
    // Nobody sends a compressed chunk that is as long as its content.
    compressed.len() < plain.len() && codec::unpack(codec, compressed, plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const CHUNK: usize = 64 << 10;

    fn text(seed: u8) -> Piece {
        Piece::Bytes((0..CHUNK).map(|at| ((at / 5) as u8 & 31) + seed).collect())
    }

    /// Bytes that do not compress.
    fn noise(seed: u64) -> Piece {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        Piece::Bytes((0..CHUNK).map(|_| next()).collect())
    }

    #[test]
    fn a_chunk_comes_back_as_it_was() {
        let compression = Compression::default();
        let piece = text(1);
        let made = compression.make(Codec::Lz4, Chunk(7), &piece).unwrap();
        assert_eq!(compression.find(Chunk(7)), Some(made.clone()));
        let mut plain = vec![0; CHUNK];
        assert!(unpack(made.codec, &made.bytes, &mut plain));
        let Piece::Bytes(bytes) = piece else { unreachable!() };
        assert!(plain == bytes[..]);
        assert!(compression.make(codec::BEST, Chunk(8), &Piece::Zero(CHUNK as u64)).is_some());
    }

    #[test]
    fn what_is_of_another_length_is_refused() {
        let made = Compression::default().make(Codec::Lz4, Chunk(0), &text(1)).unwrap().bytes;
        for length in [0, 1, CHUNK - 1, CHUNK + 1, 2 * CHUNK] {
            assert!(!unpack(Codec::Lz4, &made, &mut vec![0; length]), "{length}");
        }
        for cut in [0, 1, made.len() / 2, made.len() - 1] {
            assert!(!unpack(Codec::Lz4, &made[..cut], &mut vec![0; CHUNK]), "{cut}");
        }
        assert!(!unpack(Codec::Lz4, &[0xff; 300], &mut vec![0; CHUNK]));
        assert!(!unpack(Codec::Lz4, &[0; CHUNK], &mut vec![0; CHUNK]), "not shorter than its content");
    }

    proptest! {
        /// Whatever a peer sends, it is refused, or some bytes of the right length.
        #[test]
        fn hostile_bytes_do_no_harm(sent in vec(any::<u8>(), 0..600), length in 0..2048_usize) {
            let mut plain = vec![0; length];
            if unpack(Codec::Lz4, &sent, &mut plain) || unpack(Codec::Zstd, &sent, &mut plain) {
                prop_assert!(sent.len() < length);
            }
        }
    }

    #[test]
    fn an_image_that_gains_nothing_is_tried_now_and_then() {
        let compression = Compression::default();
        let tried = |from: u64| {
            (from..from + 160)
                .filter(|at| {
                    let before = compression.state().poor;
                    assert_eq!(compression.make(Codec::Lz4, Chunk(*at), &noise(*at)), None);
                    before < TRIES || compression.state().poor <= TRIES + 1 && before > TRIES + 1
                })
                .count()
        };
        assert_eq!(tried(0), 16 + 9);
        // The first one that gains has all be tried again.
        while compression.make(Codec::Lz4, Chunk(0), &text(1)).is_none() {}
        assert!(compression.make(Codec::Lz4, Chunk(1), &text(2)).is_some());
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes() {
        let compression = Compression::default();
        let part = Compressed { codec: Codec::Lz4, bytes: vec![1; 1 << 20].into() };
        for number in 0..20 {
            compression.keep(Chunk(number), part.clone());
            compression.keep(Chunk(number), part.clone());
        }
        assert_eq!(compression.state().bytes, KEPT_BYTES_MAX);
        assert_eq!(compression.find(Chunk(11)), None);
        assert!((12..20).all(|number| compression.find(Chunk(number)).is_some()));
    }
}
