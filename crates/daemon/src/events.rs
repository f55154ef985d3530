//! The last events, in memory that outlives the daemon: what a daemon did before it was killed.
//!
//! Owns a memory file of [`RECORDS`] records, of which the oldest is overwritten. The keeper of the
//! stores keeps this file as well, and the next daemon finds it there. Without a keeper the file
//! ends with the process. A found file is hostile until parsed. Adding is one system call, and
//! never waits.

mod record;

use record::{RECORD_BYTES, Record};
use rustix::fs::{
    MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, ftruncate, memfd_create,
};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use vfield_control::events::EventStatus;

/// Records in the ring: a day of a quiet field, and a minute of one that somebody switches off.
pub const RECORDS: usize = 4096;
const FILE_BYTES: u64 = (RECORDS * RECORD_BYTES) as u64;
/// Neither shorter nor longer, for good.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// With one of these nothing can be put into it.
const READ_ONLY: SealFlags = SealFlags::WRITE.union(SealFlags::FUTURE_WRITE);

/// The events of a daemon and of those before it.
#[derive(Debug)]
pub struct Events {
    file: Option<OwnedFd>,
    last: Mutex<VecDeque<EventStatus>>,
    newest: watch::Sender<u64>,
}

impl Events {
    /// Goes on with the events in `left`, if an earlier process left any; else begins anew.
    pub fn take(left: Option<OwnedFd>) -> Self {
        let found = left.and_then(|file| Some((read(&file)?, file)));
        let (last, file) = match found {
            Some((last, file)) => (last, Some(file)),
            // Without memory for it, events are only kept as long as the process lives.
            None => (VecDeque::new(), new_file().inspect_err(|error| tracing::warn!(%error, "events")).ok()),
        };
        let newest = last.back().map_or(0, |event| event.number);
        Self { file, last: Mutex::new(last), newest: watch::Sender::new(newest) }
    }

    /// The memory, for a keeper.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    /// Adds an event of now.
    pub fn add(&self, at_ms: u64, event: &str, text: &str) {
        let mut last = self.last();
        let number = last.back().map_or(0, |event| event.number) + 1;
        let record = Record::new(number, at_ms, std::process::id(), event, text);
        if let Some(file) = &self.file {
            let place = (number % RECORDS as u64) * RECORD_BYTES as u64;
            // Its length is sealed, so it has room; memory may be short all the same.
            let _ = retry_on_intr(|| pwrite(file, &record.encode(), place));
        }
        if last.len() == RECORDS {
            last.pop_front();
        }
        last.push_back(record.event());
        drop(last);
        self.newest.send_replace(number);
    }

    /// Events with numbers above `after`, the oldest first; of those the last `most`.
    pub fn after(&self, after: u64, most: usize) -> Vec<EventStatus> {
        let last = self.last();
        let newer = last.iter().rev().take_while(|event| event.number > after).take(most);
        let mut newer: Vec<EventStatus> = newer.cloned().collect();
        newer.reverse();
        newer
    }

    /// Returns once there is an event with a number above `after`.
    pub async fn await_after(&self, after: u64) {
        // The sender lives as long as this.
        let _ = self.newest.subscribe().wait_for(|newest| *newest > after).await;
    }

    fn last(&self) -> MutexGuard<'_, VecDeque<EventStatus>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_file() -> io::Result<OwnedFd> {
    let file = memfd_create("vfield-events", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    retry_on_intr(|| ftruncate(&file, FILE_BYTES))?;
    fcntl_add_seals(&file, LENGTH | SealFlags::SEAL)?;
    Ok(file)
}

/// The records in a file that an earlier process made with [`new_file`], in their order; `None` for
/// any other file. A record that is none is left out.
fn read(file: &OwnedFd) -> Option<VecDeque<EventStatus>> {
    let seals = fcntl_get_seals(file).ok()?;
    let writable = fcntl_getfl(file).ok()?.contains(OFlags::RDWR) && !seals.intersects(READ_ONLY);
    if !writable || !seals.contains(LENGTH) || fstat(file).ok()?.st_size.cast_unsigned() != FILE_BYTES {
        return None;
    }
    let mut bytes = vec![0; FILE_BYTES as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match retry_on_intr(|| pread(file, &mut bytes[filled..], filled as u64)) {
            Ok(0) | Err(_) => return None,
            Ok(count) => filled += count,
        }
    }
    let places = (0u64..).zip(bytes.chunks_exact(RECORD_BYTES));
    let found = places.filter_map(|(place, bytes)| {
        let record = Record::decode(bytes)?;
        // Each number has its place; room is left above the highest.
        (record.number % RECORDS as u64 == place && record.number < u64::MAX / 2).then(|| record.event())
    });
    let mut events: Vec<EventStatus> = found.collect();
    events.sort_unstable_by_key(|event| event.number);
    Some(events.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(events: &[EventStatus]) -> Vec<u64> {
        events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn the_next_daemon_finds_what_the_killed_one_did() {
        let events = Events::take(None);
        for number in 0..10 {
            events.add(1000 + number, "joined", &format!("joined image {number}"));
        }
        let file = events.file().unwrap().try_clone_to_owned().unwrap();
        // It is killed: nothing is written at the end.
        std::mem::forget(events);
        let next = Events::take(Some(file));
        let found = next.after(0, RECORDS);
        assert_eq!(numbers(&found), (1..=10).collect::<Vec<_>>());
        assert_eq!((found[9].at_ms, found[9].text.as_str()), (1009, "joined image 9"));
        assert_eq!(found[9].pid, std::process::id());
        next.add(2000, "started", "again");
        assert_eq!(numbers(&next.after(9, RECORDS)), [10, 11]);
        assert_eq!(numbers(&next.after(0, 2)), [10, 11]);
        assert!(numbers(&next.after(11, 2)).is_empty());
    }

    #[test]
    fn the_oldest_go_first() {
        let events = Events::take(None);
        for number in 0..RECORDS as u64 + 5 {
            events.add(number, "x", "");
        }
        let kept = |events: &Events| events.after(0, usize::MAX);
        assert_eq!((kept(&events).len(), kept(&events)[0].number), (RECORDS, 6));
        let again = Events::take(Some(events.file().unwrap().try_clone_to_owned().unwrap()));
        assert_eq!(kept(&again), kept(&events));
    }

    #[test]
    fn what_is_no_ring_of_events_is_not_believed() {
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(FILE_BYTES).unwrap();
        let short = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        fcntl_add_seals(&short, LENGTH).unwrap();
        for file in [plain.into(), short] {
            assert!(Events::take(Some(file)).after(0, 1).is_empty());
        }
        let rubbish = new_file().unwrap();
        for place in 0..RECORDS as u64 {
            let bytes = [place as u8; RECORD_BYTES];
            pwrite(&rubbish, &bytes, place * RECORD_BYTES as u64).unwrap();
        }
        let events = Events::take(Some(rubbish));
        events.add(5, "x", "goes on");
        assert_eq!(events.after(0, 1)[0].text, "goes on");
    }

    #[tokio::test]
    async fn a_follower_hears_of_the_next() {
        let events = std::sync::Arc::new(Events::take(None));
        events.add(1, "x", "");
        events.await_after(0).await;
        let follower = tokio::spawn({
            let events = std::sync::Arc::clone(&events);
            async move { events.await_after(1).await }
        });
        tokio::task::yield_now().await;
        assert!(!follower.is_finished());
        events.add(2, "y", "");
        follower.await.unwrap();
    }
}
