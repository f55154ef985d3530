//! The file of hashes that is kept beside an image, on a disk or in a bucket.
//!
//! Promises: a tree that is read belongs to the id in the head, and has one encoding. A tree that
//! was written is read again. Memory goes by the file's length and not by its claims. Changed files
//! get a right checksum, since no fuzzer finds one.

use arbitrary::{Result, Unstructured};
use vfield_core::chunk::{Chunk, ChunkSize, HASH_BYTES};
use vfield_core::hash_tree::{Hash, HashTree, TreeBuilder};
use vfield_core::image::{Header, ImageId};
use vfield_node::origin::Stamp;
use vfield_node::origin::tree_file::{BadTree, Head};

/// The first byte: a file as it is or with a right checksum, or how a true one is changed.
pub fn target(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => drop(read(bytes)),
        1 => drop(read(&sealed(bytes.to_vec()))),
        // A missing part was not to be changed.
        _ => drop(make(&mut Unstructured::new(bytes))),
    }
}

/// Reads a file, and checks the tree in it.
fn read(file: &[u8]) -> std::result::Result<(Head, HashTree), BadTree> {
    let mut from = file;
    let head = Head::read(&mut from)?;
    let tree = head.read_tree(&mut from)?;
    assert!(from.is_empty(), "bytes behind the tree");
    let (_, top) = tree.pages().next_back().expect("there is a top page");
    assert_eq!(ImageId::of(&head.header, top), head.id);
    assert_eq!(tree.geometry().header(), &head.header);
    let written = written(&head, &tree);
    // Room for later versions, which this one does not look at.
    let told = |file: &[u8]| [&file[..12], &file[16..128], &file[Head::BYTES..]].concat();
    assert!(told(&written) == told(file), "a tree has one encoding");
    Ok((head, tree))
}

fn make(input: &mut Unstructured<'_>) -> Result<()> {
    let size = ChunkSize::new(1 << input.int_in_range(14..=16)?).expect("a chunk size");
    let length = input.arbitrary::<u64>()? >> (input.arbitrary::<u8>()? % 64);
    let mut builder = TreeBuilder::new(length.clamp(1, Header::MAX_LENGTH), size).expect("a possible length");
    let chunks = builder.geometry().data_chunks();
    let mut told = std::collections::BTreeSet::new();
    for _ in 0..input.int_in_range(0..=4)? {
        let (chunk, hash) = (Chunk(input.arbitrary::<u64>()? % chunks), Hash([input.arbitrary::<u8>()?; HASH_BYTES]));
        if told.insert(chunk) {
            builder.add(chunk, hash);
        }
    }
    let (header, id, tree) = builder.finish();
    let file = Stamp {
        device: input.arbitrary()?,
        inode: input.arbitrary()?,
        modified_ns: input.arbitrary::<i64>()?.into(),
        status_changed_ns: input.arbitrary::<i64>()?.into(),
    };
    let head = Head { id, header, file };
    let mut bytes = written(&head, &tree);
    let (again, _) = read(&bytes).expect("a written tree is read");
    assert_eq!(again, head);
    for _ in 0..input.int_in_range(1..=4)? {
        let place = input.arbitrary::<u32>()? as usize % bytes.len();
        bytes[place] ^= input.arbitrary::<u8>()?;
    }
    match input.int_in_range(0..=2)? {
        0 => {}
        1 => bytes.truncate(input.arbitrary::<u32>()? as usize % bytes.len()),
        _ => bytes.extend(std::iter::repeat_n(0, 1 + usize::from(input.arbitrary::<u16>()?))),
    }
    if input.arbitrary()? {
        bytes = sealed(bytes);
    }
    if let Ok((other, _)) = read(&bytes) {
        assert_eq!((other.id, other.header), (id, header), "another tree than that of the id");
    }
    Ok(())
}

fn written(head: &Head, tree: &HashTree) -> Vec<u8> {
    let mut bytes = Vec::new();
    head.write(tree, &mut bytes).expect("memory");
    bytes
}

/// The file with a right checksum in its head, if that is whole.
fn sealed(mut file: Vec<u8>) -> Vec<u8> {
    if let Some((head, hash)) = file.get_mut(..Head::BYTES).and_then(|head| head.split_last_chunk_mut::<HASH_BYTES>()) {
        *hash = *blake3::hash(head).as_bytes();
    }
    file
}

/// A whole file, a head alone, a file that is cut, and parts to make some of.
pub fn seeds() -> Vec<Vec<u8>> {
    let (header, id, tree) = TreeBuilder::new(40_000, ChunkSize::MIN).expect("a possible length").finish();
    let file = Stamp { device: 1, inode: 2, modified_ns: 3, status_changed_ns: 4 };
    let whole = written(&Head { id, header, file }, &tree);
    let marked = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let made = |length: u64, shift: u8| {
        let mut bytes = vec![2, 0];
        bytes.extend(length.to_le_bytes());
        bytes.push(shift);
        bytes.extend((1..120).map(|byte: u8| byte.wrapping_mul(37)));
        bytes
    };
    vec![
        marked(0, &whole),
        marked(0, &whole[..Head::BYTES]),
        marked(1, &whole),
        marked(1, &whole[..whole.len() - 1]),
        made(u64::MAX, 1),
        made(u64::MAX, 30),
        made(u64::MAX, 44),
        made(1, 0),
    ]
}
