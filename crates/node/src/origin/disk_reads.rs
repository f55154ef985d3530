//! Reads that wait for the disk of a file, or for the machine that serves it.
//!
//! The threads of a node answer peers, gossip, readers and `vfield status`. None of them may wait
//! for a disk that stands still, or for a file server that is gone. So bytes that are in no memory
//! are read into it first, on threads that may wait. Invariant: at most [`READS_MAX`] threads wait
//! for one file, however many ask.

use super::file::SourceFile;
use crate::source::PATIENCE;
use rustix::io::{Errno, pread, retry_on_intr};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
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
const STILL: Duration = Duration::from_secs(5);
/// With all reads under way, and none ended for so long, a look at the memory might wait too. It
/// makes the kernel read ahead, and a full queue holds that up. A disk at work ends some reads in
/// this time.
const JAMMED: Duration = Duration::from_millis(100);
/// Bytes that are read with one call; they are not kept.
const STEP_BYTES: usize = 64 << 10;

/// Why an extent was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The disk stands still. The read goes on.
    Still,
    /// The kernel could not read at this place of the file.
    Failed(u64, Errno),
}

/// The reads of one file.
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
}

impl Default for DiskReads {
    fn default() -> Self {
        let under_way = UnderWay { begun: BTreeMap::new(), next: 0, ended: Instant::now() };
        let [room, room_for_fills] = [READS_MAX, FILLS_MAX].map(|reads| Arc::new(Semaphore::new(reads)));
        Self { room, room_for_fills, under_way: Arc::new(Mutex::new(under_way)) }
    }
}

impl DiskReads {
    /// Reads an extent, so that it is in memory. Gives up after [`PATIENCE`] if the disk stands
    /// still, and if this one read takes as long as that. Needs a Tokio runtime.
    pub async fn read(&self, file: &SourceFile, extent: Extent, priority: Priority) -> Result<(), Unread> {
        let begun = Arc::new(OnceLock::new());
        let (room, under_way) = (Arc::clone(&self.room), Arc::clone(&self.under_way));
        let room_for_fills = (priority == Priority::Fill).then(|| Arc::clone(&self.room_for_fills));
        let (fd, started) = (Arc::clone(file.fd()), Arc::clone(&begun));
        let reading = async move {
            // They are closed by nobody.
            let room_for_fills = match room_for_fills {
                Some(room) => Some(room.acquire_owned().await),
                None => None,
            };
            let room = (room_for_fills, room.acquire_owned().await);
            let read = move || {
                let _ = started.set(Instant::now());
                let turn = Turn::begin(under_way);
                let read = read_through(&fd, extent);
                drop((turn, room));
                read
            };
            tokio::task::spawn_blocking(read).await.unwrap_or(Err(Unread::Still))
        };
        let mut reading = std::pin::pin!(reading);
        loop {
            let is_still = || begun.get().is_some_and(|begun: &Instant| begun.elapsed() >= STILL);
            match tokio::time::timeout(PATIENCE, &mut reading).await {
                Ok(read) => return read,
                Err(_) if self.still().is_some() || is_still() => return Err(Unread::Still),
                Err(_) => {}
            }
        }
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
        Self { under_way, number }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = lock(&self.under_way);
        all.begun.remove(&self.number);
        all.ended = Instant::now();
    }
}

fn lock(under_way: &Mutex<UnderWay>) -> MutexGuard<'_, UnderWay> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads an extent, and keeps nothing of it. A file that has become shorter ends it early.
fn read_through(fd: impl AsFd, extent: Extent) -> Result<(), Unread> {
    let mut bytes = vec![0; STEP_BYTES.min(extent.len() as usize)];
    let mut at = extent.start();
    while at < extent.end() {
        let step = bytes.len().min((extent.end() - at) as usize);
        match retry_on_intr(|| pread(&fd, &mut bytes[..step], at)) {
            Ok(0) => break,
            Ok(count) => at += count as u64,
            Err(errno) => return Err(Unread::Failed(at, errno)),
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
        let (file, reads) = (SourceFile::open(bytes.path()).expect("it is there"), DiskReads::default());
        let read = |priority| reads.read(&file, Extent::from(0..9000), priority);
        let filling = reads.room_for_fills.acquire_many(FILLS_MAX as u32).await.expect("it is open");
        let mut fill = std::pin::pin!(read(Priority::Fill));
        assert!(tokio::time::timeout(Duration::ZERO, &mut fill).await.is_err());
        assert_eq!((read(Priority::Demand).await, read(Priority::ReadAhead).await), (Ok(()), Ok(())));
        drop(filling);
        assert_eq!(fill.await, Ok(()));
    }
}
