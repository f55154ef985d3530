//! Bytes on their way to stderr, which may take none for minutes: a held terminal (Ctrl-S), a
//! pager, a journal or a disk in trouble.
//!
//! Commands write at once and wait. A daemon must not wait, so it calls [`in_background`]: from
//! then on bytes go through a bounded queue to a thread. Invariants: a caller of [`put`] then never
//! waits for stderr, and lines arrive in order. Lines that the queue does not take are lost and
//! counted. The thread holds no lock while it writes, so a panic can still be told.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes that wait: some thousand lines.
const WAITING_MAX: usize = 256 << 10;
/// At the end of a process, this is the longest wait for stderr.
const END_MAX: Duration = Duration::from_secs(1);
/// A root's guard has all of its memory locked, stacks too; a log line needs some KiB.
const STACK_BYTES: usize = 256 << 10;

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Writes bytes: whole lines, or a part of a bar. If nobody reads them, there is no better place to
/// say that.
pub fn put(bytes: &[u8]) {
    match QUEUE.get() {
        Some(queue) => queue.put(bytes),
        None => drop(io::stderr().write_all(bytes)),
    }
}

/// Lets a thread write from now on. To be called before others run, and after this one has blocked
/// signals and given up files.
///
/// # Errors
/// If the thread does not start.
pub fn in_background() -> io::Result<()> {
    let queue = QUEUE.get_or_init(Queue::default);
    let lost = |lines| tracing::warn!(lines, "stderr took no bytes for a while, and these lines are lost");
    let run = move || queue.write_all(&mut write_all, &lost);
    std::thread::Builder::new().name("stderr".into()).stack_size(STACK_BYTES).spawn(run).map(drop)
}

/// Waits until all is written, for a second at most. Before a process ends.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.finish(END_MAX);
    }
}

/// Writes to stderr without the lock of [`io::stderr`].
fn write_all(mut bytes: &[u8]) {
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(stderr.as_fd(), bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // An error of the wait comes again at the next write.
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines that were not taken.
    lost: u64,
    /// The thread is writing.
    busy: bool,
}

impl Queue {
    fn put(&self, bytes: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.len() + bytes.len() > WAITING_MAX {
            waiting.lost += 1;
        } else {
            waiting.bytes.extend_from_slice(bytes);
            self.changed.notify_all();
        }
    }

    /// Writes for ever, and tells how many lines were lost once there is room again.
    fn write_all(&self, write: &mut impl FnMut(&[u8]), lost: &impl Fn(u64)) {
        loop {
            let mut waiting = self.lock();
            while waiting.bytes.is_empty() {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            let (bytes, lines) = (std::mem::take(&mut waiting.bytes), std::mem::take(&mut waiting.lost));
            waiting.busy = true;
            drop(waiting);
            write(&bytes);
            if lines > 0 {
                lost(lines);
            }
            self.lock().busy = false;
            self.changed.notify_all();
        }
    }

    fn finish(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut waiting = self.lock();
        while waiting.busy || !waiting.bytes.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn nobody_waits_for_a_writer_that_is_held_and_lost_lines_are_told() {
        let queue: &'static Queue = Box::leak(Box::default());
        let (written, writes) = channel::<Vec<u8>>();
        let (release, held) = channel::<()>();
        let mut write = move |bytes: &[u8]| {
            held.recv().expect("the test lives");
            written.send(bytes.to_vec()).expect("the test lives");
        };
        std::thread::spawn(move || {
            queue.write_all(&mut write, &|lines| queue.put(format!("{lines} lost\n").as_bytes()))
        });
        queue.put(b"first\n");
        while !queue.lock().busy {
            std::thread::yield_now();
        }
        // The writer has the first line, and is held.
        let long = vec![b'x'; WAITING_MAX / 4];
        (0..7).for_each(|_| queue.put(&long));
        let waiting = queue.lock();
        assert_eq!((waiting.bytes.len(), waiting.lost), (WAITING_MAX, 3));
        drop(waiting);
        let mut all = Vec::new();
        while !all.ends_with(b" lost\n") {
            release.send(()).unwrap();
            all.extend(writes.recv().unwrap());
        }
        release.send(()).unwrap();
        queue.finish(Duration::from_secs(60));
        let text = String::from_utf8(all).unwrap();
        let lines: u64 = text.rsplit('x').next().and_then(|end| end.strip_suffix(" lost\n")?.parse().ok()).unwrap();
        let whole = (text.len() - "first\n".len() - format!("{lines} lost\n").len()) / long.len();
        assert!(text.starts_with("first\n") && whole as u64 + lines == 7, "{whole} written, {lines} lost");
    }
}
