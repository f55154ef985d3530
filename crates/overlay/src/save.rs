//! Saving an overlay during writes: a file with the changes of one moment.
//!
//! That moment is the beginning of the save: all areas are locked for as long as it takes to copy
//! the map. From then on each held granule has a place in the file. A writer that is about to
//! change such a granule copies it there first, unless the saver has been faster. So the file has
//! all changes from before the save and none from after it. A writer waits for one granule's copy
//! at most.

use crate::entry;
use crate::error::SaveError;
use crate::granule::{AREA_BYTES, Area, GRANULE_BYTES};
use crate::inner::{Inner, lock};
use crate::saved::{HASH_BYTES, Header};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};

/// Bytes hashed or copied at a time.
pub const COPY_BYTES: usize = 1 << 20;

/// A save that is under way.
pub struct Saving {
    file: File,
    /// The areas of the moment, in order, and the place of each one's first held granule among all.
    areas: Vec<(u64, Area, u64)>,
    header: Header,
    /// The unsaved part of each area, in the order of `areas`. It changes under the area's lock, or
    /// under that lock for reading by the one saver, so the mutex is for the compiler.
    left: Vec<Mutex<Area>>,
    /// The first thing that went wrong with the file.
    failed: Mutex<Option<io::Error>>,
}

impl Saving {
    fn new(inner: &Inner, file: File) -> Self {
        let mut held = 0;
        let mut areas = Vec::new();
        for (area, states) in inner.map.changed() {
            areas.push((area, states, held));
            held += states.held();
        }
        let left = areas.iter().map(|(_, states, _)| Mutex::new(*states)).collect();
        let (entries, size_bytes) = (areas.len() as u64, inner.cut.size_bytes());
        let header = Header { image: inner.image, size_bytes, entries, held };
        Self { file, areas, header, left, failed: Mutex::default() }
    }

    /// Copies the held and unsaved ones among `granules`. The caller holds the area's lock.
    fn copy(&self, inner: &Inner, area: u64, granules: Range<usize>) {
        let Ok(index) = self.areas.binary_search_by_key(&area, |(number, ..)| *number) else { return };
        let (_, states, rank) = &self.areas[index];
        let mut left = lock(&self.left[index]);
        let runs: Vec<_> = left.held_runs().collect();
        for run in runs {
            let run = run.start.max(granules.start)..run.end.min(granules.end);
            if run.is_empty() {
                continue;
            }
            let place = rank + states.held_in(0..run.start);
            if let Err(error) = self.copy_run(inner, area, run.clone(), place) {
                lock(&self.failed).get_or_insert(error);
                return;
            }
            left.set(run, crate::granule::State::Base);
        }
    }

    fn copy_run(&self, inner: &Inner, area: u64, run: Range<usize>, place: u64) -> io::Result<()> {
        let mut bytes = vec![0; run.len() * GRANULE_BYTES as usize];
        inner.medium.read(area * AREA_BYTES + run.start as u64 * GRANULE_BYTES, &mut bytes)?;
        self.file.write_all_at(&bytes, self.header.granules_at() + place * GRANULE_BYTES)
    }

    fn write_front(&self) -> io::Result<()> {
        let mut bytes = self.header.encode();
        let mut at = 0;
        for (area, states, _) in &self.areas {
            entry::encode(*area, states, &mut bytes);
            if bytes.len() >= COPY_BYTES {
                self.file.write_all_at(&bytes, at)?;
                at += bytes.len() as u64;
                bytes.clear();
            }
        }
        self.file.write_all_at(&bytes, at)
    }
}

impl Inner {
    /// Called before granules are changed, under their area's lock: a save that is under way needs
    /// them as they are.
    pub fn preserve(&self, area: u64, granules: Range<usize>) {
        if self.is_saving.load(Ordering::Relaxed)
            && let Some(saving) = lock(&self.saving).clone()
        {
            saving.copy(self, area, granules);
        }
    }

    /// Saves the present changes into `file`, which is new, empty, readable and writable; returns
    /// its length. Its bytes are not on the disk yet. Blocks; changes go on meanwhile.
    pub fn save(&self, file: &File) -> Result<u64, SaveError> {
        let _turn = self.turn()?;
        let saving = {
            let file = file.try_clone().map_err(SaveError::File)?;
            let _all = self.lock_all();
            let saving = Arc::new(Saving::new(self, file));
            *lock(&self.saving) = Some(saving.clone());
            self.is_saving.store(true, Ordering::Relaxed);
            saving
        };
        let written = saving.write_front();
        for (area, ..) in &saving.areas {
            if written.is_err() || lock(&saving.failed).is_some() {
                break;
            }
            let _guard = self.lock_to_read(*area);
            saving.copy(self, *area, 0..crate::granule::AREA_GRANULES as usize);
        }
        {
            let _all = self.lock_all();
            self.is_saving.store(false, Ordering::Relaxed);
            *lock(&self.saving) = None;
        }
        written.map_err(SaveError::File)?;
        if let Some(error) = lock(&saving.failed).take() {
            return Err(SaveError::File(error));
        }
        finish(file, &saving.header).map_err(SaveError::File)
    }

    /// The turn to save, to reset or to restore.
    pub fn turn(&self) -> Result<std::sync::MutexGuard<'_, ()>, SaveError> {
        match self.housekeeping.try_lock() {
            Ok(turn) => Ok(turn),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(SaveError::Busy),
        }
    }

    /// Drops all changes.
    pub fn reset(&self) -> Result<(), SaveError> {
        let _turn = self.turn()?;
        let mut journal = self.journal.as_ref().map(lock);
        let _all = self.lock_all();
        if let Some(journal) = &mut journal {
            // Before anything is punched: what the index says is held has to be there.
            journal.restart(&[]).map_err(SaveError::Medium)?;
        }
        let areas: Vec<u64> = self.map.changed().map(|(area, _)| area).collect();
        if let (Some(journal), Some(live)) = (&mut journal, &self.live)
            && let Err(error) = live.rewrite(areas.iter().map(|area| (*area, Area::default())))
        {
            // The state after a kill is unknown from here on.
            journal.give_up(error.to_string());
            return Err(SaveError::Medium(error));
        }
        areas.into_iter().for_each(|area| self.map.store(area, &Area::default()));
        lock(&self.uncommitted).clear();
        self.refused.clear();
        self.zeros.store(0, Ordering::Relaxed);
        self.room.give_back(self.room.held_bytes() / GRANULE_BYTES);
        self.medium.punch(0..self.cut.file_bytes().max(1)).map_err(SaveError::Medium)
    }
}

/// Adds the checksum.
fn finish(file: &File, header: &Header) -> io::Result<u64> {
    let length = header.file_bytes().ok_or(ErrorKind::FileTooLarge)?;
    let covered = length - HASH_BYTES as u64;
    let hash = hash(file, covered)?;
    file.write_all_at(hash.as_bytes(), covered)?;
    Ok(length)
}

/// BLAKE3 of the first `length` bytes of a file.
pub fn hash(file: &File, length: u64) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < length {
        let part = (length - at).min(COPY_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..part], at)?;
        hasher.update(&buffer[..part]);
        at += part as u64;
    }
    Ok(hasher.finalize())
}
