//! One run: streams that keep requests in flight, and their results.
//!
//! Each stream is a thread with a [`Channel`] of its own; the caller's thread only waits and tells
//! how far it is. A thread that hangs (a FUSE read that nobody answers) is left behind, and what it
//! had measured before counts.

use super::work::{Work, mixed};
use hdrhistogram::Histogram;
use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vfield_console::failure::Failure;

/// How often progress is told, and how soon a run ends that is interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Threads that are told to end get so long: sockets look every [`super::socket::LOOK_EVERY`].
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// Longest delay that is told apart from longer ones, in nanoseconds: an hour.
const DELAY_MAX: u64 = 3_600_000_000_000;
/// Digits of a delay that are kept.
const DIGITS: u8 = 3;

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// They are read.
    Reading,
    /// Blocks are overwritten.
    Writing,
}

/// What blocks are written with: no zeros, and nothing that repeats within a page.
pub fn noise(bytes: u64) -> Vec<u8> {
    (1..=bytes.div_ceil(8)).flat_map(|number| mixed(number).to_le_bytes()).take(bytes as usize).collect()
}

/// A way to have blocks read or written, with several requests under way.
pub trait Channel: Send {
    /// Asks for a block under a number of the caller's.
    fn ask(&mut self, request: u64, block: u64) -> Result<(), Failure>;

    /// Waits for an answer to any request; gives up when `is_over` says so.
    fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<Answer, Failure>;
}

/// What a [`Channel`] answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// So many bytes came, and are right as far as that can be told.
    Bytes {
        /// The caller's number.
        request: u64,
        /// Bytes of the answer.
        bytes: u64,
    },
    /// The other side has nothing for it.
    Refused {
        /// The caller's number.
        request: u64,
    },
    /// Nobody waits any more.
    Over,
}

/// Results of one stream or of all.
#[derive(Debug, Clone)]
pub struct Measured {
    /// From the first request to the last answer, or to the end where answers are missing.
    pub time: Duration,
    /// Bytes of all answers.
    pub bytes: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that were not answered by the end.
    pub unanswered: u64,
    /// Nanoseconds from asking to the last byte of the answer.
    pub delays: Histogram<u64>,
    /// When the first request was made, and when the last answer came.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Measured {
    fn nothing() -> Self {
        let delays = Histogram::new_with_bounds(1, DELAY_MAX, DIGITS).expect("bounds and digits are valid");
        Self { time: Duration::ZERO, bytes: 0, refused: 0, unanswered: 0, delays, first: None, last: None }
    }

    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
        self.delays.add(&other.delays).expect("all have the same bounds");
    }
}

/// Has all `channels` work at once, each with `depth` requests under way; `progress` hears how many
/// bytes came.
///
/// # Errors
/// What the first stream that fails says; the others are not waited for.
pub fn run(
    channels: Vec<Box<dyn Channel>>,
    depth: usize,
    work: &Arc<Work>,
    progress: &dyn Fn(u64),
) -> Result<Measured, Failure> {
    let gate = Arc::new(Barrier::new(channels.len() + 1));
    let (done, ends) = channel();
    let mut parts = Vec::new();
    for channel in channels {
        let part = Arc::new(Mutex::new(Measured::nothing()));
        parts.push(Arc::clone(&part));
        start(Stream { channel, depth, work: Arc::clone(work), part }, Arc::clone(&gate), done.clone())?;
    }
    drop(done);
    gate.wait();
    let mut over_since = None;
    loop {
        match ends.recv_timeout(LOOK_EVERY) {
            Ok(result) => result?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        progress(parts.iter().map(|part| lock(part).bytes).sum());
        if work.is_over() && over_since.get_or_insert_with(Instant::now).elapsed() >= LAST_ANSWERS {
            break;
        }
    }
    let mut sum = Measured::nothing();
    parts.iter().for_each(|part| sum.add(&lock(part)));
    let end = sum.last.filter(|_| sum.unanswered == 0).unwrap_or_else(Instant::now);
    // On a busy machine all of it may be over before this thread runs again.
    sum.time = end.duration_since(sum.first.unwrap_or(end));
    Ok(sum)
}

fn start(stream: Stream, gate: Arc<Barrier>, done: Sender<Result<(), Failure>>) -> Result<(), Failure> {
    let body = move || {
        gate.wait();
        // Nobody listens any more where an earlier stream has failed.
        let _ = done.send(stream.work_off());
    };
    let started = std::thread::Builder::new().name("bench".into()).spawn(body);
    started.map(drop).map_err(|error| Failure::failed(format!("starting a thread failed: {error}")))
}

struct Stream {
    channel: Box<dyn Channel>,
    depth: usize,
    work: Arc<Work>,
    part: Arc<Mutex<Measured>>,
}

impl Stream {
    fn work_off(mut self) -> Result<(), Failure> {
        let mut under_way: HashMap<u64, Instant> = HashMap::new();
        let mut request = 0;
        loop {
            while under_way.len() < self.depth
                && let Some(block) = self.work.take()
            {
                request += 1;
                let asked = Instant::now();
                under_way.insert(request, asked);
                let mut part = lock(&self.part);
                part.unanswered += 1;
                part.first.get_or_insert(asked);
                drop(part);
                self.channel.ask(request, block)?;
            }
            if under_way.is_empty() {
                return Ok(());
            }
            let answer = self.channel.answer(&|| self.work.is_over())?;
            let now = Instant::now();
            let mut part = lock(&self.part);
            let (request, came) = match answer {
                Answer::Bytes { request, bytes } => (request, Some(bytes)),
                Answer::Refused { request } => (request, None),
                Answer::Over => return Ok(()),
            };
            let Some(asked) = under_way.remove(&request) else {
                return Err(Failure::failed("the other side answered an unknown request"));
            };
            part.unanswered -= 1;
            match came {
                Some(bytes) => {
                    part.bytes += bytes;
                    part.last = Some(now);
                    let nanos = u64::try_from(now.duration_since(asked).as_nanos()).unwrap_or(DELAY_MAX);
                    part.delays.saturating_record(nanos);
                }
                None => part.refused += 1,
            }
        }
    }
}

fn lock(part: &Mutex<Measured>) -> MutexGuard<'_, Measured> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::work::Order;
    use super::*;
    use std::sync::atomic::AtomicBool;

    const LONG: Duration = Duration::from_secs(3600);

    /// Answers in the order of asking: odd blocks with nothing, block 77 with an error, 99 never.
    #[derive(Default)]
    struct Fake(Vec<(u64, u64)>);

    impl Channel for Fake {
        fn ask(&mut self, request: u64, block: u64) -> Result<(), Failure> {
            self.0.push((request, block));
            Ok(())
        }

        fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<Answer, Failure> {
            let (request, block) = self.0.remove(0);
            match block {
                77 => Err(Failure::failed("broken")),
                99 => {
                    while !is_over() {
                        std::thread::yield_now();
                    }
                    Ok(Answer::Over)
                }
                _ if block % 2 == 1 => Ok(Answer::Refused { request }),
                _ => Ok(Answer::Bytes { request, bytes: 10 }),
            }
        }
    }

    fn fakes(count: usize) -> Vec<Box<dyn Channel>> {
        (0..count).map(|_| Box::<Fake>::default() as Box<dyn Channel>).collect()
    }

    fn work(blocks: u64, time: Duration) -> Arc<Work> {
        Arc::new(Work::new(Order::Sequential, blocks, blocks, time, Arc::new(AtomicBool::new(false))))
    }

    #[test]
    fn everything_is_counted_once_whoever_did_it() {
        for (streams, depth) in [(1, 1), (1, 8), (5, 1), (3, 4)] {
            let measured = run(fakes(streams), depth, &work(50, LONG), &|_| {}).unwrap();
            assert_eq!((measured.bytes, measured.refused, measured.unanswered), (250, 25, 0), "{streams} x {depth}");
            assert_eq!(measured.delays.len(), 25);
            // However late this thread is told of the end.
            assert!(measured.time < LONG && measured.time.as_nanos() >= u128::from(measured.delays.min()));
        }
    }

    #[test]
    fn a_stream_that_fails_fails_the_run() {
        let failure = run(fakes(2), 2, &work(100, LONG), &|_| {}).unwrap_err();
        assert_eq!(failure.fact(), "broken");
    }

    #[test]
    fn what_is_never_answered_does_not_hold_up_the_end() {
        let stop = Arc::new(AtomicBool::new(false));
        let work = Arc::new(Work::new(Order::Sequential, 100, 100, LONG, Arc::clone(&stop)));
        // 0 to 76 are answered; then one is skipped over, and the last one hangs until somebody
        // interrupts.
        while work.take() != Some(77) {}
        let interrupt = |bytes: u64| {
            if bytes >= 100 {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let measured = run(fakes(1), 1, &work, &interrupt).unwrap();
        assert_eq!((measured.bytes, measured.refused, measured.unanswered), (110, 10, 1));
    }
}
