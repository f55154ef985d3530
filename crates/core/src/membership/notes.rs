//! Notes: what a node tells another one of all members when they meet, and what that one knows.
//!
//! A newcomer of a large room is told of a part, so that the node that all join through has its
//! link for chunks. It compares notes with others a moment later, which tell it the rest.

use super::Membership;
use super::member::Member;
use crate::identity::{Identity, NodeId};
use crate::record::Record;
use crate::snapshot::Known;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use vfield_block::gather::Gather as _;

impl Membership {
    /// A snapshot for another member: this node, the members that it may tell of, and the records
    /// of the living. Those that the other member knows, given by id, are left out.
    pub fn snapshot(&self, known: &[Known]) -> (Vec<Member>, Vec<Record>) {
        self.about(self.roster.told().filter(|member| !self.is_known(member, known)))
    }

    /// The same for a newcomer, with `most` of the living that it does not know. Half of them are
    /// those that a chain needs first: the origins, then the last that joined. The others are
    /// beside the newcomer in the order of ids, so that newcomers together know all. Members known
    /// by hearsay come last.
    pub fn short_snapshot(&self, known: &[Known], newcomer: NodeId, most: usize) -> (Vec<Member>, Vec<Record>) {
        let others = self.live().around(newcomer).filter_map(|member| self.roster.get(member.node));
        let beside: Vec<&Member> = others.filter(|member| !self.is_known(member, known)).collect();
        let mut last = beside.clone();
        last.sort_unstable_by_key(|member| {
            let Identity { node, .. } = member.identity;
            let is_origin = self.records.of(node).iter().any(|record| record.origin);
            Reverse((is_origin, self.roster.has_met(node), member.identity.arrival()))
        });
        last.truncate(most / 2);
        let mut told: BTreeSet<NodeId> = last.iter().map(|member| member.identity.node).gathered();
        for member in beside {
            if told.len() == most {
                break;
            }
            told.insert(member.identity.node);
        }
        self.about(told.iter().filter_map(|node| self.roster.get(*node)))
    }

    /// True if these digests say that their sender knows all about a member.
    fn is_known(&self, member: &Member, known: &[Known]) -> bool {
        let place = known.binary_search_by_key(&member.identity.node, |known| known.node);
        place.is_ok_and(|place| known[place] == self.digest(member))
    }

    /// The statements of this node and about others, and the records of the living.
    fn about<'a>(&self, others: impl Iterator<Item = &'a Member>) -> (Vec<Member>, Vec<Record>) {
        let members: Vec<Member> = std::iter::once(self.mine).chain(others.map(|member| member.told())).collect();
        let live = members.iter().filter(|member| member.state.is_live());
        let records = live.flat_map(|member| self.records.of(member.identity.node)).cloned().collect();
        (members, records)
    }

    /// Digests of all known statements about others, by id.
    pub fn known(&self) -> Vec<Known> {
        self.roster.iter().map(|member| self.digest(member)).collect()
    }
}
