//! Clients that do not take their answers.
//!
//! A client may pause for as long as it likes, since it may be a machine that its owner has
//! stopped; but what it has not taken must not keep chunks of the source in place, which are longer
//! than its answers and are wanted elsewhere. Says when that has lasted for too long. The
//! connection calls it.

use super::outbox::{OUTBOX_BYTES_MAX, Outbox};
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A client that takes less than an outbox in so long pauses. A copy of an outbox a second costs a
/// thousandth of a processor.
const LONG: Duration = Duration::from_secs(1);

/// The pause of one connection.
#[derive(Debug)]
pub(super) struct Pause {
    /// Runs from when the outbox was seen to keep something in place.
    timer: Pin<Box<Sleep>>,
    /// Bytes sent at the timer's start; `None` while it does not run.
    sent_bytes: Option<u64>,
}

impl Pause {
    /// For a client that has not been seen to pause.
    pub(super) fn new() -> Self {
        Self { timer: Box::pin(tokio::time::sleep(LONG)), sent_bytes: None }
    }

    /// True if the client has paused for long. To be called whenever the connection waits; wakes it
    /// when it may be so.
    pub(super) fn is_long(&mut self, outbox: &Outbox, cx: &mut Context<'_>) -> bool {
        if !outbox.keeps_in_place() {
            self.sent_bytes = None;
            return false;
        }
        loop {
            let Some(before) = self.sent_bytes else {
                self.timer.as_mut().reset(Instant::now() + LONG);
                self.sent_bytes = Some(outbox.sent_bytes());
                continue;
            };
            if self.timer.as_mut().poll(cx) == Poll::Pending {
                return false;
            }
            self.sent_bytes = None;
            if outbox.sent_bytes() - before < OUTBOX_BYTES_MAX {
                return true;
            }
        }
    }
}
