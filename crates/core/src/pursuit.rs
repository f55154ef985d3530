//! A wait that is followed from node to node: "it waits for Q" becomes a question to Q.
//!
//! An [`Account`] is what a node says of its own wait for a chunk; one frame of the wire. It is a
//! hint, and nothing but `explain` depends on it. A [`Pursuit`] asks one node after the other, and
//! knows no sockets: the shell carries its questions. It ends after [`HOPS_MAX`] nodes, or where a
//! node says no other one.

use crate::chunk::Chunk;
use crate::fetch::Stage;
use crate::identity::NodeId;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most nodes that are asked, one after the other.
pub const HOPS_MAX: usize = 8;
/// Most accounts that a node gives within a second, to all others together. A person asks a few;
/// each costs about as much as a request for a chunk.
pub const ACCOUNTS_MAX: u32 = 64;

/// What a node says of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The chunk, or the page of hashes that has to come before it.
    pub chunk: u64,
    /// True if the node has it.
    pub is_here: bool,
    /// Its fetch, if there is one.
    pub wait: Option<Wait>,
}

/// A node's wait for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// [`Stage::index`] of the fetch.
    pub stage: u8,
    /// Milliseconds in this stage.
    pub in_stage_ms: u32,
    /// The node that it waits for, and the milliseconds since that one was asked.
    pub awaits: Option<(NodeId, u32)>,
}

impl Wait {
    /// Of a fetch in this stage, and the first node that it asked.
    pub fn new(stage: Stage, in_stage: Duration, asked: Option<(NodeId, Duration)>) -> Self {
        let awaits = match stage {
            Stage::Parked(peer) => Some((peer, in_stage)),
            _ => asked,
        };
        let awaits = awaits.map(|(node, age)| (node, millis(age)));
        Self { stage: stage.index() as u8, in_stage_ms: millis(in_stage), awaits }
    }
}

fn millis(period: Duration) -> u32 {
    u32::try_from(period.as_millis()).unwrap_or(u32::MAX)
}

/// The outcome of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The node's account.
    Account(Account),
    /// It gives none: it does not take part in the image, or has given many.
    Refused,
    /// It did not answer in time, or cannot be reached.
    Nothing,
}

/// A node that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The asked node.
    pub node: NodeId,
    /// Its answer, or why there is none.
    pub said: Said,
}

/// Where a pursuit has ended, and so what the wait is due to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// This node does not answer.
    Silent(NodeId),
    /// This node gives no account.
    Refuses(NodeId),
    /// This node has the chunk: it, or the link from it, is slow.
    Sends(NodeId),
    /// This node waits, and for no other one: its stage says why.
    Waits(NodeId),
    /// This node neither has the chunk nor fetches it.
    Idle(NodeId),
    /// This node waits for another that was asked before.
    Circle(NodeId),
    /// More nodes wait for each other than are asked.
    TooFar,
}

/// Follows a wait; [`Pursuit::next`] and [`Pursuit::said`] take turns.
#[derive(Debug, Clone)]
pub struct Pursuit {
    me: NodeId,
    next: Option<(NodeId, Chunk)>,
    hops: Vec<Hop>,
}

impl Pursuit {
    /// Begins with what this node says itself.
    pub fn new(me: NodeId, own: &Account) -> Self {
        let awaits = own.wait.and_then(|wait| wait.awaits);
        Self { me, next: awaits.map(|(node, _)| (node, Chunk(own.chunk))), hops: Vec::new() }
    }

    /// The node to ask, and about what.
    pub const fn next(&self) -> Option<(NodeId, Chunk)> {
        self.next
    }

    /// The nodes that were asked.
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// The outcome of the question to [`Pursuit::next`].
    pub fn said(&mut self, said: Said) {
        let Some((node, _)) = self.next.take() else { return };
        self.hops.push(Hop { node, said });
        let Said::Account(Account { chunk, is_here: false, wait: Some(wait) }) = said else { return };
        let was_asked = |node| node == self.me || self.hops.iter().any(|hop| hop.node == node);
        let awaits = wait.awaits.filter(|(node, _)| self.hops.len() < HOPS_MAX && !was_asked(*node));
        self.next = awaits.map(|(node, _)| (node, Chunk(chunk)));
    }

    /// Where it has ended; `None` if there was nobody to ask.
    pub fn end(&self) -> Option<End> {
        let Hop { node, said } = *self.hops.last()?;
        Some(match said {
            Said::Nothing => End::Silent(node),
            Said::Refused => End::Refuses(node),
            Said::Account(Account { is_here: true, .. }) => End::Sends(node),
            Said::Account(Account { wait: None, .. }) => End::Idle(node),
            Said::Account(Account { wait: Some(Wait { awaits: None, .. }), .. }) => End::Waits(node),
            Said::Account(_) if self.hops.len() == HOPS_MAX => End::TooFar,
            Said::Account(_) => End::Circle(node),
        })
    }
}

/// Counts the accounts that a node gives.
#[derive(Debug, Default)]
pub(crate) struct Given {
    since: Time,
    count: u32,
}

impl Given {
    /// True if one more may be given now.
    pub fn one_more(&mut self, now: Time) -> bool {
        if now - self.since >= Duration::from_secs(1) {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count <= ACCOUNTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(100);

    fn waits_for(node: Option<u64>) -> Account {
        let asked = node.map(|node| (NodeId(node), Duration::from_millis(340)));
        Account { chunk: 5, is_here: false, wait: Some(Wait::new(Stage::Requested, Duration::from_secs(1), asked)) }
    }

    /// Follows a wait for the first of the nodes through what they say.
    fn pursued(first: u64, says: impl Fn(u64) -> Said) -> Pursuit {
        let mut pursuit = Pursuit::new(ME, &waits_for(Some(first)));
        while let Some((node, chunk)) = pursuit.next() {
            assert_eq!(chunk, Chunk(5));
            pursuit.said(says(node.0));
        }
        pursuit
    }

    fn asked(pursuit: &Pursuit) -> Vec<u64> {
        pursuit.hops().iter().map(|hop| hop.node.0).collect()
    }

    #[test]
    fn a_wait_is_followed_to_its_end() {
        let here = Account { is_here: true, ..waits_for(None) };
        let idle = Account { wait: None, ..here };
        for (last, end) in [
            (Said::Nothing, End::Silent(NodeId(3))),
            (Said::Refused, End::Refuses(NodeId(3))),
            (Said::Account(here), End::Sends(NodeId(3))),
            (Said::Account(Account { is_here: false, ..idle }), End::Idle(NodeId(3))),
            (Said::Account(waits_for(None)), End::Waits(NodeId(3))),
        ] {
            let says = |node| if node == 3 { last } else { Said::Account(waits_for(Some(node + 1))) };
            let pursuit = pursued(1, says);
            assert_eq!((asked(&pursuit), pursuit.end()), (vec![1, 2, 3], Some(end)));
        }
    }

    #[test]
    fn circles_and_long_ways_have_an_end() {
        let circle = pursued(1, |node| Said::Account(waits_for(Some(node % 3 + 1))));
        assert_eq!((asked(&circle), circle.end()), (vec![1, 2, 3], Some(End::Circle(NodeId(3)))));
        let back = pursued(1, |_| Said::Account(waits_for(Some(ME.0))));
        assert_eq!((asked(&back), back.end()), (vec![1], Some(End::Circle(NodeId(1)))));
        let long = pursued(1, |node| Said::Account(waits_for(Some(node + 1))));
        assert_eq!((asked(&long).len(), long.end()), (HOPS_MAX, Some(End::TooFar)));
        let nobody = Pursuit::new(ME, &waits_for(None));
        assert_eq!((nobody.next(), nobody.end()), (None, None));
    }

    #[test]
    fn a_parked_fetch_waits_for_the_peer_with_the_full_window() {
        let wait = Wait::new(Stage::Parked(NodeId(7)), Duration::from_millis(20), None);
        assert_eq!((wait.stage, wait.awaits), (2, Some((NodeId(7), 20))));
    }

    #[test]
    fn accounts_are_bounded_in_each_second() {
        let (mut given, mut now) = (Given::default(), Time::ZERO);
        for _ in 0..3 {
            let first = (0..2 * ACCOUNTS_MAX).filter(|_| given.one_more(now)).count();
            assert_eq!(first, ACCOUNTS_MAX as usize);
            now = now + Duration::from_secs(1);
        }
    }
}
