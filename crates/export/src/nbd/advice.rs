//! CACHE requests: extents that a client says it will read.
//!
//! Owns those of one connection that are on their way. Each brings its chunks here one after the
//! other, as reads that send nothing, and is answered when all are here. Advice is cheap to give,
//! so it is bounded: advice beyond [`Limits::advice_bytes`] of the connection or the budget of all
//! connections is answered at once and forgotten. Invariant: an extent on its way holds no bytes,
//! and one chunk of the budget. Advice that is given up leaves nothing. The answers call it.

use super::budget::Budget;
use super::waits::Waits;
use std::sync::Arc;
use std::task::{Context, Poll};
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, Piece};

#[cfg(doc)]
use super::Limits;

/// Advice in flight for one connection, by cookie.
pub(super) struct Advice {
    under_way: Waits<u64, ()>,
    budget: Budget,
    bytes_max: u64,
}

impl Advice {
    /// None yet; at most `bytes_max` at a time, and what `budget` has.
    pub(super) fn new(budget: Budget, bytes_max: u64) -> Self {
        Self { under_way: Waits::new(), budget, bytes_max }
    }

    /// Takes advice about `extent`, which the source has. False if it is forgotten: then it is to
    /// be answered at once.
    pub(super) fn take(&mut self, source: &Arc<dyn BlockSource>, cookie: u64, extent: Extent) -> bool {
        // One is possible, however long the chunks are.
        let chunk_bytes = u64::from(source.chunk_bytes()).min(self.bytes_max);
        if extent.is_empty() || (self.under_way.len() as u64 + 1) * chunk_bytes > self.bytes_max {
            return false;
        }
        let Some(permit) = self.budget.take(chunk_bytes) else { return false };
        let source = source.clone();
        let brought = async move {
            bring(source.as_ref(), extent).await;
            drop(permit);
        };
        self.under_way.push(cookie, Box::pin(brought));
        true
    }

    /// The cookie of finished advice.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        self.under_way.poll_next(cx).map(|(cookie, ())| cookie)
    }

    /// Nobody will read: all of it counts as followed, and is answered in its turn.
    pub(super) fn settle(&mut self) {
        let cookies = self.give_up();
        self.owe(cookies);
    }

    /// Advice that needs nothing but its answer.
    pub(super) fn owe(&mut self, cookies: Vec<u64>) {
        cookies.into_iter().for_each(|cookie| self.under_way.push(cookie, Box::pin(std::future::ready(()))));
    }

    /// Forgets all of it; the cookies that have no answer yet.
    pub(super) fn give_up(&mut self) -> Vec<u64> {
        self.under_way.cancel()
    }
}

/// Waits until each chunk of `extent` has been here once. An error ends it: whoever reads is told
/// the same.
async fn bring(source: &dyn BlockSource, extent: Extent) {
    let chunk_bytes = u64::from(source.chunk_bytes());
    let mut rest = extent;
    while !rest.is_empty() {
        // No longer part: data that is requested at once outlives its client, save its beginning.
        let part = rest.take(chunk_bytes - rest.start() % chunk_bytes);
        let Ok(pieces) = source.read(part).await else { return };
        let found: u64 = pieces.iter().map(Piece::len).sum();
        if found == 0 || found > part.len() {
            return;
        }
        rest = rest.skip(found);
        // Where everything is here nothing waits, and the connection has other work.
        tokio::task::yield_now().await;
    }
}
