//! Header proofs, as members send them to nodes that want to join.
//!
//! Promises: a proof has one encoding and is short. The proof of a header and its page is good for
//! their id, and for no other. A proof with a byte changed, cut off or added is not good for it.

use arbitrary::{Result, Unstructured};
use vfield_core::chunk::{ChunkSize, HASH_BYTES};
use vfield_core::header_proof::HeaderProof;
use vfield_core::image::{Geometry, Header, ImageId};

/// The first byte says whether the others are a proof, or what to make one of.
pub fn target(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind % 2 == 0 {
        read(bytes);
    } else {
        // A missing part was not to be read.
        let _ = make(&mut Unstructured::new(bytes));
    }
}

fn read(bytes: &[u8]) {
    let Some(proof) = HeaderProof::decode(bytes) else { return };
    assert_eq!(proof.encode(), bytes, "a proof has one encoding");
    assert!(bytes.len() <= HeaderProof::BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(proof.verify(ImageId([0; HASH_BYTES])), None);
}

fn make(input: &mut Unstructured<'_>) -> Result<()> {
    let size = ChunkSize::new(1 << input.int_in_range(14..=20)?).expect("a chunk size");
    let length = input.arbitrary::<u64>()? >> (input.arbitrary::<u8>()? % 64);
    let header = Header::new(length.clamp(1, Header::MAX_LENGTH), size, 0).expect("a possible length");
    let geometry = Geometry::new(header);
    let mut page = vec![input.arbitrary()?; geometry.length(geometry.top()) as usize];
    for _ in 0..input.arbitrary::<u8>()? % 8 {
        let place = input.arbitrary::<u32>()? as usize % page.len();
        page[place] ^= input.arbitrary::<u8>()?;
    }
    let (id, proof) = (ImageId::of(&header, &page), HeaderProof::of(&header, &page));
    assert_eq!(proof.verify(id), Some(header));
    read(proof.encode());
    let bad = |bytes: &[u8]| {
        let header = HeaderProof::decode(bytes).and_then(|proof| proof.verify(id));
        assert_eq!(header, None, "{} bytes", bytes.len());
    };
    let mut changed = proof.encode().to_vec();
    let place = usize::from(input.arbitrary::<u16>()?) % changed.len();
    changed[place] ^= input.arbitrary::<u8>()?.max(1);
    bad(&changed);
    bad(&proof.encode()[..place]);
    changed.clone_from_slice(proof.encode());
    changed.extend(std::iter::repeat_n(0, 1 + place % (2 * HASH_BYTES)));
    bad(&changed);
    let place = input.arbitrary::<u32>()? as usize % page.len();
    page[place] ^= 1;
    assert_eq!(proof.verify(ImageId::of(&header, &page)), None);
    Ok(())
}

/// Proofs of a short and of a long page, and what to make some of.
pub fn seeds() -> Vec<Vec<u8>> {
    let proof = |hashes: u64, size: ChunkSize| {
        let header = Header::new(hashes * size.bytes(), size, hashes).expect("a header");
        let proof = HeaderProof::of(&header, &vec![0x5a; hashes as usize * HASH_BYTES]);
        [&[0], proof.encode()].concat()
    };
    let made = |power: u8, length: u64, shift: u8| {
        let mut bytes = vec![1, power];
        bytes.extend(length.to_le_bytes());
        bytes.push(shift);
        bytes.extend((1..60).map(|byte: u8| byte.wrapping_mul(37)));
        bytes
    };
    vec![
        proof(1, ChunkSize::DEFAULT),
        proof(32, ChunkSize::MIN),
        proof(ChunkSize::MAX.hashes_per_page(), ChunkSize::MAX),
        made(0, u64::MAX, 1),
        made(6, u64::MAX, 30),
        made(2, u64::MAX, 38),
    ]
}
