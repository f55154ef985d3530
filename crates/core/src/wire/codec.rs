//! The ways in which chunks are compressed on their way.

/// A way to compress a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// One block of LZ4, without a frame: quick.
    Lz4,
    /// One frame of zstd: a quarter shorter than LZ4 for most images.
    Zstd,
}

impl Codec {
    /// The first version of the protocol in which a node takes such chunks.
    pub const fn since(self) -> u32 {
        match self {
            Self::Lz4 => 10,
            Self::Zstd => 12,
        }
    }
}
