//! Admitting: which nodes can be members here, by their zone and by the field's admission list.
//!
//! A member that the list does not admit is forgotten with all that it said, and nothing that it
//! says later is heard.

use super::member::{Departure, Member};
use super::message::Level;
use super::{Effects, Membership};
use crate::admission::Admission;
use crate::identity::{Identity, NodeId};
use crate::time::Time;
use std::sync::Arc as Shared;

impl Membership {
    /// True for a node that can be a member here.
    pub(super) fn admits(&self, member: &Member) -> bool {
        let here = self.level == Level::Backbone || member.identity.zone == self.me().zone;
        here && self.admission.admits(&member.key)
    }

    /// Replaces the admission list, and drops the members that it does not admit.
    pub fn admit(&mut self, admission: Shared<Admission>, now: Time) -> Effects {
        self.now = now;
        self.admission = admission;
        let excluded: Vec<Member> =
            self.roster.iter().filter(|member| !self.admission.admits(&member.key)).copied().collect();
        for member in &excluded {
            self.forget(member, Some(Departure::Excluded));
        }
        if !excluded.is_empty() {
            self.sweep();
            self.choose_at = Some(now);
        }
        self.finish()
    }

    /// Forgets the records of nodes that are not alive.
    pub fn sweep(&mut self) {
        let (me, live) = (self.me().node, self.roster.live());
        self.misquoted.retain(|node| live.contains_key(node));
        self.ways.sweep(&self.roster, self.now);
        self.records.retain(|node| node == me || live.contains_key(&node));
        self.verified.retain(|node| self.roster.get(*node).is_some());
        self.verified_records.retain(|key, _| self.records.get(key).is_some());
    }

    /// Ends without a farewell, since another process goes on under this identity.
    pub const fn vanish(&mut self) {
        self.gone = true;
    }

    /// The members to which this node passes news on.
    pub fn partners(&self) -> Vec<Identity> {
        let partners: Vec<NodeId> = self.news.partners().collect();
        partners.iter().filter_map(|node| self.live().get(node)).copied().collect()
    }
}
