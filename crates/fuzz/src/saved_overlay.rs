//! Saved overlays: files that people carry from machine to machine.
//!
//! Promises: restored changes are those of the header; a refused file leaves the overlay empty; a
//! header has one encoding. Inputs get a right checksum, the header's length and bytes for their
//! granules, since no fuzzer finds those.

use crate::source::{Image, LENGTH};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use vfield_core::image::ImageId;
use vfield_overlay::granule::GRANULE_BYTES;
use vfield_overlay::saved::{HEADER_BYTES, Header};
use vfield_overlay::{Overlay, RestoreError};

const ID: ImageId = ImageId([7; 32]);
/// What an overlay may hold: less than the image has, so that this bound is met as well.
const HELD_MAX: u64 = 64 * GRANULE_BYTES;
/// Longer files are not made; what they claim is met in their headers.
const FILE_MAX: u64 = 1 << 20;

/// The first byte: the file as it is, or completed. Then the file's header and entries.
pub fn target(bytes: &[u8]) {
    let Some((how, file)) = bytes.split_first() else { return };
    let parsed = Header::parse(file);
    if let Ok(header) = &parsed {
        assert_eq!(header.encode(), file[..HEADER_BYTES], "a header has one encoding");
        assert!(header.file_bytes().is_some_and(|length| length > header.granules_at()));
    }
    let mut file = file.to_vec();
    if let (1, Ok(header)) = (how & 1, &parsed) {
        let covered = header.file_bytes().unwrap_or_default() - 32;
        if covered > FILE_MAX {
            return;
        }
        file.resize(covered as usize, 0xa5);
        let hash = blake3::hash(&file);
        file.extend_from_slice(hash.as_bytes());
    }
    let medium = File::from(memfd_create("saved", MemfdFlags::CLOEXEC).expect("memory"));
    medium.write_all_at(&file, 0).expect("memory");
    let path = format!("/proc/self/fd/{}", medium.as_raw_fd());
    let overlay = Overlay::in_memory(Image::shared(), ID, HELD_MAX).expect("memory");
    let restored = overlay.restore(path.as_ref());
    let usage = overlay.usage();
    match restored {
        Ok(held) => {
            let header = parsed.expect("a file without a header was restored");
            assert_eq!(header.image, ID);
            assert_eq!(usage.held_bytes, held);
            assert_eq!(held, header.held * GRANULE_BYTES);
            assert!(held <= HELD_MAX);
        }
        Err(error) => {
            assert!(!usage.is_used(), "{error}, and something was left of it");
            assert!(how & 1 == 1 || parsed.is_err() || !matches!(error, RestoreError::Foreign(_)));
        }
    }
}

/// A saved overlay with these areas: the number of each, and the states of its first granules, one
/// a byte.
fn saved(areas: &[(u64, &[u8])]) -> Vec<u8> {
    let held = areas.iter().flat_map(|(_, states)| *states).filter(|state| **state == 1).count() as u64;
    let size_bytes = LENGTH.next_multiple_of(512) as u64;
    let mut bytes = vec![1];
    bytes.extend(Header { image: ID, size_bytes, entries: areas.len() as u64, held }.encode());
    for (area, states) in areas {
        bytes.extend(crate::journal::entry(*area, states));
    }
    bytes
}

/// Without changes, with some, with too many; as it comes.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut plain = saved(&[(0, &[1, 2])]);
    plain[0] = 0;
    vec![saved(&[]), saved(&[(0, &[1, 0, 2, 1])]), saved(&[(0, &[2; 64]), (1, &[1])]), saved(&[(0, &[1; 65])]), plain]
}
