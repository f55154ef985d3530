//! Checks that a source keeps what the exports rely on.
//!
//! [`check_source`] is for every source: names, all bytes read in several ways, and zeros.
//! [`check_device`] is for a source that can be written, and changes what it holds.
//! A check names the first rule that is broken, with the extent.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use vfield_export::{FileSource, conformance};
//! let source = FileSource::open("disk.img".as_ref())?;
//! conformance::check_source(&source).await?;
//! # Ok(()) }
//! ```

use bytes::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use vfield_block::device::{BlockDevice, GRANULE_BYTES};
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, Piece, Urgency};

/// A rule that a source breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

/// Longest extent that is read at once, in bytes; a device of any size is read in steps of this.
const STEP_BYTES: u64 = 1 << 20;

/// Fails unless a rule holds; the text says the rule.
fn rule(holds: bool, text: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(text())) }
}

/// Checks a source by reading all of it. Changes nothing.
///
/// # Errors
/// The first rule that is broken.
pub async fn check_source(source: &dyn BlockSource) -> Result<(), Broken> {
    check_names(source)?;
    let (size, chunk) = (source.size_bytes(), source.chunk_bytes());
    rule(chunk.is_power_of_two(), || format!("chunk_bytes is {chunk}, no power of two"))?;
    let all = Extent::from(0..size);
    source.prefetch(all.take(STEP_BYTES), Urgency::Soon);
    let mut at = 0;
    while at < size {
        let extent = all.skip(at).take(STEP_BYTES);
        let bytes = read_all(source, extent).await?;
        check_parts(source, extent, &bytes).await?;
        check_zeros(source, extent, &bytes).await?;
        at = extent.end();
    }
    if source.is_complete() {
        let here = source.try_read(all.take(STEP_BYTES), &mut Vec::new());
        rule(here, || "is_complete is true, and try_read finds bytes missing".to_owned())?;
    }
    Ok(())
}

/// Checks a source that can be written. Writes into the first granules, and trims them in the end.
///
/// # Errors
/// The first rule that is broken.
pub async fn check_device(source: &dyn BlockSource) -> Result<(), Broken> {
    let device = source.device().ok_or_else(|| Broken("device is none: the source cannot be written".to_owned()))?;
    let size = device.size_bytes();
    rule(size % 512 == 0, || format!("the length of a device, {size}, is no multiple of 512"))?;
    let granule = u64::from(GRANULE_BYTES);
    rule(size >= 3 * granule, || format!("a device of {size} bytes is too short for this check"))?;
    let users = device.users().count();
    let user = device.users().enter();
    rule(device.users().count() == users + 1, || "a user is not counted".to_owned())?;
    drop(user);
    // Whole granules, odd ends, and a change across the border of two granules.
    let places = [(0, granule), (512, 512), (granule - 7, 20), (2 * granule + 1, 3), (granule, 2 * granule)];
    for (turn, (offset, length)) in places.into_iter().enumerate() {
        let pattern = vec![turn as u8 + 1; length as usize];
        let extent = Extent::from(offset..offset + length);
        let before = read_all(source, Extent::from(0..3 * granule)).await?;
        write(device, offset, &pattern).await?;
        let after = read_all(source, Extent::from(0..3 * granule)).await?;
        let (start, end) = (offset as usize, (offset + length) as usize);
        rule(after[start..end] == pattern[..], || format!("bytes {extent:?} are not what was written"))?;
        let same = before[..start] == after[..start] && before[end..] == after[end..];
        rule(same, || format!("a write of bytes {extent:?} changed others"))?;
    }
    let first = Extent::from(0..granule);
    let told = device.zero(first).await;
    told.map_err(|error| Broken(format!("zeroing bytes {first:?} failed: {error}")))?;
    rule(is_zero(&read_all(source, first).await?), || format!("bytes {first:?} were zeroed and are not zeros"))?;
    let told = device.discard(Extent::from(0..3 * granule));
    told.map_err(|error| Broken(format!("trimming failed: {error}")))?;
    rule(is_zero(&read_all(source, Extent::from(0..3 * granule)).await?), || {
        "trimmed granules do not read as zeros".to_owned()
    })?;
    device.flush().await.map_err(|error| Broken(format!("a flush failed: {error}")))
}

fn check_names(source: &dyn BlockSource) -> Result<(), Broken> {
    let names = source.names();
    rule(names.contains(&source.name()), || format!("names lacks the name {:?}", source.name()))?;
    for name in names {
        let fits = !name.is_empty() && name.len() <= 255 && !name.contains('/');
        rule(fits, || format!("{name:?} is not 1 to 255 bytes without a slash"))?;
    }
    Ok(())
}

/// All bytes of `extent`, read as exports read: again with the rest, until there is none.
async fn read_all(source: &dyn BlockSource, extent: Extent) -> Result<Vec<u8>, Broken> {
    let (mut bytes, mut left) = (Vec::new(), extent);
    while !left.is_empty() {
        let read =
            source.read(left).await.map_err(|error| Broken(format!("reading bytes {left:?} failed: {error}")))?;
        let length: u64 = read.iter().map(Piece::len).sum();
        rule(length > 0, || format!("a read of bytes {left:?} gave none"))?;
        rule(length <= left.len(), || format!("a read of bytes {left:?} gave {length} bytes"))?;
        append(&read, &mut bytes, left)?;
        left = left.skip(length);
    }
    Ok(bytes)
}

/// Adds the bytes of pieces that were read from `extent`.
fn append(pieces: &[Piece], bytes: &mut Vec<u8>, extent: Extent) -> Result<(), Broken> {
    for piece in pieces {
        rule(!piece.is_empty(), || format!("an empty piece among those of bytes {extent:?}"))?;
        match piece {
            Piece::Zero(length) => bytes.resize(bytes.len() + *length as usize, 0),
            Piece::Bytes(piece) => bytes.extend_from_slice(piece),
            Piece::File(piece) => {
                let start = bytes.len();
                bytes.resize(start + piece.len() as usize, 0);
                let file = piece.fd().try_clone_to_owned().map(File::from);
                let read = file.and_then(|file| file.read_exact_at(&mut bytes[start..], piece.offset()));
                read.map_err(|error| Broken(format!("the file behind bytes {extent:?} has not all of them: {error}")))?;
            }
        }
    }
    Ok(())
}

/// The same bytes at odd places, by `try_read` and by `read`.
async fn check_parts(source: &dyn BlockSource, extent: Extent, bytes: &[u8]) -> Result<(), Broken> {
    let parts = [extent.take(1), extent.skip(1).take(511), extent.skip(extent.len() / 2).take(4097), extent];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let start = (part.start() - extent.start()) as usize;
        let expected = &bytes[start..start + part.len() as usize];
        let again = read_all(source, part).await?;
        rule(again == expected, || format!("bytes {part:?} of one read differ from those of another"))?;
        let mut pieces = Vec::new();
        if source.try_read(part, &mut pieces) {
            let mut tried = Vec::new();
            append(&pieces, &mut tried, part)?;
            rule(tried == expected, || format!("try_read of bytes {part:?} gave others than read"))?;
        } else {
            rule(pieces.is_empty(), || format!("try_read of bytes {part:?} said no and left pieces"))?;
        }
    }
    Ok(())
}

/// The runs that `allocation` names cover the extent, and zero runs hold zeros.
async fn check_zeros(source: &dyn BlockSource, extent: Extent, bytes: &[u8]) -> Result<(), Broken> {
    let mut left = extent;
    while !left.is_empty() {
        let runs = source.allocation(left).await;
        let runs = runs.map_err(|error| Broken(format!("allocation of bytes {left:?} failed: {error}")))?;
        let length: u64 = runs.iter().map(|run| run.length_bytes).sum();
        rule(length > 0 && length <= left.len(), || format!("allocation of bytes {left:?} covers {length} bytes"))?;
        for run in runs {
            let start = (left.start() - extent.start()) as usize;
            let part = &bytes[start..start + run.length_bytes as usize];
            rule(!run.zero || is_zero(part), || {
                format!("bytes {:?} are said to be zeros", left.take(run.length_bytes))
            })?;
            left = left.skip(run.length_bytes);
        }
    }
    Ok(())
}

async fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Result<(), Broken> {
    let written = match device.try_write(offset, bytes) {
        Some(written) => written,
        None => device.write(offset, Bytes::copy_from_slice(bytes)).await,
    };
    written.map_err(|error| Broken(format!("writing {} bytes at {offset} failed: {error}", bytes.len())))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
