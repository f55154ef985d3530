//! The trail of a fetch: the time that it spent in each stage, and who delivered the chunk.
//!
//! For `explain` only: no decision depends on it. The table writes it whenever a stage changes.

use super::Stage;
use crate::identity::NodeId;
use crate::time::Time;
use std::time::Duration;

/// Names of the stages, in the order of [`Stage::index`].
pub const STAGES: [&str; 6] = ["needs its page", "queued", "parked", "requested", "paused", "no peer to ask"];

impl Stage {
    /// Its place in [`STAGES`].
    pub const fn index(self) -> usize {
        match self {
            Self::NeedsParent => 0,
            Self::Queued => 1,
            Self::Parked(_) => 2,
            Self::Requested => 3,
            Self::Paused => 4,
            Self::Waiting => 5,
        }
    }
}

/// Where the time of a fetch went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trail {
    /// When it began.
    begun: Time,
    /// Since when it is in its stage.
    since: Time,
    /// Microseconds in each stage that it has left, as many as 32 bits hold.
    spent_us: [u32; STAGES.len()],
    /// Requests that failed: refused, lost or redirected.
    failed: u32,
    /// The peer that delivered the chunk, and how long that one waited for it by its own account.
    from: Option<(NodeId, Duration)>,
    /// The peer whose window it was parked for last.
    parked_for: Option<NodeId>,
}

impl Trail {
    /// Of a fetch that begins now.
    pub const fn new(now: Time) -> Self {
        Self { begun: now, since: now, spent_us: [0; STAGES.len()], failed: 0, from: None, parked_for: None }
    }

    /// The fetch leaves a stage for another, or ends.
    pub fn left(&mut self, stage: Stage, now: Time) {
        let spent = &mut self.spent_us[stage.index()];
        *spent = spent.saturating_add(u32::try_from((now - self.since).as_micros()).unwrap_or(u32::MAX));
        self.since = now;
        if let Stage::Parked(peer) = stage {
            self.parked_for = Some(peer);
        }
    }

    /// A request failed.
    pub const fn failed(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// A peer delivered the chunk, for which it waited so long itself.
    pub const fn delivered(&mut self, peer: NodeId, waited: Duration) {
        self.from = Some((peer, waited));
    }

    /// When the fetch began.
    pub const fn begun(&self) -> Time {
        self.begun
    }

    /// Since when it is in its stage.
    pub const fn since(&self) -> Time {
        self.since
    }

    /// Time in each stage that it has left, in the order of [`STAGES`].
    pub fn spent(&self) -> [Duration; STAGES.len()] {
        self.spent_us.map(|us| Duration::from_micros(us.into()))
    }

    /// Requests that failed.
    pub const fn failures(&self) -> u32 {
        self.failed
    }

    /// The peer that delivered the chunk, and how long that one waited for it.
    pub const fn from(&self) -> Option<(NodeId, Duration)> {
        self.from
    }

    /// The peer whose window it was parked for last.
    pub const fn parked_for(&self) -> Option<NodeId> {
        self.parked_for
    }
}
