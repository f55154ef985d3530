//! Silence: if a peer owes answers on a connection and sends nothing, the node opens another one.
//! The new connection takes over if the peer answers there while the first one is still silent.
//!
//! A firewall may forget a flow, or a switch may hash one flow onto a dead link. Both drop the
//! packets of established connections and let new ones through, and TCP notices after minutes. A
//! peer with open requests reports every 50 ms, so silence means a stopped machine, a full link, or
//! such a flow; the new connection tells which. One is opened at a time, with growing pauses, so a
//! stopped machine finds only a few when it goes on. A lane's task owns this; it knows no frames.

use super::lane::Stirred;
use crate::connection::Connection;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use vfield_core::doubling::Doubling;
use vfield_core::tuning::STALL;

/// Pauses between two attempts. In the longest one a connection is tried for up to five seconds.
const PAUSE: Doubling = Doubling { first: STALL, longest: Duration::from_secs(20) };

/// A connection that is being made, to the same peer.
type Dialling<'a, E> = Pin<Box<dyn Future<Output = Result<Connection, E>> + Send + 'a>>;

/// The watch on a silent connection.
pub struct Silence<'a, E> {
    dial: Box<dyn FnMut() -> Dialling<'a, E> + Send + 'a>,
    /// When to check next.
    look: Pin<Box<Sleep>>,
    dialling: Option<Dialling<'a, E>>,
    /// Attempts since something came.
    attempts: u32,
    /// The last attempt.
    attempted: Option<Instant>,
}

impl<'a, E> Silence<'a, E> {
    /// Watches a connection that has just been opened; `dial` opens another one.
    pub fn new(dial: impl FnMut() -> Dialling<'a, E> + Send + 'a) -> Self {
        let look = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { dial: Box::new(dial), look, dialling: None, attempts: 0, attempted: None }
    }

    /// Waits until the connection is to be replaced. `owed` says since when the peer owes answers
    /// and is silent; `patience` is how long that may be now.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        owed: impl Fn() -> Option<Instant>,
        patience: impl Fn() -> Duration,
    ) -> Poll<Stirred> {
        if let Some(dialling) = &mut self.dialling
            && let Poll::Ready(outcome) = dialling.as_mut().poll(cx)
        {
            self.dialling = None;
            if let Ok(connection) = outcome
                && owed().is_some_and(|since| since.elapsed() >= patience())
            {
                return Poll::Ready(Stirred::Replaced(Box::new(connection)));
            }
        }
        while self.look.as_mut().poll(cx).is_ready() {
            // The next request wakes the lane's task.
            let Some(since) = owed() else { break };
            let patience = patience();
            if since.elapsed() < patience {
                self.attempts = 0;
                self.look_at(since + patience);
            } else {
                let pause = PAUSE.pause(self.attempts);
                if self.dialling.is_none() && self.attempted.is_none_or(|last| last.elapsed() >= pause) {
                    (self.attempts, self.attempted) = (self.attempts + 1, Some(Instant::now()));
                    self.dialling = Some((self.dial)());
                    // Its first step is taken when the task is polled again; nothing else would see
                    // to that.
                    cx.waker().wake_by_ref();
                }
                self.look_at(Instant::now() + STALL);
            }
        }
        Poll::Pending
    }

    fn look_at(&mut self, at: Instant) {
        self.look.as_mut().reset(at.into());
    }
}
