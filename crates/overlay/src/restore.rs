//! Restoring a saved overlay into an empty one.
//!
//! The file is hostile until its checksum is verified, and even then every entry is checked:
//! impossible ones are refused, and memory is bounded by one area whatever the file says. Nothing
//! is changed before the checksum is verified.

use crate::entry::{self, ENTRY_BYTES};
use crate::error::RestoreError;
use crate::granule::{AREA_BYTES, Area, Cut, GRANULE_BYTES};
use crate::inner::Inner;
use crate::save;
use crate::saved::{Bad, HASH_BYTES, HEADER_BYTES, Header};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Reads the header of a saved overlay only: obvious errors are found before anything starts.
///
/// # Errors
/// If it is no saved overlay, incomplete, or of a newer version.
pub fn check(path: &Path) -> Result<Header, RestoreError> {
    open(path).map(|(_, header)| header)
}

fn open(path: &Path) -> Result<(File, Header), RestoreError> {
    let failed = || RestoreError::at(path);
    let file = File::open(path).map_err(failed())?;
    let metadata = file.metadata().map_err(failed())?;
    if !metadata.is_file() {
        return Err(RestoreError::Foreign(path.to_owned()));
    }
    let mut front = Vec::with_capacity(HEADER_BYTES);
    (&file).take(HEADER_BYTES as u64).read_to_end(&mut front).map_err(failed())?;
    let header = Header::parse(&front).map_err(|bad| match bad {
        Bad::Foreign => RestoreError::Foreign(path.to_owned()),
        Bad::Newer(version) => RestoreError::Newer { path: path.to_owned(), version },
        Bad::Corrupt => corrupt(path, "its header has impossible values"),
    })?;
    let (found_bytes, wanted_bytes) = (metadata.len(), header.file_bytes().unwrap_or(u64::MAX));
    if found_bytes < wanted_bytes {
        return Err(RestoreError::Truncated { path: path.to_owned(), found_bytes, wanted_bytes });
    }
    if found_bytes > wanted_bytes {
        return Err(corrupt(path, "it is longer than its header says"));
    }
    Ok((file, header))
}

fn corrupt(path: &Path, what: &'static str) -> RestoreError {
    RestoreError::Corrupt { path: path.to_owned(), what }
}

impl Inner {
    /// Loads the changes of a saved overlay into this empty one. Returns the bytes held. Blocks for
    /// the time of reading the file twice. The overlay must have no users yet.
    pub fn restore(&self, path: &Path) -> Result<u64, RestoreError> {
        if !self.is_empty() {
            return Err(RestoreError::NotEmpty(path.to_owned()));
        }
        let (file, header) = open(path)?;
        if header.image != self.image {
            return Err(RestoreError::OtherImage { path: path.to_owned(), found: header.image, wanted: self.image });
        }
        let (held_bytes, max_bytes) = (header.held * GRANULE_BYTES, self.room.max_bytes());
        if held_bytes > max_bytes {
            return Err(RestoreError::TooLarge { path: path.to_owned(), held_bytes, max_bytes });
        }
        let covered = header.file_bytes().unwrap_or_default() - HASH_BYTES as u64;
        let mut sum = [0; HASH_BYTES];
        let found = save::hash(&file, covered).and_then(|hash| file.read_exact_at(&mut sum, covered).map(|()| hash));
        if found.map_err(RestoreError::at(path))? != blake3::Hash::from_bytes(sum) {
            return Err(corrupt(path, "its checksum is wrong"));
        }
        let restored = self.apply(path, &file, &header);
        if restored.is_err() {
            // As it was: empty.
            let dropped = self.reset();
            dropped.map_err(|error| corrupt_overlay(path, &error))?;
        }
        restored.map(|()| held_bytes)
    }

    fn apply(&self, path: &Path, file: &File, header: &Header) -> Result<(), RestoreError> {
        let failed = || RestoreError::at(path);
        if header.size_bytes != self.cut.size_bytes() {
            return Err(corrupt(path, "it is of a device of another length"));
        }
        let (mut last, mut place, mut left) = (None, header.granules_at(), header.held);
        for index in 0..header.entries {
            let (area, states) = entry_at(file, index, self.cut)
                .map_err(failed())?
                .ok_or_else(|| corrupt(path, "an entry has impossible values"))?;
            left = match left.checked_sub(states.held()) {
                Some(left) if last.is_none_or(|last| last < area) => left,
                _ => return Err(corrupt(path, "its entries do not fit together")),
            };
            last = Some(area);
            if !self.room.take(states.held()) {
                return Err(corrupt(path, "it holds more than it says"));
            }
            for run in states.held_runs() {
                let mut bytes = vec![0; run.len() * GRANULE_BYTES as usize];
                file.read_exact_at(&mut bytes, place).map_err(failed())?;
                place += bytes.len() as u64;
                let offset = area * AREA_BYTES + run.start as u64 * GRANULE_BYTES;
                self.medium.write(offset, &bytes).map_err(failed())?;
            }
            let _guard = self.lock_to_write(area);
            self.settle(area, &Area::default(), &states);
        }
        if left == 0 { Ok(()) } else { Err(corrupt(path, "it holds less than it says")) }
    }
}

fn entry_at(file: &File, index: u64, cut: Cut) -> std::io::Result<Option<(u64, Area)>> {
    let mut bytes = [0; ENTRY_BYTES];
    file.read_exact_at(&mut bytes, HEADER_BYTES as u64 + index * ENTRY_BYTES as u64)?;
    Ok(entry::decode(&bytes, cut))
}

/// Neither could it be restored, nor what there was of it be dropped again.
fn corrupt_overlay(path: &Path, error: &crate::error::SaveError) -> RestoreError {
    RestoreError::System { path: path.to_owned(), source: std::io::Error::other(error.to_string()) }
}
