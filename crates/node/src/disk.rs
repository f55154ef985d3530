//! The directory of stores on a disk: a file for each image, which the next process finds.
//!
//! One process at a time has it. It makes, lists and removes files; a store owns their content
//! ([`crate::store::on_disk`]).
//!
//! A directory may stand still with its disk. So whatever touches it runs on a thread that may
//! wait, and files are made and removed one after another.

use crate::apart;
use crate::config::{DiskConfig, NodeConfig};
use crate::disk_reads::{DiskReads, STILL};
use crate::event::{Event, EventSink};
use crate::node::StartError;
use crate::store::found::Unfit;
use crate::store::{Kept, Store, StoreError, free_bytes};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, fallocate, flock, fstat, openat,
    seek, unlinkat,
};
use rustix::io::{Errno, pwrite};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use vfield_core::image::{Geometry, ImageId};

/// How long the process before may take to end, if it hands over to this one.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How often it is tried meanwhile.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Of the room that is free at the start, this part is left to others, and to the file system.
const LEFT: u64 = 20;
/// End of the name of a store's file; an image's id is before it.
pub const SUFFIX: &str = ".store";
const LOCK: &str = "lock";
const PROBE: &str = "probe";
/// A probe's length: a hole of it is one of a large page too.
const PROBE_BYTES: u64 = 1 << 20;

/// Why a directory cannot have stores.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has it.
    #[error("another process has its stores there")]
    InUse,
    /// A missing chunk would take room, and look like a chunk.
    #[error("this file system has no files with holes")]
    NoHoles,
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for DiskError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// A directory of stores, which this process has.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    dir: Arc<OwnedFd>,
    _lock: OwnedFd,
    max_bytes: u64,
    reads: Arc<DiskReads>,
    /// Changes of the directory, in their order.
    changes: mpsc::UnboundedSender<Change>,
}

type Change = Box<dyn FnOnce() + Send>;

impl Disk {
    /// The disk of a node, if it is to have one.
    pub async fn of(config: &NodeConfig, events: &EventSink) -> Result<Option<Arc<Self>>, StartError> {
        let Some(disk) = config.disk.clone() else { return Ok(None) };
        let dir = disk.dir.clone();
        let opened = patiently(&dir, events, move || Self::open(&disk)).await;
        opened.map(|disk| Some(Arc::new(disk))).map_err(|why| StartError::Disk { dir, why })
    }

    /// Opens a directory, and makes it if it is not there. Needs a Tokio runtime.
    fn open(config: &DiskConfig) -> Result<Self, DiskError> {
        config.make_dir()?;
        let dir = openat(CWD, &config.dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let lock = openat(&dir, LOCK, OFlags::CREATE | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC, PRIVATE)?;
        let since = Instant::now();
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            match error {
                Errno::WOULDBLOCK if since.elapsed() < LOCK_WAIT => std::thread::sleep(LOCK_PAUSE),
                Errno::WOULDBLOCK => return Err(DiskError::InUse),
                other => return Err(other.into()),
            }
        }
        has_holes(&dir)?;
        let (path, dir, reads) = (config.dir.clone(), Arc::new(dir), Arc::default());
        let mut disk = Self { path, dir, _lock: lock, max_bytes: 0, reads, changes: in_order() };
        disk.max_bytes = config.max_bytes.map_or_else(|| disk.room_bytes(), Ok)?;
        Ok(disk)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Most bytes in all stores.
    pub const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// What the stores take now and may take besides, if no size was said.
    fn room_bytes(&self) -> io::Result<u64> {
        let free_bytes = free_bytes(&self.dir)?;
        let taken =
            |(_, file): &(String, OwnedFd)| fstat(file).map_or(0, |about| about.st_blocks.cast_unsigned() * 512);
        Ok(self.files()?.iter().map(taken).sum::<u64>() + (free_bytes - free_bytes / LEFT))
    }

    /// The files of stores, with their names.
    fn files(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            let is_stores = name.strip_suffix(SUFFIX).is_some_and(|id| id.parse::<ImageId>().is_ok());
            // Nothing here is followed, and nothing but a file is opened for long.
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Some(file) = is_stores.then(|| openat(&self.dir, &name, flags, Mode::empty()).ok()).flatten() else {
                continue;
            };
            if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile {
                files.push((name, file));
            }
        }
        Ok(files)
    }

    /// The stores of an earlier process, or why a file is none.
    pub async fn kept(self: &Arc<Self>, events: &EventSink) -> io::Result<Vec<(String, Result<Kept, Unfit>)>> {
        let disk = Arc::clone(self);
        let read = move || Ok(disk.files()?.into_iter().map(|(name, file)| (name, Kept::read_on_disk(file))).collect());
        patiently(&self.path, events, read).await
    }

    /// An empty store in a file of its own. It is not waited for as long as the disk stands still.
    pub async fn create(&self, id: ImageId, geometry: &Geometry) -> Result<Arc<Store>, StoreError> {
        let (dir, name, geometry) = (Arc::clone(&self.dir), name_of(id), *geometry);
        let (made, store) = oneshot::channel();
        self.change(move || {
            // An earlier one was not taken over, so it is of no use.
            unlink(&dir, &name);
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let file = openat(&dir, &name, flags, PRIVATE).map_err(|error| io::Error::from(error).into());
            if made.send(file.and_then(|file| Store::on_disk(id, &geometry, file))).is_err() {
                unlink(&dir, &name);
            }
        });
        match timeout(STILL, store).await {
            Ok(Ok(made)) => made.inspect(|store| store.share_reads(&self.reads)),
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "its disk does not answer").into()),
        }
    }

    /// The reads of all stores here that wait for it.
    pub const fn reads(&self) -> &Arc<DiskReads> {
        &self.reads
    }

    /// Removes the file of this name. Its room is free when its store ends.
    pub fn remove(&self, name: &str) {
        let (dir, name) = (Arc::clone(&self.dir), name.to_owned());
        self.change(move || unlink(&dir, &name));
    }

    /// Has something done to the directory, after all that was to be done before.
    fn change(&self, change: impl FnOnce() + Send + 'static) {
        // Its task lives as long as this.
        let _ = self.changes.send(Box::new(change));
    }
}

/// Has changes made one after another, for as long as somebody may send some.
fn in_order() -> mpsc::UnboundedSender<Change> {
    let (changes, mut coming) = mpsc::unbounded_channel::<Change>();
    tokio::spawn(async move {
        while let Some(change) = coming.recv().await {
            apart::run(change).await;
        }
    });
    changes
}

/// Has something done that the start waits for, on a thread that may wait for a disk. If that takes
/// long, it is said.
async fn patiently<T: Send + 'static>(dir: &Path, events: &EventSink, work: impl FnOnce() -> T + Send + 'static) -> T {
    let tell = || {
        let (dir, still) = (dir.display(), STILL.as_secs());
        events(Event::Warning(format!("the disk of {dir} has not answered for {still} s; the start waits for it")));
    };
    apart::run_or_tell(STILL, tell, work).await
}

fn unlink(dir: &OwnedFd, name: &str) {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => tracing::warn!(name, %error, "removing the file of a store failed"),
    }
}

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Name of the file of an image's store.
pub fn name_of(id: ImageId) -> String {
    format!("{id}{SUFFIX}")
}

/// Finds out whether a file there can have holes, unless the disk is full.
fn has_holes(dir: &OwnedFd) -> Result<(), DiskError> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let probed = openat(dir, PROBE, flags, PRIVATE).map_err(DiskError::from).and_then(|file| {
        let bytes = vec![1; PROBE_BYTES as usize];
        if let Err(Errno::NOSPC | Errno::DQUOT) = pwrite(&file, &bytes, 0) {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&file, mode, 0, PROBE_BYTES) {
            Err(Errno::OPNOTSUPP) => return Err(DiskError::NoHoles),
            punched => punched?,
        }
        match seek(&file, SeekFrom::Data(0)) {
            Err(Errno::NXIO) => Ok(()),
            Ok(_) => Err(DiskError::NoHoles),
            Err(error) => Err(error.into()),
        }
    });
    // It is made anew the next time.
    let _ = unlinkat(dir, PROBE, AtFlags::empty());
    probed
}
