//! The libraries that compress chunks, on links and in stores.
//!
//! Everything that this module unpacks may be hostile: the length of the content is given, and no
//! more is written. Of zstd, the program for an initramfs only has the part that unpacks.

use vfield_core::wire::Codec;

/// The codec of this program that makes the shortest chunks.
pub const BEST: Codec = if makes(Codec::Zstd) { Codec::Zstd } else { Codec::Lz4 };

/// True if this program compresses by this codec.
pub const fn makes(codec: Codec) -> bool {
    matches!(codec, Codec::Lz4) || cfg!(feature = "zstd")
}

/// The compressed bytes, which may be more than the plain ones; `None` if this program cannot make
/// them.
pub fn compress(codec: Codec, plain: &[u8]) -> Option<Vec<u8>> {
    match codec {
        Codec::Lz4 => Some(lz4_flex::block::compress(plain)),
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd_compress(plain),
        #[cfg(not(feature = "zstd"))]
        Codec::Zstd => None,
    }
}

/// Unpacks compressed bytes into `plain`, which has the length of the content; false if that has
/// another length, or if they are no compressed bytes.
pub fn unpack(codec: Codec, compressed: &[u8], plain: &mut [u8]) -> bool {
    let unpacked = match codec {
        Codec::Lz4 => lz4_flex::block::decompress_into(compressed, plain).ok(),
        Codec::Zstd => zstd_unpack(compressed, plain),
    };
    unpacked == Some(plain.len())
}

#[cfg(feature = "zstd")]
fn zstd_compress(plain: &[u8]) -> Option<Vec<u8>> {
    use std::cell::RefCell;
    use zstd::bulk::Compressor;

    /// Chunks of programs and libraries are 4 % shorter at level 3, and a node takes half as long
    /// again to fill its store.
    const LEVEL: i32 = 1;
    thread_local! {
        // To make one takes as long as to compress a chunk.
        static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    }
    COMPRESSOR.with_borrow_mut(|compressor| {
        if compressor.is_none() {
            *compressor = Compressor::new(LEVEL).ok();
        }
        compressor.as_mut()?.compress(plain).ok()
    })
}

fn zstd_unpack(compressed: &[u8], plain: &mut [u8]) -> Option<usize> {
    use std::cell::RefCell;
    use zstd::bulk::Decompressor;

    thread_local! {
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        if decompressor.is_none() {
            *decompressor = Decompressor::new().ok();
        }
        decompressor.as_mut()?.decompress_to_buffer(compressed, plain).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;

    const CODECS: [Codec; 2] = [Codec::Lz4, BEST];

    fn text() -> Vec<u8> {
        (0..60_000_u32).map(|at| ((at / 5) as u8 & 31) + 1).collect()
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        for codec in CODECS {
            for plain in [text(), vec![0; 16 << 10], vec![7]] {
                let compressed = compress(codec, &plain).unwrap();
                let mut unpacked = vec![1; plain.len()];
                assert!(unpack(codec, &compressed, &mut unpacked), "{codec:?}");
                assert_eq!(unpacked, plain);
                for length in [0, plain.len() - 1, plain.len() + 1] {
                    assert!(!unpack(codec, &compressed, &mut vec![0; length]), "{codec:?} {length}");
                }
                for cut in [0, 1, compressed.len() / 2, compressed.len() - 1] {
                    assert!(!unpack(codec, &compressed[..cut], &mut unpacked), "{codec:?} {cut}");
                }
            }
        }
    }

    /// A frame may say that it has more, or that its window is larger, than there is memory.
    #[test]
    fn a_frame_that_promises_too_much_is_refused() {
        let magic = [0x28, 0xB5, 0x2F, 0xFD];
        let content = [&magic[..], &[0xE0], &[0xFF; 8], &[1, 0, 0]].concat();
        let window = [&magic[..], &[0x00, 0xFF], &[1, 0, 0]].concat();
        let skipped = [&[0x50, 0x2A, 0x4D, 0x18][..], &[0xFF; 4]].concat();
        for frame in [content, window, skipped] {
            assert!(!unpack(Codec::Zstd, &frame, &mut vec![0; 64 << 10]), "{frame:x?}");
        }
    }

    proptest! {
        /// Other bytes than were made are refused, or some bytes of the right length.
        #[test]
        fn spoilt_bytes_do_no_harm(at in any::<Index>(), bits in 1..=255_u8, cut in any::<bool>()) {
            for codec in CODECS {
                let mut spoilt = compress(codec, &text()).unwrap();
                let at = at.index(spoilt.len());
                spoilt[at] ^= bits;
                if cut {
                    spoilt.truncate(at);
                }
                unpack(codec, &spoilt, &mut vec![0; 60_000]);
            }
        }
    }
}
