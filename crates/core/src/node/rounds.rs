//! Rounds: a fetch asks each peer that it may ask once, and begins anew if all have refused.
//!
//! A new round begins with news of the field, or after some time. Members make news as often as
//! they like. So each round in vain is followed by a pause, and the pause grows.
//! [`super::requests`] and [`super::reads`] call this module; it sends no request.

use super::{Node, Output, Timer};
use crate::chunk::Chunk;
use crate::fetch::{Fetch, Stage};
use crate::image::ImageId;
use crate::time::Time;
use crate::wire::Refusal;
use std::time::Duration;

/// First pause after a round in which all refused; it doubles each time. News of the field ends the
/// wait for a chunk, and a member may make news all the time. Shorter than the interval of news, so
/// that a room that is switched on does not notice it.
const ROUND_PAUSE: Duration = Duration::from_millis(10);
/// The longest of these pauses. With [`crate::config::WAIT_RETRY`] it is below a second: readers go
/// on within that after a holder's return.
const ROUND_PAUSE_MAX: Duration = Duration::from_millis(500);

impl Node {
    /// Refuses the askers that keep a fetch from asking further on behalf of others. False if there
    /// are none.
    pub(super) fn goes_further(&mut self, id: ImageId, chunk: Chunk) -> bool {
        let Some(image) = self.images.get_mut(&id) else { return false };
        let Some(fetch) = image.fetches.get_mut(&chunk) else { return false };
        let refused = fetch.refuse_the_nearest();
        refused.iter().for_each(|asker| self.asks.ended(asker, image.number, chunk));
        let any = !refused.is_empty();
        self.outputs.extend(refused.into_iter().map(|asker| Output::Refuse(asker, Refusal::NotHeld)));
        any
    }

    /// All who could be asked for a chunk have refused it: the next round begins after a pause,
    /// whatever becomes known meanwhile.
    pub(super) fn end_round(&mut self, id: ImageId, chunk: Chunk) {
        let now = self.now;
        let fetch = self.images.get_mut(&id).and_then(|image| image.fetches.get_mut(&chunk));
        if let Some(fetch) = fetch.filter(|fetch| !fetch.tried.is_empty()) {
            let (before, _) = fetch.rounds;
            let pause = (ROUND_PAUSE * 2u32.saturating_pow(before)).min(ROUND_PAUSE_MAX);
            fetch.rounds = (before.saturating_add(1), now + pause);
        }
    }

    /// Somebody else wants a chunk too: if it waits, a round begins. False during the pause.
    pub(super) fn may_be_asked_anew(&mut self, id: ImageId, chunk: Chunk) -> bool {
        let now = self.now;
        let fetch = self.images.get_mut(&id).and_then(|image| image.fetches.get_mut(&chunk));
        let Some(fetch) = fetch.filter(|fetch| fetch.stage == Stage::Waiting) else { return true };
        let is_due = fetch.rounds.1 <= now;
        if is_due {
            fetch.begin_round();
        }
        is_due
    }

    /// Retries waiting chunks before long.
    pub(super) fn retry_later(&mut self) {
        if !self.retrying {
            self.retrying = true;
            self.set(crate::config::WAIT_RETRY, Timer::RetryWaiting);
        }
    }

    /// Retries the chunks that had no peer to ask, and whose pause is over.
    pub(super) fn retry_waiting(&mut self) {
        let (ids, now): (Vec<ImageId>, Time) = (self.images.keys().copied().collect(), self.now);
        for id in ids {
            let Some(image) = self.images.get_mut(&id) else { continue };
            let waiting = || image.fetches.values().filter(|fetch| fetch.stage == Stage::Waiting);
            if waiting().any(|fetch| fetch.rounds.1 > now) {
                self.retry_later();
            }
            let Some(image) = self.images.get_mut(&id) else { continue };
            let is_due = |fetch: &Fetch| fetch.stage == Stage::Waiting && fetch.rounds.1 <= now;
            let waiting = image.fetches.iter_mut().filter(|(_, fetch)| is_due(fetch));
            let chunks: Vec<Chunk> = waiting
                .map(|(chunk, fetch)| {
                    fetch.begin_round();
                    *chunk
                })
                .collect();
            for chunk in chunks {
                self.enqueue(id, chunk);
            }
        }
    }
}
