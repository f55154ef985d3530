//! Relaying: messages between two members that have no way to each other go through a third.
//!
//! Switches and access points that isolate their ports, and firewalls between rooms, often let all
//! machines reach a server and not one another. Each member's partners are drawn from all members,
//! and those that it cannot reach would be buried again and again. A member that answers probes
//! through another one only is reached through that one from then on. Whoever passes a message on
//! changes its head and nothing else, and sends it straight to its receiver or not at all. A member
//! that lies about that can do no more than a sender of datagrams in the names of others.

use super::Membership;
use super::message::{self, Head, Item, Purpose, Relayed};
use super::ways::{Detour, Way};
use crate::identity::{Identity, NodeId};
use crate::placement::mix;

impl Membership {
    /// Passes a message on to a member.
    pub(super) fn relay(&mut self, head: &Head, to: NodeId, relayed: Relayed, bytes: &[u8]) {
        self.hear(head.from);
        let Some(member) = self.live().get(&to).copied().filter(|_| self.ways.is_straight(to)) else { return };
        let head = Head { to, purpose: Purpose::Passed(self.me().node, relayed), ..*head };
        if let Some(message) = message::passed_on(&head, bytes) {
            self.dispatch(&member, message);
        }
    }

    /// Takes in a message that this member passed on.
    pub(super) fn take_in_passed(
        &mut self,
        head: &Head,
        relay: NodeId,
        relayed: Relayed,
        items: impl Iterator<Item = Item>,
    ) {
        self.hear(relay);
        if self.roster.get(head.from).is_some() {
            self.ways.came(head.from, Detour::Through(relay), self.now);
        }
        self.way = Some(Way::Through(relay));
        self.take_in(&Head { purpose: relayed.into(), ..*head }, items);
    }

    /// Answers a member through another one, with news for it.
    pub(super) fn answer_through(&mut self, relay: NodeId, to: NodeId, purpose: Purpose) {
        let relay = self.live().get(&relay).copied();
        if let (Some(relay), Some(relayed)) = (relay, purpose.relayed()) {
            let message = self.with_news(to, &self.head(relay.node, Purpose::Through(to, relayed)));
            self.dispatch(&relay, message);
        }
    }

    /// Tells a member something through another one.
    pub(super) fn tell_through(&mut self, relay: NodeId, to: NodeId, items: &[Item]) {
        if let Some(relay) = self.live().get(&relay).copied() {
            let message = self.with_items(&self.head(relay.node, Purpose::Through(to, Relayed::News)), items);
            self.dispatch(&relay, message);
        }
    }

    /// Members to ask about a silent one, others for each number. Those that pass messages on
    /// already come first, then partners, then any others that have sent something to this node.
    pub(super) fn relays(&self, target: NodeId, number: u32) -> impl Iterator<Item = Identity> + '_ {
        let answers = move |node: &NodeId| {
            *node != target && self.ways.was_straight(*node) && !self.suspects().contains_key(node)
        };
        let known = self.ways.relays();
        let partners: Vec<NodeId> = self.news.partners().filter(|node| !known.contains(node)).collect();
        let first: Vec<NodeId> = known.into_iter().chain(partners).collect();
        let others = self.live().around(NodeId(mix(u64::from(number)))).map(|member| member.node);
        let others = others.filter({
            let first = first.clone();
            move |node| !first.contains(node)
        });
        first.into_iter().chain(others).filter(answers).filter_map(|node| self.live().get(&node).copied())
    }
}
