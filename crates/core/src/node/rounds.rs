//! Rounds: a fetch asks each peer that it may ask once, and begins anew if all have refused.
//!
//! A new round begins with news of the field, or after some time. Members make news as often as
//! they like. So each round in vain is followed by a pause, and the pause grows.
//! [`super::requests`] and [`super::reads`] call this module; it sends no request.

use super::{Node, Timer};
use crate::chunk::Chunk;
use crate::fetch::{Fetch, Stage};
use crate::image::ImageId;
use crate::tuning::{ROUND_PAUSE, WAIT_RETRY};
use crate::wire::Refusal;

impl Node {
    /// Refuses the askers that keep a fetch from asking further on behalf of others. False if there
    /// are none.
    pub(super) fn goes_further(&mut self, id: ImageId, chunk: Chunk) -> bool {
        let Some(goal) = self.goal(id, chunk) else { return false };
        let refused = self.fetches.get_mut(goal).map_or_else(Vec::new, Fetch::refuse_the_nearest);
        let any = !refused.is_empty();
        self.refuse(refused, goal, Refusal::NotHeld);
        any
    }

    /// All who could be asked for a chunk have refused it: the next round begins after a pause,
    /// whatever becomes known meanwhile.
    pub(super) fn end_round(&mut self, id: ImageId, chunk: Chunk) {
        let now = self.now;
        if let Some(fetch) = self.fetch_mut(id, chunk).filter(|fetch| !fetch.tried.is_empty()) {
            let (before, _) = fetch.rounds;
            fetch.rounds = (before.saturating_add(1), now + ROUND_PAUSE.pause(before));
        }
    }

    /// Somebody else wants a chunk too: if it waits, a round begins. False during the pause.
    pub(super) fn may_be_asked_anew(&mut self, id: ImageId, chunk: Chunk) -> bool {
        let now = self.now;
        let fetch = self.fetch_mut(id, chunk).filter(|fetch| fetch.stage() == Stage::Waiting);
        let Some(fetch) = fetch else { return true };
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
            self.set(WAIT_RETRY, Timer::RetryWaiting);
        }
    }

    /// Retries the chunks that had no peer to ask, and whose pause is over.
    pub(super) fn retry_waiting(&mut self) {
        let now = self.now;
        for id in self.image_ids() {
            let Some(number) = self.images.get(&id).map(|image| image.number) else { continue };
            let waiting = self.fetches.of_mut(number).filter(|(_, fetch)| fetch.stage() == Stage::Waiting);
            let (due, pausing): (Vec<_>, Vec<_>) = waiting.partition(|(_, fetch)| fetch.rounds.1 <= now);
            let pauses = !pausing.is_empty();
            let begun = due.into_iter().map(|(chunk, fetch)| {
                fetch.begin_round();
                chunk
            });
            let due: Vec<Chunk> = begun.collect();
            if pauses {
                self.retry_later();
            }
            for chunk in due {
                self.enqueue(id, chunk);
            }
        }
    }
}
