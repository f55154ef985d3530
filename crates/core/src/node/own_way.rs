//! The own way: a node whose gateways all fail it goes out of its zone itself.
//!
//! The gateways of a zone are its eldest nodes, and nothing else recommends them. If all of them
//! refuse a chunk for a while, the node becomes its own gateway and asks other zones. That is a
//! trial. If other zones refuse as well, no node has the chunk, and the gateways keep their role
//! for the node. [`super::backbone`] asks [`OwnWay`] whether it replaces the gateways;
//! [`super::requests`] reports fetches in vain, and answers.

use super::{Node, Timer};
use crate::chunk::Chunk;
use crate::doubling::Doubling;
use crate::fetch::Stage;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::Gateways;
use crate::standing::Offence;
use crate::time::Time;
use std::time::Duration;

/// Time for which a fetch finds nobody before the node tries its own way. Readers are to go on
/// within a second. Gateways of an honest zone refuse for some tenths of a second while they find
/// each other.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long an own way lasts; doubled if the same gateways are found to fail again. The first is
/// short. A holder may have come back during the trial, and then all nodes would draw on its link.
const TAKEN: Doubling = Doubling { first: Duration::from_secs(5), longest: Duration::from_secs(300) };
/// Time for which other zones may refuse too before the trial ends. A new gateway finds them in
/// some tenths of a second.
const TRIAL: Duration = Duration::from_secs(2);
/// Pause after a trial in vain. As long as no node has a chunk, each node of the field tries, and
/// joins the backbone for it.
const VAIN: Doubling = Doubling { first: Duration::from_secs(10), longest: Duration::from_secs(60) };

const _: () = assert!(TRIAL.as_secs() < TAKEN.first.as_secs());

/// The own way of a node for one image.
#[derive(Debug, Default)]
pub(super) struct OwnWay {
    /// The gateways that failed.
    failed: Gateways,
    began: Time,
    taken: Offence,
    vain: Offence,
    /// It brought a chunk that the gateways refused.
    helped: bool,
}

impl OwnWay {
    /// True while this node is its own gateway instead of these. Others deserve a try first.
    pub(super) fn replaces(&self, eldest: &Gateways, now: Time) -> bool {
        self.taken.lasts(now) && self.failed == *eldest
    }

    fn begin(&mut self, failed: &Gateways, now: Time) -> Duration {
        if self.failed != *failed {
            self.taken = Offence::default();
            self.failed = failed.clone();
        }
        (self.began, self.helped) = (now, false);
        self.taken.again(&TAKEN, now)
    }

    fn end_in_vain(&mut self, now: Time) {
        self.taken = Offence::default();
        self.vain.again(&VAIN, now);
    }
}

impl Node {
    /// A fetch has found nobody to ask: if it is so for long, its gateways have failed, or the own
    /// way has.
    pub(super) fn found_nobody(&mut self, id: ImageId, chunk: Chunk) {
        let (me, now) = (self.me().node, self.now);
        let Some(image) = self.images.get_mut(&id) else { return };
        let waiting = self.fetches.get((image.number, chunk)).and_then(|fetch| fetch.waiting);
        let Some((since, _)) = waiting.filter(|(since, _)| now - *since >= PATIENCE) else { return };
        let way = &mut image.own_way;
        if way.taken.lasts(now) {
            if !way.helped && since <= way.began && now - way.began >= TRIAL {
                way.end_in_vain(now);
                self.mapped = u64::MAX;
            }
            return;
        }
        let gateways = &image.gateways;
        let is_settled = now >= image.warm_up_until;
        if !is_settled || gateways.nodes().is_empty() || gateways.contains(me) || way.vain.lasts(now) {
            return;
        }
        let lasts = way.begin(gateways, now);
        // There are others to ask now, of whom no member has told.
        let waiting = self.fetches.of_mut(image.number).filter(|(_, fetch)| fetch.stage() == Stage::Waiting);
        for (_, fetch) in waiting {
            fetch.rounds = (0, now);
        }
        self.mapped = u64::MAX;
        self.set(lasts, Timer::OwnWay);
    }

    /// A peer has delivered a chunk: one of another zone may have done what the gateways did not.
    pub(super) fn note_way(&mut self, id: ImageId, chunk: Chunk, peer: NodeId) {
        let is_outside = !self.membership.live().contains_key(&peer);
        let Some(image) = self.images.get_mut(&id).filter(|_| is_outside) else { return };
        let waiting = self.fetches.get((image.number, chunk)).and_then(|fetch| fetch.waiting);
        let way = &mut image.own_way;
        if way.taken.lasts(self.now) && waiting.is_some_and(|(since, _)| since <= way.began) {
            (way.helped, way.vain) = (true, Offence::default());
        }
    }
}
