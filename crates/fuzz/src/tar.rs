//! Tars that are packed, and the images that they become.
//!
//! Promises: a tar is refused in one line, or becomes an image. The same tar packed like that image
//! shares all chunks with it. Memory goes by the tar's length. Headers get right checksums, since
//! no fuzzer finds those.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use vfield_core::chunk::ChunkSize;
use vfield_pack::listing::Listing;
use vfield_pack::tar::{Entries, tree_of};
use vfield_pack::{layout, pack};

/// Length of a header, and what contents are filled up to.
const BLOCK: usize = 512;
/// Where a header has its checksum.
const SUM: std::ops::Range<usize> = 148..156;
/// Larger images are laid out, and not written: that takes long, and is another thread's memory.
const IMAGE_MAX: u64 = 2 << 20;
/// Images of more inodes are not written either: each file is read through a buffer of its own.
const INODES_MAX: usize = 12;

/// The first byte: as it comes, or with right checksums. Then the tar.
pub fn target(bytes: &[u8]) {
    let Some((how, tar)) = bytes.split_first() else { return };
    let mut tar = tar.to_vec();
    if how % 2 == 1 {
        tar.resize(tar.len().next_multiple_of(BLOCK), 0);
        tar.chunks_exact_mut(BLOCK).for_each(seal);
    }
    let length = tar.len() as u64;
    for entry in Entries::new(&tar.as_slice(), length).map_while(Result::ok) {
        assert!(entry.path.len() as u64 <= length);
    }
    let tree = match tree_of(&tar.as_slice(), length) {
        Ok(tree) => tree,
        Err(why) => {
            assert!(!why.is_empty() && !why.contains('\n'), "{why:?}");
            return;
        }
    };
    let listing = Listing::new(&tree);
    let places = listing.listed().len();
    assert!((0..places).all(|place| listing.path(place).len() as u64 <= 2 * length));
    let Ok(laid) = layout::lay(&listing, ChunkSize::DEFAULT, None) else { return };
    if laid.length_bytes <= IMAGE_MAX && places <= INODES_MAX {
        write(&tar);
    }
}

/// Packs a tar, and packs it again like the first image.
fn write(tar: &[u8]) {
    let medium = File::from(memfd_create("tar", MemfdFlags::CLOEXEC).expect("memory"));
    medium.write_all_at(tar, 0).expect("memory");
    let source = PathBuf::from(format!("/proc/self/fd/{}", medium.as_raw_fd()));
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let packed = |output: &Path, like: Option<&Path>| pack(&source, output, like, ChunkSize::DEFAULT, &|_| ());
    match packed(&one, None) {
        Ok(_) => {
            let shared = packed(&other, Some(&one)).expect("it was packed once").shared;
            assert_eq!(shared.same, shared.with_data, "the same tar has other chunks");
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!one.exists() && !line.contains('\n'), "{line:?}");
        }
    }
}

/// Puts the right checksum into a block that may be a header.
fn seal(block: &mut [u8]) {
    if block.iter().all(|byte| *byte == 0) {
        return;
    }
    block[SUM].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[SUM].copy_from_slice(format!("{sum:0>6o}\0 ").as_bytes());
}

/// An entry with a right checksum, and the contents behind it.
pub fn entry(kind: u8, path: &str, target: &str, contents: &[u8]) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, path.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0001750\0");
    put(116, b"0001750\0");
    put(124, format!("{:0>11o}\0", contents.len()).as_bytes());
    put(136, b"14371573000\0");
    put(156, &[kind]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    seal(&mut header);
    header.extend(contents);
    header.resize(header.len().next_multiple_of(BLOCK), 0);
    header
}

/// A tar of each kind of entry, short ones of one kind, and a text.
pub fn seeds() -> Vec<Vec<u8>> {
    let xattr = b"32 SCHILY.xattr.user.name=value\n";
    let kinds = [
        entry(b'5', "d/", "", b""),
        entry(b'0', "d/file", "", b"contents"),
        entry(b'1', "again", "d/file", b""),
        entry(b'2', "link", "d/file", b""),
        entry(b'3', "device", "", b""),
        entry(b'6', "pipe", "", b""),
        entry(b'x', "records", "", xattr),
        entry(b'0', "large", "", &[7; 3000]),
        entry(b'0', "d/.wh.gone", "", b""),
    ];
    let map = [b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n".as_slice(), b"31 GNU.sparse.realsize=1000000\n"];
    let sparse = [
        entry(b'x', "records", "", &map.concat()),
        entry(b'0', "GNUSparseFile.0/s", "", &[b"1\n500000\n3\n".as_slice(), &[0; BLOCK - 11], b"abc"].concat()),
    ];
    let long = [entry(b'L', "././@LongLink", "", b"a/long/name\0"), entry(b'0', "short", "", b"x")];
    let marked = |how: u8, tar: &[u8]| [&[how], tar].concat();
    vec![
        marked(0, &kinds.concat()),
        marked(1, &kinds[..4].concat()),
        marked(1, &sparse.concat()),
        marked(1, &long.concat()),
        marked(1, &kinds[1]),
        marked(0, b"no tar"),
    ]
}
