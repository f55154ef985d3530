//! The journal of an overlay in a folder: which granules of its data file count.
//!
//! A header, then records. A record has the granules' states for some areas; of several the last
//! one counts. A flush writes its record after the granules are on the disk, and ends when the
//! record is there too. So an incomplete record belongs to a flush without an answer; it alone is
//! dropped. A long journal is replaced by one with the same content in one record.
//!
//! ```text
//! header   "VFOVIDX\0"  version: u32  granule: u32  image id: 32 bytes  size: u64
//!          BLAKE3 of these: 32 bytes
//! record   "VFIR"  entries: u32  number: u64  entries x (area: u64, states: 64 bytes)
//!          BLAKE3 of these: 32 bytes
//! ```
//! Numbers are little-endian; records are numbered from 1 on.

use crate::entry::{self, ENTRY_BYTES};
use crate::error::OpenError;
use crate::folder::{Folder, open_private};
use crate::granule::{Area, Areas, Cut, GRANULE_BYTES};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfield_core::image::ImageId;

const MAGIC: &[u8; 8] = b"VFOVIDX\0";
const RECORD_MAGIC: &[u8; 4] = b"VFIR";
/// Raised when the files of a folder change their meaning.
const VERSION: u32 = 1;
const HASH_BYTES: usize = 32;
const HEADER_BYTES: usize = 8 + 4 + 4 + 32 + 8 + HASH_BYTES;
const RECORD_HEAD_BYTES: usize = 4 + 4 + 8;
/// A journal is rewritten when it is twice as long as necessary, plus this many bytes. That is
/// seldom enough to cost nothing, and often enough for a fast start.
const SLACK_BYTES: u64 = 1 << 20;
/// Bytes searched at a time.
const SCAN_BYTES: usize = 1 << 20;

/// Why bytes are no journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// The content is damaged, as described.
    Damaged(&'static str),
    /// A later version wrote them.
    Newer(u32),
    /// They are about another image.
    OtherImage(ImageId),
}

/// The content of a journal.
#[derive(Debug, Default)]
pub struct Replayed {
    /// The changed areas.
    pub areas: Areas,
    /// Number of the last record.
    pub number: u64,
    /// The end of the last record; no answer depends on the bytes after it.
    pub length_bytes: u64,
}

/// The image and the device of the changes.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The image's id.
    pub image: ImageId,
    /// The device's division.
    pub cut: Cut,
}

impl Subject {
    fn header(self) -> Vec<u8> {
        let mut bytes = self.head(MAGIC, VERSION);
        seal(&mut bytes);
        bytes
    }

    /// The first bytes of each file about it, of any kind: magic, version, granule, image id, size.
    pub(crate) fn head(self, magic: &[u8; 8], version: u32) -> Vec<u8> {
        let (granule, size_bytes) = (GRANULE_BYTES as u32, self.cut.size_bytes());
        [magic, &version.to_le_bytes()[..], &granule.to_le_bytes(), &self.image.0, &size_bytes.to_le_bytes()].concat()
    }

    fn check(self, header: &[u8; HEADER_BYTES]) -> Result<(), Bad> {
        if header[..8] != *MAGIC {
            return Err(Bad::Damaged("it is no index of an overlay"));
        }
        let mut rest = &header[8..];
        let version = entry::take_u32(&mut rest);
        if version > VERSION {
            return Err(Bad::Newer(version));
        }
        if !is_sealed(header) {
            return Err(Bad::Damaged("its header has a wrong checksum"));
        }
        let granule = entry::take_u32(&mut rest);
        let (image, mut rest) = rest.split_at(HASH_BYTES);
        if image != self.image.0 {
            return Err(Bad::OtherImage(ImageId(image.try_into().unwrap_or_default())));
        }
        let same = (u64::from(granule), entry::take_u64(&mut rest)) == (GRANULE_BYTES, self.cut.size_bytes());
        if same && version == VERSION { Ok(()) } else { Err(Bad::Damaged("its header has impossible values")) }
    }
}

/// Appends the checksum of `bytes` to them.
fn seal(bytes: &mut Vec<u8>) {
    let hash = blake3::hash(bytes);
    bytes.extend_from_slice(hash.as_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<HASH_BYTES>().is_some_and(|(bytes, hash)| blake3::hash(bytes) == *hash)
}

fn record(number: u64, entries: &[(u64, Area)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_HEAD_BYTES + entries.len() * ENTRY_BYTES + HASH_BYTES);
    bytes.extend_from_slice(RECORD_MAGIC);
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    entries.iter().for_each(|(area, states)| entry::encode(*area, states, &mut bytes));
    seal(&mut bytes);
    bytes
}

/// Reads a whole journal of `length_bytes`.
///
/// Memory is bounded by one record. That is not longer than the file, nor than the states of all
/// areas.
///
/// # Errors
/// `Ok(Err(_))` for a file that is no journal of `subject`.
pub fn replay(file: &File, length_bytes: u64, subject: Subject) -> io::Result<Result<Replayed, Bad>> {
    let mut header = [0; HEADER_BYTES];
    if length_bytes < HEADER_BYTES as u64 {
        return Ok(Err(Bad::Damaged("it is shorter than its header")));
    }
    file.read_exact_at(&mut header, 0)?;
    if let Err(bad) = subject.check(&header) {
        return Ok(Err(bad));
    }
    let mut found = Replayed { length_bytes: HEADER_BYTES as u64, ..Replayed::default() };
    while let Some(bytes) =
        record_at(file, found.length_bytes, length_bytes, subject.cut, |number| number == found.number + 1)?
    {
        for entry in bytes[RECORD_HEAD_BYTES..bytes.len() - HASH_BYTES].chunks_exact(ENTRY_BYTES) {
            let decoded = entry.first_chunk().and_then(|entry| entry::decode(entry, subject.cut));
            let Some((area, states)) = decoded else { return Ok(Err(Bad::Damaged("a record has impossible values"))) };
            if states.is_base() {
                found.areas.remove(&area);
            } else {
                found.areas.insert(area, states);
            }
        }
        found.number += 1;
        found.length_bytes += bytes.len() as u64;
    }
    // The last record may be cut short, and nothing can follow it; if something does, one in the
    // middle is broken.
    if record_after(file, found.length_bytes, length_bytes, subject.cut, found.number)? {
        return Ok(Err(Bad::Damaged("a record in the middle of it is broken")));
    }
    Ok(Ok(found))
}

/// The sound record at `offset` if there is one and its number is `wanted`.
fn record_at(
    file: &File,
    offset: u64,
    end: u64,
    cut: Cut,
    wanted: impl Fn(u64) -> bool,
) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; RECORD_HEAD_BYTES];
    if end.saturating_sub(offset) < (RECORD_HEAD_BYTES + HASH_BYTES) as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut head, offset)?;
    let mut rest = &head[RECORD_MAGIC.len()..];
    let (entries, number) = (u64::from(entry::take_u32(&mut rest)), entry::take_u64(&mut rest));
    let length = RECORD_HEAD_BYTES as u64 + entries * ENTRY_BYTES as u64 + HASH_BYTES as u64;
    if head[..4] != *RECORD_MAGIC || !wanted(number) || entries > cut.areas() || length > end - offset {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(is_sealed(&bytes).then_some(bytes))
}

/// True if a sound record with a number above `last` begins anywhere behind `offset`.
fn record_after(file: &File, offset: u64, end: u64, cut: Cut, last: u64) -> io::Result<bool> {
    let mut buffer = vec![0; SCAN_BYTES];
    let mut start = offset;
    while start < end {
        let part = (end - start).min(SCAN_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..part], start)?;
        // All lengths are multiples of 8, so records begin at multiples of 8 from each other.
        for at in (0..part).step_by(8) {
            let place = start + at as u64;
            if buffer[at..part].starts_with(RECORD_MAGIC)
                && record_at(file, place, end, cut, |number| number > last)?.is_some()
            {
                return Ok(true);
            }
        }
        start += SCAN_BYTES as u64;
    }
    Ok(false)
}

/// The journal of an overlay that is open.
#[derive(Debug)]
pub struct Journal {
    folder: Arc<Folder>,
    path: PathBuf,
    file: File,
    subject: Subject,
    number: u64,
    length_bytes: u64,
    /// Its length when it was last known to have nothing in it twice, or when it was opened.
    short_bytes: u64,
    /// Set when the disk has failed: its content is unknown from then on.
    broken: Option<String>,
}

impl Journal {
    /// Opens the journal of an image, or begins one, and returns its content.
    ///
    /// # Errors
    /// If it is damaged, or another image's, or the system refuses. Nothing is changed then.
    pub fn open(folder: &Arc<Folder>, name: &str, subject: Subject) -> Result<(Self, Replayed), OpenError> {
        let path = folder.index(name);
        let failed = || OpenError::at(&path);
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed()(error)),
        };
        let Some(file) = file else {
            let begun = write_new(&path, subject, &[]).and_then(|begun| folder.sync().map(|()| begun));
            let (file, length_bytes) = begun.map_err(failed())?;
            let replayed = Replayed { length_bytes, ..Replayed::default() };
            return Ok((Self::new(folder, path, file, subject, &replayed), replayed));
        };
        let length_bytes = file.metadata().map_err(failed())?.len();
        let replayed = match replay(&file, length_bytes, subject).map_err(failed())? {
            Ok(replayed) => replayed,
            Err(Bad::Damaged(what)) => return Err(OpenError::Damaged { path, what }),
            Err(Bad::Newer(version)) => return Err(OpenError::Newer { path, version }),
            Err(Bad::OtherImage(found)) => return Err(OpenError::OtherImage { path, found, wanted: subject.image }),
        };
        Ok((Self::new(folder, path, file, subject, &replayed), replayed))
    }

    fn new(folder: &Arc<Folder>, path: PathBuf, file: File, subject: Subject, replayed: &Replayed) -> Self {
        let (number, length_bytes) = (replayed.number, replayed.length_bytes);
        let (folder, short_bytes) = (folder.clone(), length_bytes);
        Self { folder, path, file, subject, number, length_bytes, short_bytes, broken: None }
    }

    /// Removes all bytes after the last valid record.
    pub fn trim(&mut self) -> io::Result<()> {
        self.file.set_len(self.length_bytes)
    }

    /// Writes the states of some areas to the disk. An error leaves the journal unchanged, or
    /// [`Self::broken`].
    pub fn append(&mut self, entries: &[(u64, Area)]) -> io::Result<()> {
        let bytes = record(self.number + 1, entries);
        if let Err(error) = self.file.write_all_at(&bytes, self.length_bytes) {
            // No room, most likely: nothing was promised yet.
            self.trim().inspect_err(|error| self.broken = Some(error.to_string()))?;
            return Err(error);
        }
        self.file.sync_data().inspect_err(|error| self.broken = Some(error.to_string()))?;
        self.number += 1;
        self.length_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Replaces the journal by one with `entries` only, each about another area.
    pub fn restart(&mut self, entries: &[(u64, Area)]) -> io::Result<()> {
        (self.file, self.length_bytes) = write_new(&self.path, self.subject, entries)?;
        (self.number, self.short_bytes) = (u64::from(!entries.is_empty()), self.length_bytes);
        self.folder.sync().inspect_err(|error| self.broken = Some(error.to_string()))
    }

    /// Replaces the journal by one with the same content in one record, if that is much shorter.
    pub fn shorten(&mut self) -> io::Result<()> {
        if self.length_bytes <= 2 * self.short_bytes + SLACK_BYTES {
            return Ok(());
        }
        let replayed = replay(&self.file, self.length_bytes, self.subject)?;
        let replayed = replayed.map_err(|bad| io::Error::other(format!("the journal reads back as {bad:?}")))?;
        self.restart(&replayed.areas.into_iter().collect::<Vec<_>>())
    }

    /// The reason why no change can be made durable any more. After a failed sync the disk's
    /// content is unknown, and the kernel reports the error only once.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Nothing can be made durable any more.
    pub fn give_up(&mut self, why: String) {
        self.broken = Some(why);
    }
}

/// Writes a new journal at `path` in place of the old one. It is atomic and durable once the folder
/// is synced.
fn write_new(path: &Path, subject: Subject, entries: &[(u64, Area)]) -> io::Result<(File, u64)> {
    let mut bytes = subject.header();
    if !entries.is_empty() {
        bytes.extend(record(1, entries));
    }
    let new = path.with_extension("index.new");
    let file = open_private(&new)?;
    file.set_len(0)?;
    file.write_all_at(&bytes, 0)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    Ok((file, bytes.len() as u64))
}
