//! Attacks by answers: claims without chunks, silence, wrong bytes.

use super::{Attack, Deed, Malice, Sight};
use crate::dice::Dice;
use std::collections::BTreeSet;
use vfield_core::chunk::Chunk;
use vfield_core::identity::NodeId;
use vfield_core::membership::message::Item;
use vfield_core::placement::Arc;
use vfield_core::record::Record;

/// How a malicious member treats a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// As an honest node.
    Honest,
    /// It says that it does not hold the chunk.
    Refuse,
    /// Not at all. True: it gives signs of life meanwhile.
    Ignore(bool),
    /// With wrong bytes.
    Wrong,
    /// It sends the asker to this node.
    Elsewhere(NodeId),
}

/// How a malicious member serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// Serves as others do.
    Honest,
    /// Refuses each request: not held.
    Refuses,
    /// Ignores all; true: with signs of life.
    Ignores(bool),
    /// Sends wrong bytes, always or every other time.
    Lies(bool),
    /// Delivers this many chunks, whichever are first asked for, and no others.
    Some(usize),
    /// Sends askers to others, which may not exist.
    Redirects,
}

/// The state of a malicious member's answers.
#[derive(Debug)]
pub(super) struct Serving {
    served: Served,
    claims_origin: bool,
    delivered: BTreeSet<Chunk>,
    asked: u64,
}

impl Serving {
    pub(super) fn drawn(attack: Attack, dice: &mut Dice) -> Self {
        let often = dice.among(1..200) as usize;
        let served = match attack {
            Attack::Boasts => dice.one_of(&[
                Served::Refuses,
                Served::Ignores(false),
                Served::Ignores(true),
                Served::Some(often),
                Served::Some(often),
                Served::Redirects,
            ]),
            Attack::Silence => dice.one_of(&[Served::Ignores(false), Served::Ignores(true)]),
            Attack::Lies => dice.one_of(&[Served::Lies(true), Served::Lies(false)]),
            _ => Served::Honest,
        };
        Self { served, claims_origin: dice.percent(30), delivered: BTreeSet::new(), asked: 0 }
    }
}

impl Malice {
    /// Row 8: the claim. Its answers are [`Malice::answer`].
    pub(super) fn boast(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let (name, header) = (sight.image.name.clone(), *sight.image.geometry.header());
        let claim = Self::claim(sight, self.own.id(), sight.image.id, &name, &header);
        let origin = self.serving.claims_origin;
        let length = if origin { 0 } else { claim.arc.length };
        let claim = Record { origin, arc: Arc { start: 0, length }, ..claim };
        let items = [Item::Record(self.own.record(claim))];
        let targets = self.targets(sight);
        self.tell(sight, &targets, &items, deeds);
    }

    /// How it treats the next request, for this chunk.
    pub fn answer(&mut self, chunk: Chunk, others: &[NodeId]) -> Answer {
        let state = &mut self.serving;
        state.asked += 1;
        match state.served {
            Served::Honest => Answer::Honest,
            Served::Refuses => Answer::Refuse,
            Served::Ignores(lives) => Answer::Ignore(lives),
            Served::Lies(always) if always || state.asked.is_multiple_of(2) => Answer::Wrong,
            Served::Lies(_) => Answer::Honest,
            Served::Some(most) => {
                if state.delivered.len() < most {
                    state.delivered.insert(chunk);
                }
                if state.delivered.contains(&chunk) { Answer::Honest } else { Answer::Refuse }
            }
            Served::Redirects => {
                let ghost = self.own.ghost(self.dice.among(0..8), false);
                let known = others.get(self.dice.among(0..others.len().max(1) as u64) as usize);
                Answer::Elsewhere(known.copied().filter(|_| self.dice.percent(50)).unwrap_or(ghost))
            }
        }
    }

    /// True if it serves as others do what it has.
    pub const fn serves(&self) -> bool {
        matches!(self.serving.served, Served::Honest)
    }

    /// True if it may deliver the chunks of spot checks, and then no others.
    pub const fn deceives_checks(&self) -> bool {
        matches!(self.serving.served, Served::Lies(false) | Served::Some(_))
    }

    /// True if it never answers some requests.
    pub const fn ignores(&self) -> bool {
        matches!(self.serving.served, Served::Ignores(_))
    }
}
