//! The allowance of one connection within the node's limit ([`crate::limits`]).
//!
//! It asks for turns for the answer under way, and keeps its place in the queue while the
//! connection does other things. Without a limit it costs one relaxed load.

use super::super::outgoing::Outgoing;
use crate::limits::Pacer;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use vfield_core::wire::Priority;
use vfield_trust::record::Sealer;

type Turn = Pin<Box<dyn Future<Output = u64> + Send>>;

/// Bytes that a connection may send now.
pub(super) struct Pacing {
    pacer: Arc<Pacer>,
    /// True while `allowed` was granted within a limit.
    is_counted: bool,
    /// Bytes that may go.
    pub allowed: u64,
    /// The turn that it waits for, and since when.
    turn: Option<(Instant, Turn)>,
}

impl Pacing {
    pub fn new(pacer: Arc<Pacer>) -> Self {
        Self { pacer, is_counted: false, allowed: 0, turn: None }
    }

    /// True if some bytes of this answer may go now. If not, [`Pacing::granted`] returns once they
    /// may.
    pub fn may_send(&mut self, answer: &Outgoing, sealer: Option<&Sealer>, priority: Priority) -> bool {
        if !self.pacer.is_limited() {
            (self.is_counted, self.allowed, self.turn) = (false, u64::MAX, None);
            return true;
        }
        if !std::mem::replace(&mut self.is_counted, true) {
            self.allowed = 0;
        }
        let unsent = answer.unsent_bytes(sealer);
        if self.allowed == 0 && answer.payload_bytes() == 0 {
            self.pacer.charge(unsent);
            self.allowed = unsent;
        }
        if self.allowed == 0 && self.turn.is_none() {
            match self.pacer.try_turn(unsent) {
                Some(granted) => self.allowed = granted,
                None => self.turn = Some((Instant::now(), Box::pin(Arc::clone(&self.pacer).turn(priority, unsent)))),
            }
        }
        self.allowed > 0
    }

    /// True while it waits for its turn.
    pub const fn is_waiting(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns when its turn has come, and says how long that took; never if it waits for none.
    pub async fn granted(&mut self) -> Duration {
        let Some((since, turn)) = &mut self.turn else { return std::future::pending().await };
        self.allowed = turn.await;
        let held = since.elapsed();
        self.turn = None;
        held
    }
}

impl Drop for Pacing {
    fn drop(&mut self) {
        if self.is_counted {
            self.pacer.give_back(self.allowed);
        }
    }
}
