//! The pulse of the machine that measures: how late a thread wakes that does nothing but sleep.
//!
//! A machine with more work than processors, or one that its host does not let run, stands still
//! for everybody. A time without a byte says something about the field only beside that.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread sleeps: short beside the second that readers are promised.
const BEAT: Duration = Duration::from_millis(50);

/// A thread that sleeps, and looks at the clock.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Nobody sends; the thread ends when this is closed.
    end: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Pulse {
    /// Begins to measure.
    pub(super) fn start() -> Self {
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut latest = Duration::ZERO;
            loop {
                let start = Instant::now();
                let slept = ended.recv_timeout(BEAT);
                if slept != Err(RecvTimeoutError::Timeout) {
                    return latest;
                }
                latest = latest.max(start.elapsed().saturating_sub(BEAT));
            }
        });
        Self { end, thread }
    }

    /// How late the thread was at most.
    pub(super) fn latest(self) -> Duration {
        drop(self.end);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_ends_when_it_is_asked_for() {
        let start = Instant::now();
        let latest = Pulse::start().latest();
        assert!(latest <= start.elapsed());
    }
}
