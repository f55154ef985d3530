//! The overlay's interface: create, query, write and read.

use crate::committer::Committer;
use crate::error::{OpenError, RestoreError, SaveError};
use crate::folder::{Folder, open_private};
use crate::granule::{AREA_BYTES, AREA_GRANULES, Area, Areas, Cut, GRANULE_BYTES, State};
use crate::inner::Inner;
use crate::journal::{Journal, Subject};
use crate::live::Place;
use crate::medium::Medium;
use bytes::Bytes;
use std::fs::File;
use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use vfield_block::device::{BlockDevice, Users, WriteError, Writing};
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, BlockSource, Piece, Reading, Urgency};
use vfield_core::image::ImageId;

/// The sector to which the base's length is rounded up: the smallest that a device can have.
const SECTOR_BYTES: u64 = 512;

/// A block source with private changes over it. See the crate.
pub struct Overlay {
    inner: Arc<Inner>,
    /// `None` in memory.
    committer: Option<Committer>,
}

/// The used room of an overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that take up room, whole granules.
    pub held_bytes: u64,
    /// Bytes that read as zeros and take up none.
    pub zero_bytes: u64,
    /// Bytes that may be held.
    pub max_bytes: u64,
    /// Bytes whose last change was refused: no flush succeeds until they are written or discarded.
    /// [`u64::MAX`] if they are in too many places to be known.
    pub refused_bytes: u64,
}

impl Usage {
    /// True if anything was changed.
    pub fn is_used(&self) -> bool {
        self.held_bytes + self.zero_bytes > 0
    }
}

impl Overlay {
    /// An overlay in memory, over `base`, which has the bytes of `image`. At most `max_bytes` are
    /// held, rounded down to granules.
    ///
    /// # Errors
    /// If no memory file is available.
    pub fn in_memory(base: Arc<dyn BlockSource>, image: ImageId, max_bytes: u64) -> Result<Self, OpenError> {
        let cut = cut_of(base.as_ref());
        let medium = Medium::in_memory(cut.file_bytes()).map_err(OpenError::Memory)?;
        Ok(Self { inner: Arc::new(Inner::new(base, image, cut, medium, max_bytes)), committer: None })
    }

    /// An overlay in a folder, under the base's name, with the existing changes.
    ///
    /// # Errors
    /// If the files are another image's, damaged, of a newer format or above `max_bytes`, or if the
    /// system refuses. They are unchanged then.
    pub fn in_folder(
        base: Arc<dyn BlockSource>,
        image: ImageId,
        folder: &Arc<Folder>,
        max_bytes: u64,
    ) -> Result<Self, OpenError> {
        let cut = cut_of(base.as_ref());
        let (data, index) = (folder.data(base.name()), folder.index(base.name()));
        let failed = || OpenError::at(&data);
        let fresh = !index.try_exists().map_err(OpenError::at(&index))?;
        let file = if fresh {
            let file = open_private(&data).map_err(failed())?;
            // An interrupted start may have left a longer file.
            let made = file.set_len(0).and_then(|()| file.set_len(cut.file_bytes())).and_then(|()| file.sync_all());
            made.map_err(failed())?;
            file
        } else {
            std::fs::File::options().read(true).write(true).open(&data).map_err(failed())?
        };
        let subject = Subject { image, cut };
        let (mut journal, replayed) = Journal::open(folder, base.name(), subject)?;
        if file.metadata().map_err(failed())?.len() != cut.file_bytes() {
            return Err(OpenError::Damaged { path: data, what: "its length is not the device's" });
        }
        let live = Place::new(folder.live(base.name()), subject, &file)?;
        let left = if fresh { None } else { live.find()? };
        let areas = left.as_ref().map_or(&replayed.areas, |(_, areas)| areas);
        let held = areas.values().map(Area::held).sum();
        let mut inner = Inner::new(base, image, cut, Medium::on_disk(file), max_bytes);
        if !inner.room.take(held) {
            let (held_bytes, max_bytes) = (held * GRANULE_BYTES, inner.room.max_bytes());
            return Err(OpenError::TooLarge { path: data, held_bytes, max_bytes });
        }
        for (area, states) in areas {
            inner.settle(*area, &Area::default(), states);
        }
        journal.trim().map_err(OpenError::at(&index))?;
        give_back_rubbish(&inner.medium, areas).map_err(failed())?;
        inner.journal = Some(Mutex::new(journal));
        // Answered, unflushed changes are for the next flush.
        let differs = |area: &&u64| areas.get(area) != replayed.areas.get(area);
        areas.keys().chain(replayed.areas.keys()).filter(differs).for_each(|area| inner.note(*area));
        inner.live = Some(match left {
            Some((live, _)) => live,
            None => live.begin(&replayed.areas)?,
        });
        let inner = Arc::new(inner);
        let committer = Committer::start(inner.clone()).map_err(failed())?;
        Ok(Self { inner, committer: Some(committer) })
    }

    /// Loads the changes of a saved overlay into this one, which must be empty and unused. Returns
    /// the bytes held then. In a folder they are durable when this returns. Blocks.
    ///
    /// # Errors
    /// If the file is refused or unreadable; the overlay is empty then.
    pub fn restore(&self, path: &Path) -> Result<u64, RestoreError> {
        let held = self.inner.restore(path)?;
        let committed = self.inner.commit();
        committed.map_err(|error| RestoreError::at(path)(io::Error::other(error.to_string())))?;
        if let Some(live) = &self.inner.live {
            // Not before: half of a restored overlay is none.
            live.rewrite(self.inner.map.changed()).map_err(RestoreError::at(path))?;
        }
        Ok(held)
    }

    /// Saves the changes of this moment into a new and empty file, open for reading and writing,
    /// such as one of a [`Replacement`](crate::Replacement). Returns its length. Blocks; reads and
    /// writes go on.
    ///
    /// # Errors
    /// If the file cannot be written, or another save is under way.
    pub fn save(&self, file: &File) -> Result<u64, SaveError> {
        self.inner.save(file)
    }

    /// Drops all changes, at once and durably. Caches of them are not invalidated: unmount file
    /// systems before. Blocks for as long as the disk takes.
    ///
    /// # Errors
    /// If a save is under way, or the disk fails.
    pub fn reset(&self) -> Result<(), SaveError> {
        self.inner.reset()
    }

    /// The used room.
    pub fn usage(&self) -> Usage {
        Usage {
            held_bytes: self.inner.room.held_bytes(),
            zero_bytes: self.inner.zeros.load(Ordering::Relaxed) * GRANULE_BYTES,
            max_bytes: self.inner.room.max_bytes(),
            refused_bytes: self.inner.refused.bytes(),
        }
    }

    /// The image under it.
    pub fn image(&self) -> ImageId {
        self.inner.image
    }
}

fn cut_of(base: &dyn BlockSource) -> Cut {
    Cut::new(base.size_bytes().next_multiple_of(SECTOR_BYTES))
}

/// Gives back the room of granules that no record speaks of: written and never flushed before a
/// crash.
fn give_back_rubbish(medium: &Medium, areas: &Areas) -> io::Result<()> {
    let mut at = 0;
    while let Some(data) = medium.next_data(at)? {
        for area in data.start / AREA_BYTES..data.end.div_ceil(AREA_BYTES) {
            let states = areas.get(&area).copied().unwrap_or_default();
            let mut granule = 0;
            while granule < AREA_GRANULES as usize {
                let end = states.run_end(granule..AREA_GRANULES as usize);
                if states.get(granule) != State::Held {
                    let place = |granule: usize| area * AREA_BYTES + granule as u64 * GRANULE_BYTES;
                    medium.punch(place(granule)..place(end))?;
                }
                granule = end;
            }
        }
        at = data.end.next_multiple_of(AREA_BYTES);
    }
    Ok(())
}

impl BlockSource for Overlay {
    fn name(&self) -> &str {
        self.inner.base.name()
    }

    fn names(&self) -> Vec<&str> {
        self.inner.base.names()
    }

    fn description(&self) -> String {
        self.inner.base.description()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.cut.size_bytes()
    }

    fn chunk_bytes(&self) -> u32 {
        self.inner.base.chunk_bytes()
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        self.inner.try_read(extent, pieces)
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        Box::pin(self.inner.read(extent))
    }

    fn prefetch(&self, extent: Extent, urgency: Urgency) {
        self.inner.prefetch(extent, urgency);
    }

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        Box::pin(self.inner.allocation(extent))
    }

    fn is_complete(&self) -> bool {
        self.inner.base.is_complete()
    }

    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(self)
    }
}

impl BlockDevice for Overlay {
    fn try_write(&self, offset: u64, bytes: &[u8]) -> Option<Result<(), WriteError>> {
        let extent = Extent::from(offset..offset + bytes.len() as u64);
        self.inner.try_write(extent, bytes).map(|done| self.inner.account(extent, done))
    }

    fn write(&self, offset: u64, bytes: Bytes) -> Writing<'_> {
        let extent = Extent::from(offset..offset + bytes.len() as u64);
        Box::pin(async move { self.inner.account(extent, self.inner.write(extent, &bytes).await) })
    }

    fn zero(&self, extent: Extent) -> Writing<'_> {
        Box::pin(async move { self.inner.account(extent, self.inner.zero(extent).await) })
    }

    fn discard(&self, extent: Extent) -> Result<(), WriteError> {
        // The content is no longer wanted, whole granules or not; a failure loses nothing.
        let done = self.inner.apart(|| self.inner.clear(self.inner.cut.whole(extent)));
        if done.is_ok() { self.inner.account(extent, done) } else { done }
    }

    fn admit(&self, extent: Extent) -> Result<(), WriteError> {
        match self.inner.finds_room(extent) {
            true => Ok(()),
            false => self.inner.account(extent, Err(WriteError::Full)),
        }
    }

    fn flush(&self) -> Writing<'_> {
        // Checked before the commit: a change repeated during the commit is not made durable by it.
        let refused = self.inner.refused.check();
        match &self.committer {
            None => Box::pin(ready(refused)),
            Some(committer) => Box::pin(async move { committer.flush().await.and(refused) }),
        }
    }

    fn users(&self) -> &Users {
        &self.inner.users
    }

    fn is_volatile(&self) -> bool {
        self.inner.medium.is_volatile()
    }
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "overlay of {:?}, {:?}", self.inner.image, self.usage())
    }
}
