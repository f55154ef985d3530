//! Telling: which news partners are told, and when.

use super::Membership;
use super::message::{Head, Item, Purpose};
use super::news::Topic;
use super::progress::Progress;
use crate::identity::{Identity, NodeId};
use std::time::Duration;

/// Members up to which partners are chosen anew at each change.
pub(super) const SMALL: usize = 8;
/// Shortest interval between choices of partners in larger fields. Most nodes of a room that is
/// switched on have joined by then, so few messages go to members that do not remain partners.
pub(super) const PARTNERS_EVERY: Duration = Duration::from_millis(250);
/// How long news waits for more news: nodes that start together agree on homes before they fetch.
pub(super) const NEWS_AFTER: Duration = Duration::from_millis(10);
/// Interval at which partners hear of members that come and go, and of stores that are full.
const SOON_EVERY: Duration = Duration::from_millis(50);
/// Interval at which partners hear of progress, times [`Membership::talk`].
const SELDOM_EVERY: Duration = Duration::from_millis(100);
/// Most datagrams of news to one partner at once; the rest goes at the next interval.
const DATAGRAMS_AT_ONCE: usize = 4;
/// Most answers in a second to unknown nodes. Each is three times as long as the question, whose
/// source may be forged.
const TO_STRANGERS: u32 = 32;

/// How soon partners hear of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// It happens once.
    Soon,
    /// It changes all the time.
    Seldom,
}

impl Membership {
    /// A member to exchange snapshots with, another for each number. Partners in each second turn,
    /// and members that have spoken to this node in the others: partners may all have been made up.
    pub fn partner(&self, number: u32) -> Option<Identity> {
        let (turn, live) = (number as usize / 2, self.live());
        let met: Vec<&Identity> = live.values().filter(|member| self.roster.has_met(member.node)).collect();
        if number % 2 == 1 && !met.is_empty() {
            return Some(*met[turn % met.len()]);
        }
        let partners: Vec<NodeId> = self.news.partners().collect();
        let node = partners.get(turn % partners.len().max(1))?;
        live.get(node).copied()
    }

    /// Passes an item on to all partners but `from`, soon, or at the pace of what changes all the
    /// time.
    pub(super) fn pass_on(&mut self, topic: Topic, pace: Pace, from: Option<NodeId>) {
        if from == Some(self.me().node) {
            return;
        }
        let every = match pace {
            Pace::Soon => self.paced(SOON_EVERY),
            Pace::Seldom => SELDOM_EVERY * self.talk(),
        };
        self.news.push(topic, from, self.now);
        let at = (self.now + NEWS_AFTER).max(self.last_sent + every);
        self.tell_at = Some(self.tell_at.map_or(at, |set| set.min(at)));
    }

    /// Tells all partners all the news.
    pub(super) fn tell(&mut self) {
        self.last_sent = self.now;
        let partners: Vec<NodeId> = self.news.partners().collect();
        for node in partners {
            for _ in 0..DATAGRAMS_AT_ONCE {
                if let (Some(_), Some(to)) = (self.news.peek(node), self.live().get(&node).copied()) {
                    self.send(&to, Purpose::News);
                }
            }
        }
        self.tell_at = (!self.news.all_sent()).then(|| self.now + SELDOM_EVERY);
    }

    /// A message with as much news for its receiver as fits.
    pub(super) fn with_news(&mut self, to: NodeId, head: &Head) -> Vec<u8> {
        let mut draft = self.begun(to, head);
        while let Some(topic) = self.news.peek(to) {
            let item = match topic {
                Topic::Member(node) if *node == self.me().node => Some(Item::Member(self.mine)),
                Topic::Member(node) => self.roster.get(*node).map(|member| Item::Member(member.told())),
                record @ Topic::Record(..) => {
                    let record = record.record().and_then(|key| self.records.get(&key));
                    record.map(|record| {
                        let progress = Progress::of(record, self.me().node);
                        progress.map_or_else(|| Item::Record(record.clone()), Item::Progress)
                    })
                }
            };
            if item.is_some_and(|item| !draft.add(&item)) {
                break;
            }
            self.news.pop(to);
        }
        draft.finish()
    }

    /// True a few times in each second.
    pub(super) fn may_answer_a_stranger(&mut self) -> bool {
        if self.now - self.to_strangers.0 >= Duration::from_secs(1) {
            self.to_strangers = (self.now, 0);
        }
        self.to_strangers.1 += 1;
        self.to_strangers.1 <= TO_STRANGERS
    }

    /// Chooses the members that news goes to.
    pub(super) fn choose_partners(&mut self) {
        (self.choose_at, self.chosen, self.chosen_of) = (None, self.now, self.live().len());
        let partners = self.roster.partners_of(self.me()).all();
        self.news.set_partners(&partners, self.now);
        self.watch.keep(&partners, self.now);
        if !self.news.all_sent() && self.tell_at.is_none() {
            self.tell_at = Some(self.now + NEWS_AFTER);
        }
    }
}
