//! Reads that wait for a disk, or for the machine that serves a file.
//!
//! The threads of a node answer peers, gossip, readers and `vfield status`. None of them may wait
//! for a disk that stands still, or for a file server that is gone. So bytes that are in no memory
//! are read into it first, on threads that may wait. Invariant: at most [`READS_MAX`] threads wait
//! for the file of an origin, or for the disk of all stores, however many ask.

use crate::source::PATIENCE;
use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use vfield_block::extent::Extent;
use vfield_core::wire::Priority;

/// Most reads under way: as many as a disk takes at once.
const READS_MAX: usize = 32;
/// Most of them for stores that fill: readers wait for no more than these.
const FILLS_MAX: usize = READS_MAX / 2;
/// A disk that has ended no read for so long stands still. One with a full queue ends some each
/// second; one that tries a bad sector again may take longer.
pub const STILL: Duration = Duration::from_secs(5);
/// With all reads under way, and none ended for so long, a look at the memory might wait too. It
/// makes the kernel read ahead, and a full queue holds that up. A disk at work ends some reads in
/// this time.
const JAMMED: Duration = Duration::from_millis(100);
/// Bytes that are read with one call; they are not kept.
const STEP_BYTES: usize = 64 << 10;
/// The kernel reads a file in parts of this length at least. So if the first byte of each is in
/// memory, and the last byte of all, the rest mostly is.
const PROBED_BYTES: u64 = 64 << 10;
/// A kernel's pages are of this length at least.
const PAGE_BYTES: u64 = 4096;

/// A place of a file that the kernel could not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPlace {
    /// The place, in bytes from the start.
    pub at: u64,
    /// What the kernel said.
    pub errno: Errno,
}

/// A read on a thread that may wait. It goes on there if this is dropped, once it has begun.
pub type DiskRead = Pin<Box<dyn Future<Output = Result<(), BadPlace>> + Send>>;

/// Why an extent was not read.
pub enum Unread {
    /// The disk stands still, or is slow. Here is the rest of the read.
    Still(DiskRead),
    /// The kernel could not read it.
    Failed(BadPlace),
}

/// The reads of one file, or of all files of a disk.
#[derive(Debug)]
pub struct DiskReads {
    room: Arc<Semaphore>,
    room_for_fills: Arc<Semaphore>,
    under_way: Arc<Mutex<UnderWay>>,
}

#[derive(Debug)]
struct UnderWay {
    begun: BTreeMap<u64, Instant>,
    next: u64,
    ended: Instant,
}

/// A read under way; its drop is its end.
struct Turn {
    under_way: Arc<Mutex<UnderWay>>,
    number: u64,
    delivered: bool,
}

impl Default for DiskReads {
    fn default() -> Self {
        let under_way = UnderWay { begun: BTreeMap::new(), next: 0, ended: Instant::now() };
        let [room, room_for_fills] = [READS_MAX, FILLS_MAX].map(|reads| Arc::new(Semaphore::new(reads)));
        Self { room, room_for_fills, under_way: Arc::new(Mutex::new(under_way)) }
    }
}

impl DiskReads {
    /// Reads an extent of a file, so that it is in memory. Gives up after [`PATIENCE`] if the disk
    /// stands still, and if this one read takes as long as that. Needs a Tokio runtime.
    pub async fn read(&self, file: &Arc<OwnedFd>, extent: Extent, priority: Priority) -> Result<(), Unread> {
        let begun = Arc::new(OnceLock::new());
        let mut reading = self.begin(file, extent, priority, &begun);
        loop {
            let is_still = || begun.get().is_some_and(|begun: &Instant| begun.elapsed() >= STILL);
            match tokio::time::timeout(PATIENCE, &mut reading).await {
                Ok(read) => return read.map_err(Unread::Failed),
                Err(_) if self.still().is_some() || is_still() => return Err(Unread::Still(reading)),
                Err(_) => {}
            }
        }
    }

    /// The same for a reader who may have the bytes of others: it gives up after [`PATIENCE`].
    pub async fn read_soon(&self, file: &Arc<OwnedFd>, extent: Extent) -> Result<(), Unread> {
        let mut reading = self.begin(file, extent, Priority::Demand, &Arc::default());
        match tokio::time::timeout(PATIENCE, &mut reading).await {
            Ok(read) => read.map_err(Unread::Failed),
            Err(_) => Err(Unread::Still(reading)),
        }
    }

    /// A read that waits for its turn. When that comes is noted.
    fn begin(
        &self,
        file: &Arc<OwnedFd>,
        extent: Extent,
        priority: Priority,
        begun: &Arc<OnceLock<Instant>>,
    ) -> DiskRead {
        let (fd, started) = (Arc::clone(file), Arc::clone(begun));
        self.run(priority, move || {
            let _ = started.set(Instant::now());
            (read_through(&fd, extent), true)
        })
    }

    /// Does some `work` that reads a file, in its turn, on a thread that may wait. It says whether
    /// the disk has delivered something. Once begun it goes on if the future is dropped. Needs a
    /// Tokio runtime.
    pub fn run<T: Send + 'static>(
        &self,
        priority: Priority,
        work: impl FnOnce() -> (T, bool) + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = T> + Send>> {
        let (room, under_way) = (Arc::clone(&self.room), Arc::clone(&self.under_way));
        let room_for_fills = (priority == Priority::Fill).then(|| Arc::clone(&self.room_for_fills));
        Box::pin(async move {
            // They are closed by nobody.
            let room_for_fills = match room_for_fills {
                Some(room) => Some(room.acquire_owned().await),
                None => None,
            };
            let room = (room_for_fills, room.acquire_owned().await);
            let work = move || {
                let mut turn = Turn::begin(under_way);
                let (done, delivered) = work();
                turn.delivered = delivered;
                drop((turn, room));
                done
            };
            match tokio::task::spawn_blocking(work).await {
                Ok(done) => done,
                Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                // The node ends.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// For how long the disk has not ended a read, if it stands still.
    pub fn still(&self) -> Option<Duration> {
        lock(&self.under_way).silent(Instant::now()).filter(|silent| *silent >= STILL)
    }

    /// True if even a look at the memory might wait for the disk.
    pub fn is_jammed(&self) -> bool {
        lock(&self.under_way).is_jammed(Instant::now())
    }
}

impl UnderWay {
    /// For how long no read has ended; `None` if none is under way.
    fn silent(&self, now: Instant) -> Option<Duration> {
        let (_, oldest) = self.begun.first_key_value()?;
        Some(now.saturating_duration_since(self.ended.max(*oldest)))
    }

    fn is_jammed(&self, now: Instant) -> bool {
        let least = if self.begun.len() < READS_MAX { STILL } else { JAMMED };
        self.silent(now).is_some_and(|silent| silent >= least)
    }
}

impl Turn {
    fn begin(under_way: Arc<Mutex<UnderWay>>) -> Self {
        let mut all = lock(&under_way);
        let number = all.next;
        all.next += 1;
        all.begun.insert(number, Instant::now());
        drop(all);
        Self { under_way, number, delivered: false }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = lock(&self.under_way);
        all.begun.remove(&self.number);
        if self.delivered {
            all.ended = Instant::now();
        }
    }
}

/// True if an extent of a file can be read without a wait for the disk, as far as a look at some
/// places tells. Else the kernel may begin to read it. False on file systems that do not tell, as
/// NFS and FUSE.
pub fn is_in_memory(file: impl AsFd, extent: Extent) -> bool {
    let is_here = |at: u64| {
        let mut byte = [0];
        preadv2(&file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT).is_ok()
    };
    let Some(last) = extent.end().checked_sub(1) else { return true };
    let last_page = (last / PAGE_BYTES != extent.start() / PAGE_BYTES).then_some(last);
    let mut places = (extent.start()..=last).step_by(PROBED_BYTES as usize).chain(last_page);
    places.all(is_here)
}

/// The number of tmpfs, from statfs(2).
pub const TMPFS: u64 = 0x0102_1994;

/// True if a file lies in memory: no disk is ever waited for.
pub fn is_on_tmpfs(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
}

fn lock(under_way: &Mutex<UnderWay>) -> MutexGuard<'_, UnderWay> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads an extent, and keeps nothing of it. A file that has become shorter ends it early.
fn read_through(fd: impl AsFd, extent: Extent) -> Result<(), BadPlace> {
    let mut bytes = vec![0; STEP_BYTES.min(extent.len() as usize)];
    let mut at = extent.start();
    while at < extent.end() {
        let step = bytes.len().min((extent.end() - at) as usize);
        match retry_on_intr(|| pread(&fd, &mut bytes[..step], at)) {
            Ok(0) => break,
            Ok(count) => at += count as u64,
            Err(errno) => return Err(BadPlace { at, errno }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_stands_still_if_reads_are_under_way_and_none_has_ended() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let mut under_way = UnderWay { begun: BTreeMap::new(), next: 0, ended: start };
        assert_eq!((under_way.silent(after(9000)), under_way.is_jammed(after(9000))), (None, false));
        // The time without a read does not count.
        under_way.begun.insert(0, after(9000));
        assert_eq!(under_way.silent(after(9070)), Some(Duration::from_millis(70)));
        assert!(!under_way.is_jammed(after(13_999)) && under_way.is_jammed(after(14_000)));
        // One read that takes long holds up nothing while others end.
        under_way.ended = after(13_500);
        assert_eq!(under_way.silent(after(14_000)), Some(Duration::from_millis(500)));
        assert!(!under_way.is_jammed(after(14_000)));
        under_way.begun.extend((1..READS_MAX as u64).map(|number| (number, after(13_900))));
        assert!(under_way.is_jammed(after(14_000)));
        under_way.ended = after(13_950);
        assert!(!under_way.is_jammed(after(14_000)));
    }

    #[tokio::test]
    async fn a_reader_does_not_wait_behind_stores_that_fill() {
        let bytes = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(bytes.path(), [7; 9000]).expect("written");
        let file = Arc::new(OwnedFd::from(std::fs::File::open(bytes.path()).expect("it is there")));
        let reads = DiskReads::default();
        let read = async |priority| reads.read(&file, Extent::from(0..9000), priority).await.map_err(drop);
        let filling = reads.room_for_fills.acquire_many(FILLS_MAX as u32).await.expect("it is open");
        let mut fill = std::pin::pin!(read(Priority::Fill));
        assert!(tokio::time::timeout(Duration::ZERO, &mut fill).await.is_err());
        assert_eq!((read(Priority::Demand).await, read(Priority::ReadAhead).await), (Ok(()), Ok(())));
        drop(filling);
        assert_eq!(fill.await, Ok(()));
    }
}
