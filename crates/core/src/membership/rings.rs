//! Who talks to whom: the live members stand in a few circles, each in another order, and each member's
//! partners are those beside it.
//!
//! Circles in unrelated orders make a graph without narrow places: news that each passes to its partners
//! reaches all N in about log N steps, and a part of the members that dies does not cut the rest in two
//! (Rapid: Suresh et al., 2018, 4.1, watches in the same way). Nobody has to talk with more than a few others,
//! however large the field: a kernel's table of neighbours, 1024 by default, holds them in any room.

use crate::identity::{Identity, NodeId};
use crate::placement::mix;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Circles, and so members that each member watches. With three of them even a third of all members that
/// die at once leaves every other with some partner.
const CIRCLES: usize = 3;

/// See the module.
#[derive(Debug, Default)]
pub struct Rings([BTreeSet<(u64, NodeId)>; CIRCLES]);

/// Where a member stands in a circle. The first is in the order of arrivals, like the crowd's: its neighbours there are
/// those with which it shares chunks.
fn place(circle: usize, member: &Identity) -> (u64, NodeId) {
    let node = member.node;
    (if circle == 0 { member.arrival().0 } else { mix(node.0 ^ mix(circle as u64)) }, node)
}

impl Rings {
    /// Takes a member in.
    pub fn insert(&mut self, member: &Identity) {
        for (circle, ring) in self.0.iter_mut().enumerate() {
            ring.insert(place(circle, member));
        }
    }

    /// Takes a member out, as it was taken in.
    pub fn remove(&mut self, member: &Identity) {
        for (circle, ring) in self.0.iter_mut().enumerate() {
            ring.remove(&place(circle, member));
        }
    }

    /// Whom `me`, who is not in, watches: those after it, each once.
    pub fn after(&self, me: &Identity) -> BTreeSet<NodeId> {
        let circles = self.0.iter().enumerate();
        let next = circles.filter_map(|(circle, ring)| {
            let place = place(circle, me);
            ring.range((Excluded(place), Unbounded)).next().or_else(|| ring.first())
        });
        next.map(|(_, node)| *node).collect()
    }

    /// Who stands before and after a member in the order of arrivals.
    pub fn beside(&self, member: &Identity) -> (Option<NodeId>, Option<NodeId>) {
        let (ring, place) = (&self.0[0], place(0, member));
        let before = ring.range(..place).next_back().or_else(|| ring.last());
        let after = ring.range((Excluded(place), Unbounded)).next().or_else(|| ring.first());
        let other =
            |beside: Option<&(u64, NodeId)>| beside.map(|(_, other)| *other).filter(|other| *other != member.node);
        (other(before), other(after))
    }

    /// By whom `me`, who is not in, is watched: those before it, each once.
    pub fn before(&self, me: &Identity) -> BTreeSet<NodeId> {
        let circles = self.0.iter().enumerate();
        let last = circles.filter_map(|(circle, ring)| {
            let place = place(circle, me);
            ring.range(..place).next_back().or_else(|| ring.last())
        });
        last.map(|(_, node)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Zone;

    /// The `number`-th that came.
    fn member(number: u64) -> Identity {
        let addr = "198.18.0.1:4000".parse().expect("an address");
        Identity { addr, node: NodeId(mix(number)), generation: number, zone: Zone::default() }
    }

    /// The view of one of `count` members.
    fn view(count: u64, me: u64) -> Rings {
        let mut rings = Rings::default();
        (0..count).filter(|&number| number != me).for_each(|number| rings.insert(&member(number)));
        rings
    }

    #[test]
    fn who_watches_is_watched() {
        let views: Vec<Rings> = (0..40).map(|me| view(40, me)).collect();
        for (me, rings) in views.iter().enumerate() {
            let me = member(me as u64);
            for watched in rings.after(&me) {
                let other = (0..40).find(|&number| member(number).node == watched).unwrap();
                assert!(views[other as usize].before(&member(other)).contains(&me.node));
            }
        }
    }

    #[test]
    fn news_reaches_all_in_few_steps() {
        for (count, most) in [(10, 3), (50, 5), (1000, 8)] {
            let partners = |me: u64| {
                let (rings, me) = (view(count, me), member(me));
                rings.after(&me).into_iter().chain(rings.before(&me)).collect::<BTreeSet<_>>()
            };
            let graph: Vec<(NodeId, BTreeSet<NodeId>)> = (0..count).map(|me| (member(me).node, partners(me))).collect();
            let mut told = BTreeSet::from([graph[0].0]);
            let mut steps = 0;
            while told.len() < count as usize {
                let tellers = graph.iter().filter(|(node, _)| told.contains(node));
                let next: BTreeSet<NodeId> = tellers.flat_map(|(_, partners)| partners).copied().collect();
                told.extend(next);
                steps += 1;
            }
            assert!(steps <= most, "{steps} steps for {count} members");
        }
    }

    #[test]
    fn each_stands_between_two() {
        let mut rings = Rings::default();
        [3, 5, 9].into_iter().for_each(|number| rings.insert(&member(number)));
        let node = |number| Some(member(number).node);
        let beside = |number| rings.beside(&member(number));
        assert_eq!(beside(5), (node(3), node(9)));
        assert_eq!(beside(9), (node(5), node(3)));
        assert_eq!(beside(4), (node(3), node(5)), "whether it is in or not");
        rings.remove(&member(5));
        assert_eq!(rings.beside(&member(9)), (node(3), node(3)));
        let mut alone = Rings::default();
        alone.insert(&member(1));
        assert_eq!(alone.beside(&member(1)), (None, None));
    }

    #[test]
    fn a_member_alone_has_no_partners() {
        assert!(Rings::default().after(&member(1)).is_empty() && Rings::default().before(&member(1)).is_empty());
    }
}
