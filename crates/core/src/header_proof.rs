//! Header proofs: they show in about a kilobyte that a header belongs to an image id.
//!
//! The id is the BLAKE3 hash of the header and the top page together. BLAKE3 hashes leaves of 1024
//! bytes and joins them in pairs, up to one root. So the first leaf, which begins with the header,
//! and the hash of each right sibling on its way up give the root. Invariant: a proof is as long as
//! its own header demands, so nothing is believed about lengths. A proof says nothing about the
//! bytes of the page behind the first leaf. Holders make it, joining nodes verify it; pure hashing.

use crate::chunk::{ChunkSize, HASH_BYTES};
use crate::image::{Geometry, Header, ImageId};
use blake3::hazmat::{self, ChainingValue, HasherExt, Mode};
use blake3::{CHUNK_LEN, Hasher};

/// Most right siblings on the way from the first leaf up.
const SIBLINGS_MAX: usize = 11;
/// They are as many as the longest top page needs.
const _: () = {
    let longest = Header::BYTES + ChunkSize::MAX.bytes() as usize;
    assert!(CHUNK_LEN << (SIBLINGS_MAX - 1) < longest && longest <= CHUNK_LEN << SIBLINGS_MAX);
};

/// A header, and the hashes that tie it to its image id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderProof {
    header: Header,
    /// The first leaf, then the hashes of the right siblings, the lowest first. Its length follows
    /// from the header.
    bytes: Vec<u8>,
}

/// The lengths in bytes that follow from a header.
struct Shape {
    /// Of header and top page together.
    whole: usize,
    /// Of the first leaf: at most [`CHUNK_LEN`].
    leaf: usize,
}

impl Shape {
    fn of(header: &Header) -> Self {
        let geometry = Geometry::new(*header);
        let whole = Header::BYTES + geometry.length(geometry.top()) as usize;
        Self { whole, leaf: whole.min(CHUNK_LEN) }
    }

    /// Where each right sibling begins in the whole: it is as long as all to its left, or shorter
    /// if the whole ends there.
    fn siblings(&self) -> impl Iterator<Item = usize> {
        let whole = self.whole;
        std::iter::successors(Some(CHUNK_LEN), |start| Some(2 * start)).take_while(move |start| *start < whole)
    }

    /// Of a proof.
    fn proof(&self) -> usize {
        self.leaf + self.siblings().count() * HASH_BYTES
    }
}

impl HeaderProof {
    /// Length in bytes of the longest proof.
    pub const BYTES_MAX: usize = CHUNK_LEN + SIBLINGS_MAX * HASH_BYTES;

    /// The proof for a header and its top page. Hashes the page once.
    ///
    /// # Panics
    /// If the page is not as long as the header says.
    pub fn of(header: &Header, top_page: &[u8]) -> Self {
        let (shape, whole) = (Shape::of(header), [&header.encode(), top_page].concat());
        assert_eq!(whole.len(), shape.whole, "length of header and top page");
        let mut bytes = whole[..shape.leaf].to_vec();
        for start in shape.siblings() {
            let sibling = &whole[start..shape.whole.min(2 * start)];
            let hash = Hasher::new().set_input_offset(start as u64).update(sibling).finalize_non_root();
            bytes.extend_from_slice(&hash);
        }
        Self { header: *header, bytes }
    }

    /// The first leaf and the hashes, at most [`HeaderProof::BYTES_MAX`] bytes.
    pub fn encode(&self) -> &[u8] {
        &self.bytes
    }

    /// The inverse of [`HeaderProof::encode`]; `None` if it begins with no header, or has another
    /// length than that header demands. Hashes nothing.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = Header::decode(bytes.get(..Header::BYTES)?).ok()?;
        (bytes.len() == Shape::of(&header).proof()).then(|| Self { header, bytes: bytes.to_vec() })
    }

    /// The header, if it is that of the image with this id. Hashes a kilobyte.
    pub fn verify(&self, id: ImageId) -> Option<Header> {
        (self.root() == id).then_some(self.header)
    }

    /// The only id that this proof is good for.
    fn root(&self) -> ImageId {
        let (leaf, siblings) = self.bytes.split_at(Shape::of(&self.header).leaf);
        let (siblings, _) = siblings.as_chunks::<HASH_BYTES>();
        let Some((last, lower)) = siblings.split_last() else {
            return ImageId(*blake3::hash(leaf).as_bytes());
        };
        let first = Hasher::new().update(leaf).finalize_non_root();
        let join = |left: ChainingValue, right| hazmat::merge_subtrees_non_root(&left, right, Mode::Hash);
        let left = lower.iter().fold(first, join);
        ImageId(*hazmat::merge_subtrees_root(&left, last, Mode::Hash).as_bytes())
    }
}
