//! Images made of repeatable bytes, and byte counts for people.

use crate::LabError;
use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of one mebibyte.
pub const MIB: u64 = 1 << 20;

/// Writes a file of `length` pseudo-random bytes: the same bytes for the same seed, none of them
/// compressible.
///
/// # Errors
/// If the file cannot be written.
pub fn random_file(path: &Path, length: u64, seed: u64) -> Result<PathBuf, LabError> {
    let file = File::create(path).map_err(LabError::at(path))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    // xorshift64 (Marsaglia, 2003); its state must not be zero.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut left = length;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = state.to_le_bytes();
        let part = left.min(8);
        out.write_all(&bytes[..usize::try_from(part).expect("at most 8")]).map_err(LabError::at(path))?;
        left -= part;
    }
    out.flush().map_err(LabError::at(path))?;
    Ok(path.to_owned())
}

/// Writes a file of `length` bytes with holes. Pieces of `piece` bytes look random, and after each
/// there is a hole `every - 1` times as long.
///
/// # Errors
/// If the file cannot be written.
pub fn sparse_file(path: &Path, length: u64, piece: u64, every: u64, seed: u64) -> Result<PathBuf, LabError> {
    let pieces = length.div_ceil(piece * every);
    let bytes = random_file(&path.with_extension("bytes"), piece * pieces, seed)?;
    let copied = File::open(&bytes).and_then(|mut from| {
        let mut to = File::create(path)?;
        to.set_len(length)?;
        for number in 0..pieces {
            let at = number * piece * every;
            to.seek(SeekFrom::Start(at))?;
            std::io::copy(&mut (&mut from).take(piece.min(length - at)), &mut to)?;
        }
        std::fs::remove_file(&bytes)
    });
    copied.map(|()| path.to_owned()).map_err(LabError::at(path))
}

/// Writes a file of `length` bytes: those of another, again and again.
///
/// # Errors
/// If a file cannot be read or written, or the other is empty.
pub fn file_of(path: &Path, length: u64, content: &Path) -> Result<PathBuf, LabError> {
    let mut out = File::create(path).map_err(LabError::at(path))?;
    let mut left = length;
    while left > 0 {
        let content_file = File::open(content).map_err(LabError::at(content))?;
        let copied = std::io::copy(&mut content_file.take(left), &mut out).map_err(LabError::at(path))?;
        if copied == 0 {
            return Err(LabError::at(content)(std::io::ErrorKind::UnexpectedEof.into()));
        }
        left -= copied;
    }
    Ok(path.to_owned())
}

/// `312 MB`, `4.1 GB`: three digits, decimal units.
pub fn human(bytes: u64) -> String {
    let units = [(1_000_000_000_u64, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let Some(&(unit, name)) = units.iter().find(|(unit, _)| bytes >= *unit) else { return format!("{bytes} B") };
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = bytes as f64 / unit as f64;
    if value < 10.0 { format!("{value:.1} {name}") } else { format!("{value:.0} {name}") }
}
