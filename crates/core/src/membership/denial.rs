//! Denials: a member's answers to false statements about itself.
//!
//! Any node may say that a member is dead, lives elsewhere, has lost its address, or holds
//! something else. The member answers with a statement that counts more. If all members believe the
//! answer ([`crate::outbid`]), the member adopts its numbers and tells all. Otherwise only the
//! teller gets the answer, and the member tells all the highest number that they believe. From
//! there it can follow further when it hears the false statement again.

use super::message::Item;
use super::roster::{Member, State};
use super::{Membership, Topic};
use crate::outbid::{CLAIM_MAX, latest_believed};
use crate::record::{Record, RecordKey};
use std::time::Duration;

/// Shortest interval at which a member follows others beyond [`CLAIM_MAX`]. Its last answer is
/// everywhere by then, so the next one is believed too. A statement that it skips is repeated.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

impl Membership {
    /// Handles a statement about this node itself. A true one is adopted: the node may have come
    /// later than it thought. A false one is denied with the next number, whatever generation it
    /// names.
    pub(super) fn hear_of_me(&mut self, said: Member) {
        let elsewhere = (said.identity.addr, said.identity.zone) != (self.me.addr, self.me.zone);
        let later = (said.identity.generation, said.incarnation) >= (self.me.generation, self.incarnation);
        let is_false = elsewhere || (later && said.state != State::Alive);
        if !said.is_sound() || !(later || is_false) {
            return;
        }
        let answer = if is_false { said.denied_by(&self.me) } else { said };
        if later && self.follows(answer.identity.generation) {
            (self.me.generation, self.incarnation) = (answer.identity.generation, answer.incarnation);
            if is_false {
                self.assert_life();
            }
            return;
        }
        if let Some(teller) = self.teller.filter(|_| is_false) {
            self.denials += 1;
            self.effects.denied = true;
            self.tell_one(&teller, &Item::Member(answer));
        }
        let nearest = latest_believed(self.me.generation);
        if later && self.follows(nearest) {
            (self.me.generation, self.incarnation) = (nearest, 0);
            self.assert_life();
        }
    }

    /// Handles the claim of a later node at this node's address: no other member hears such claims.
    /// If it cannot be outbid, it displaces this node only until it is buried.
    pub(super) fn contest(&mut self, said: Member) {
        let (said, live) = (said.identity, said.state.is_live());
        let later = (said.generation, said.node) > (self.me.generation, self.me.node);
        if live && later && self.follows(said.generation.saturating_add(1)) {
            self.me.generation = said.generation + 1;
            self.assert_life();
        }
    }

    /// True if all others believe this generation of this node's.
    fn follows(&mut self, generation: u64) -> bool {
        let soon = self.followed.is_some_and(|at| self.now - at < FOLLOW_EVERY);
        let follows = generation <= CLAIM_MAX || (generation <= latest_believed(self.me.generation) && !soon);
        if follows && generation > CLAIM_MAX && generation != self.me.generation {
            self.followed = Some(self.now);
        }
        follows
    }

    fn assert_life(&mut self) {
        self.denials += 1;
        self.effects.denied = true;
        self.pass_on(Topic::Member(self.me.node), None);
    }

    /// Handles a statement about what this node holds, and corrects it.
    pub(super) fn hear_of_mine(&mut self, said: &Record) {
        let key = RecordKey { node: said.node, image: said.image() };
        let Some(mine) = self.records.get(&key).filter(|mine| said.version >= mine.version && said != *mine) else {
            return;
        };
        let answer = Record { version: said.version.saturating_add(1), ..mine.clone() };
        let nearest = latest_believed(mine.version);
        let public = Record { version: answer.version.min(nearest), ..mine.clone() };
        self.denials += 1;
        if let Some(teller) = self.teller.filter(|_| answer.version > nearest) {
            self.tell_one(&teller, &Item::Record(answer));
        }
        self.learn_record(public, None);
    }
}
