//! The slowest reads of the last hour, and where their time went. Bounded: [`KEPT`] reads.
//!
//! For `explain` only. [`crate::node`] notes each read that had to wait, once it ends.

use crate::chunk::Chunk;
use crate::fetch::{STAGES, Trail};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::time::Time;
use std::time::Duration;

/// Most reads that are kept.
pub const KEPT: usize = 64;
/// How long a read is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(3600);

/// A read that waited for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowRead {
    /// The image it belongs to.
    pub image: ImageId,
    /// The chunk that it waited for.
    pub chunk: Chunk,
    /// When the chunk came.
    pub ended: Time,
    /// How long the reader waited.
    pub waited: Duration,
    /// Where the time of the fetch went; it may have begun before the read.
    pub trail: Trail,
}

/// What a wait is due to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The page with the chunk's hash came late.
    Page,
    /// This node's own window was full: its link carries no more.
    OwnWindow,
    /// The window of this peer was full.
    PeersWindow(NodeId),
    /// This peer waited for the chunk itself for most of the time.
    Upstream(NodeId),
    /// This peer, or the link to it, was slow.
    Peer(NodeId),
    /// Requests failed until one peer delivered.
    Failures,
    /// Answers could not be used.
    Unusable,
    /// No node had it.
    Nobody,
}

impl SlowRead {
    /// The cause of most of the wait.
    pub fn cause(&self) -> Cause {
        let spent = self.trail.spent();
        let longest = (0..STAGES.len()).max_by_key(|stage| (spent[*stage], std::cmp::Reverse(*stage))).unwrap_or(0);
        let delivered = self.trail.from();
        match (longest, delivered) {
            (0, _) => Cause::Page,
            (1, _) => Cause::OwnWindow,
            (2, _) => self.trail.parked_for().map_or(Cause::OwnWindow, Cause::PeersWindow),
            // The time of a request that failed is not the deliverer's.
            (3, Some((peer, waited))) if waited * 2 >= spent[3] => Cause::Upstream(peer),
            (3, _) if self.trail.failures() > 0 => Cause::Failures,
            (3, Some((peer, _))) => Cause::Peer(peer),
            (3, None) => Cause::Failures,
            (4, _) => Cause::Unusable,
            _ => Cause::Nobody,
        }
    }
}

/// The slowest reads lately.
#[derive(Debug, Default)]
pub struct SlowReads {
    reads: Vec<SlowRead>,
}

impl SlowReads {
    /// Notes a read that ended.
    pub fn note(&mut self, read: SlowRead) {
        if self.reads.len() >= KEPT {
            self.reads.retain(|other| read.ended - other.ended < KEPT_FOR);
        }
        if self.reads.len() < KEPT {
            self.reads.push(read);
            return;
        }
        let quickest = self.reads.iter_mut().min_by_key(|other| other.waited);
        if let Some(quickest) = quickest.filter(|other| other.waited < read.waited) {
            *quickest = read;
        }
    }

    /// Those of the last hour, the slowest first.
    pub fn lately(&self, now: Time) -> Vec<SlowRead> {
        let mut reads: Vec<SlowRead> = self.reads.iter().filter(|read| now - read.ended < KEPT_FOR).copied().collect();
        reads.sort_unstable_by_key(|read| (std::cmp::Reverse(read.waited), read.ended));
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Stage;

    const MS: Duration = Duration::from_millis(1);
    const PEER: NodeId = NodeId(7);

    fn read(waited: u32, ended: u32, trail: Trail) -> SlowRead {
        let (waited, ended) = (MS * waited, Time::ZERO + MS * ended);
        SlowRead { image: ImageId([1; 32]), chunk: Chunk(3), ended, waited, trail }
    }

    #[test]
    fn the_slowest_of_the_hour_are_kept() {
        let mut reads = SlowReads::default();
        for waited in 0..1000 {
            reads.note(read(waited * 7 % 1000, waited, Trail::default()));
        }
        let kept = reads.lately(Time::ZERO + MS * 1000);
        assert_eq!(
            kept.iter().map(|read| read.waited).collect::<Vec<_>>(),
            (936..1000).rev().map(|ms| MS * ms).collect::<Vec<_>>()
        );
        assert!(reads.lately(Time::ZERO + KEPT_FOR * 2).is_empty());
        reads.note(read(1, 2 * 3_600_000, Trail::default()));
        assert_eq!(reads.reads.len(), 1, "what is old makes room for a quick one");
    }

    #[test]
    fn the_cause_is_where_most_of_the_time_went() {
        let trail = |stages: &[(Stage, u32)]| {
            let (mut trail, mut now) = (Trail::new(Time::ZERO), Time::ZERO);
            for (stage, ms) in stages {
                now = now + MS * *ms;
                trail.left(*stage, now);
            }
            trail
        };
        let cause = |trail| read(100, 100, trail).cause();
        assert_eq!(cause(trail(&[(Stage::NeedsParent, 90), (Stage::Requested, 5)])), Cause::Page);
        assert_eq!(cause(trail(&[(Stage::Queued, 90), (Stage::Requested, 5)])), Cause::OwnWindow);
        assert_eq!(cause(trail(&[(Stage::Parked(PEER), 90), (Stage::Requested, 5)])), Cause::PeersWindow(PEER));
        assert_eq!(cause(trail(&[(Stage::Waiting, 90), (Stage::Requested, 5)])), Cause::Nobody);
        assert_eq!(cause(trail(&[(Stage::Paused, 90), (Stage::Requested, 5)])), Cause::Unusable);
        let mut asked = trail(&[(Stage::Queued, 1), (Stage::Requested, 90)]);
        asked.delivered(PEER, MS * 80);
        assert_eq!(cause(asked), Cause::Upstream(PEER));
        asked.delivered(PEER, MS * 2);
        assert_eq!(cause(asked), Cause::Peer(PEER));
        asked.failed();
        assert_eq!(cause(asked), Cause::Failures);
    }
}
