//! Denials: a member's answers to statements about itself.
//!
//! Any node may say that a member is suspect or dead, that another process has its address, or that
//! its store is filled otherwise. The member answers with a signed statement that counts more. It
//! alone can sign for itself. So only an earlier process with the same key can have made a
//! statement that counts more than its own. Then it adopts the numbers and goes on from there.

use super::Membership;
use super::effects::Rival;
use super::member::{Member, State};
use super::message::Item;
use super::news::Topic;
use super::telling::Pace;
use crate::config::SYNC_EVERY;
use crate::identity::Identity;
use crate::outbid::{CLAIM_MAX, latest_believed};
use crate::record::Record;
use std::time::Duration;

/// Shortest interval at which a member follows numbers that are later than its own. Beyond
/// [`CLAIM_MAX`] its last answer is everywhere by then, so the next one is believed too. Two
/// processes with one key do not outbid each other all the time. A statement that it skips is
/// repeated.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// How often in a row a member follows statements of its own key from another address. Others may
/// know an earlier process of it in two of its lives, so a third statement may be of a live process
/// only. With a lower bound, a restart after a cut could take an earlier process for a live one.
/// With a higher one, two processes with one key take turns for longer.
const RIVALS_MAX: u32 = 3;
/// Follows within this time are in a row. Two processes with one key follow each other as often as
/// they may. What one of them skips comes again with the next exchange of snapshots, and on busy
/// machines with the one after it.
const RIVAL_WITHIN: Duration = SYNC_EVERY.saturating_mul(6);

impl Membership {
    /// Handles a statement about this node itself.
    pub(super) fn hear_of_me(&mut self, said: Member) {
        let mine = self.mine.life();
        if self.gone {
            return;
        }
        let (there, here) = (said.identity.addr, self.me().addr);
        if said.life() == mine && there != here {
            self.follow(&said);
        } else if said.life() == mine {
            // Nobody but this node says that it leaves.
            if matches!(said.state, State::Suspect | State::Down) {
                self.deny(mine);
            }
        } else if said.life() > mine {
            self.follow(&said);
        } else if let Some(teller) = self.teller {
            // The teller missed later statements.
            self.tell_one(teller, &[Item::Member(self.mine)]);
        }
    }

    /// Goes on from a statement that only a process with this node's key can have made. An earlier
    /// process made a few; one that answers each time lives, and one of the two has to yield.
    fn follow(&mut self, said: &Member) {
        if !said.is_genuine(&*self.keys) {
            return;
        }
        let (last, addr) = (self.followed, said.identity.addr);
        if !self.may_follow() {
            return;
        }
        if addr != self.me().addr {
            let again = last.is_some_and(|at| self.now - at < RIVAL_WITHIN);
            self.rivals = if again { self.rivals + 1 } else { 1 };
            let yields = self.rivals > RIVALS_MAX;
            if self.rivals > 1 {
                self.effects.rival = Some(Rival { addr, yields });
            }
            if yields {
                // Without a farewell, which would be one of the other process too.
                self.gone = true;
                return;
            }
        }
        // Two that have one life go on with different ones.
        let tie = said.life() == self.mine.life() && addr < self.me().addr;
        self.deny(if tie { Member::life_after(said.life()) } else { said.life() });
    }

    /// Says that this node lives, after this life.
    fn deny(&mut self, life: (u64, u32)) {
        let (generation, incarnation) = Member::life_after(life);
        self.restate(Identity { generation, ..*self.me() }, incarnation);
        self.assert_life();
    }

    /// Handles the claim of a later node at this node's address: no other member hears such claims.
    /// If it cannot be outbid, it displaces this node only until it is buried.
    pub(super) fn contest(&mut self, said: Member) {
        let (me, live) = (*self.me(), said.state.is_live());
        let said = said.identity;
        let later = (said.generation, said.node) > (me.generation, me.node);
        let generation = said.generation.saturating_add(1);
        let believed = generation <= CLAIM_MAX || (generation <= latest_believed(me.generation) && self.may_follow());
        if live && later && believed {
            self.restate(Identity { generation, ..me }, self.mine.incarnation);
            self.assert_life();
        }
    }

    /// True once in a while.
    fn may_follow(&mut self) -> bool {
        let may = self.followed.is_none_or(|at| self.now - at >= FOLLOW_EVERY);
        if may {
            self.followed = Some(self.now);
        }
        may
    }

    /// Begins after an earlier life of this node that ended with a farewell: others remember that
    /// for a minute, and believe later statements only.
    pub fn return_after(&mut self, farewell: (u64, u32)) {
        if self.mine.life() <= farewell {
            let (generation, incarnation) = Member::life_after(farewell);
            self.restate(Identity { generation, ..*self.me() }, incarnation);
        }
    }

    fn assert_life(&mut self) {
        self.denials += 1;
        self.effects.denied = true;
        self.pass_on(Topic::Member(self.me().node), Pace::Soon, None);
    }

    /// Handles a statement about what this node holds. If it counts more than this node's own, an
    /// earlier process said it, or somebody invented a progress: a later version corrects it.
    pub(super) fn hear_of_mine(&mut self, said: &Record) {
        let Some(mine) = self.records.get(&said.key()).filter(|mine| said.rank() > mine.rank()) else { return };
        if said.version == mine.version || said.is_genuine(&self.keys.key(), &*self.keys) {
            let version = said.version.saturating_add(1);
            let progress = Record::progress(0, mine.link());
            let answer = Record { version, progress, ..mine.clone() }.needing_origin(mine.needs_origin());
            let answer = answer.signed(&*self.keys);
            self.denials += 1;
            self.learn_record(answer, None);
        }
    }
}
