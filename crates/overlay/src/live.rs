//! The live file of an overlay in a folder: the present state of each granule, for the daemon after
//! a killed one.
//!
//! A kernel whose daemon was killed goes on with the next one. It repeats unanswered requests, and
//! relies on answered ones. So every answered change has to be found again, flushed or not. Its
//! bytes are there, as the kernel keeps the pages of a file when a process ends. This file says
//! that they count; it is written before the answer. It costs no wait, as nothing is forced to the
//! disk for it.
//!
//! After a power loss pages are gone, and only the journal counts. So this file names its boot, and
//! is invalid in any other. It is also invalid beside other granules than its own, if somebody has
//! restored old files.
//!
//! ```text
//! header   "VFOVLIV\0"  version: u32  granule: u32  image id: 32 bytes  size: u64
//!          inode of the data: u64  boot id: 36 bytes, then zeros
//! states   from 4096 on: for each area 64 bytes
//! ```
//! Invariant: its states of an area are those of the map, or the next ones.

use crate::error::OpenError;
use crate::folder::open_private;
use crate::granule::{AREA_STATES_BYTES, Area, Areas, Cut};
use crate::journal::Subject;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"VFOVLIV\0";
/// Raised when the file changes its meaning.
const VERSION: u32 = 1;
/// A page, so that the states of an area lie in one: a copy into one page is not cut short by a
/// kill.
const HEADER_BYTES: u64 = 4096;
/// Areas read at a time: those of 1 GiB of the device.
const READ_AREAS: u64 = 1 << 10;
/// The kernel's file with the id of this boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The path of the file, and its header if it counts.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    cut: Cut,
    header: Vec<u8>,
}

/// The file. Used by the overlay only.
#[derive(Debug)]
pub struct Live {
    file: File,
    cut: Cut,
    header: Vec<u8>,
}

impl Place {
    /// The place for a device whose granules are in `data`, in this boot of the machine.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(path: PathBuf, subject: Subject, data: &File) -> Result<Self, OpenError> {
        let boot = std::fs::read(BOOT_ID).map_err(OpenError::at(Path::new(BOOT_ID)))?;
        let inode = data.metadata().map_err(OpenError::at(&path))?.ino();
        let header = [&subject.head(MAGIC, VERSION)[..], &inode.to_le_bytes(), boot.trim_ascii()].concat();
        Ok(Self { path, cut: subject.cut, header })
    }

    /// Opens the file of a killed daemon; `None` if there was none.
    ///
    /// # Errors
    /// If it is damaged, or the system refuses. Nothing is changed.
    pub fn find(&self) -> Result<Option<(Live, Areas)>, OpenError> {
        let failed = || OpenError::at(&self.path);
        let file = match File::options().read(true).write(true).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed()(error)),
        };
        let mut found = vec![0; self.header.len()];
        match file.read_exact_at(&mut found, 0) {
            Ok(()) if found == self.header => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(failed()(error)),
            // Another boot's, or never finished.
            _ => return Ok(None),
        }
        let live = self.file(file);
        let damaged = |what| OpenError::Damaged { path: self.path.clone(), what };
        if live.file.metadata().map_err(failed())?.len() != live.place(self.cut.areas()) {
            return Err(damaged("its length is not the device's"));
        }
        let areas = live.read().map_err(failed())?.ok_or_else(|| damaged("it has impossible values"))?;
        Ok(Some((live, areas)))
    }

    /// Begins a file with the states of `areas`, in place of an old one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn begin(&self, areas: &Areas) -> Result<Live, OpenError> {
        let live = self.file(open_private(&self.path).map_err(OpenError::at(&self.path))?);
        let areas = areas.iter().map(|(area, states)| (*area, *states));
        live.clear().and_then(|()| live.rewrite(areas)).map_err(OpenError::at(&self.path))?;
        Ok(live)
    }

    fn file(&self, file: File) -> Live {
        Live { file, cut: self.cut, header: self.header.clone() }
    }
}

impl Live {
    fn place(&self, area: u64) -> u64 {
        HEADER_BYTES + area * AREA_STATES_BYTES as u64
    }

    /// Writes the states of an area, for the next process.
    pub fn set(&self, area: u64, states: &Area) -> io::Result<()> {
        self.file.write_all_at(&states.encode(), self.place(area))
    }

    /// Says several things at once: all of them or, as long as it has no header, nothing.
    pub fn rewrite(&self, areas: impl IntoIterator<Item = (u64, Area)>) -> io::Result<()> {
        self.file.write_all_at(&vec![0; self.header.len()], 0)?;
        areas.into_iter().try_for_each(|(area, states)| self.set(area, &states))?;
        self.file.write_all_at(&self.header, 0)
    }

    /// Without a header, and everything the base's.
    fn clear(&self) -> io::Result<()> {
        let end = self.place(self.cut.areas());
        self.file.set_len(0)?;
        self.file.set_len(end)?;
        // Room is taken now, so that on a full disk nothing fails but what needs room itself.
        match retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), 0, end)) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    /// The areas with changed granules; `None` if the states of one are invalid.
    fn read(&self) -> io::Result<Option<Areas>> {
        let (mut areas, mut buffer) = (Areas::new(), vec![0; READ_AREAS as usize * AREA_STATES_BYTES]);
        for first in (0..self.cut.areas()).step_by(READ_AREAS as usize) {
            let count = (self.cut.areas() - first).min(READ_AREAS);
            let bytes = &mut buffer[..count as usize * AREA_STATES_BYTES];
            self.file.read_exact_at(bytes, self.place(first))?;
            for (area, states) in (first..).zip(bytes.as_chunks().0) {
                let Some(states) = Area::decode(states, self.cut.granules_of(area)) else { return Ok(None) };
                if !states.is_base() {
                    areas.insert(area, states);
                }
            }
        }
        Ok(Some(areas))
    }
}
