//! The gate: bounds on connections, in total and for each address, before and after the greeting.
//!
//! The accepting task owns it; every connection has a [`Place`] from its first byte to its end. The
//! gate refuses no connection for want of room, but closes another one. For a stranger it closes
//! the longest-waiting handshake, for a member the longest-idle connection of a member. An honest
//! handshake takes milliseconds, and an idle connection is reopened on demand. So connections that
//! only occupy places lose them first.

use crate::misdeeds::Misdeeds;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use vfield_core::identity::NodeId;
use vfield_core::misdeed::Misdeed;

/// The most connections of each kind.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Before the greeting: more than a room that is switched on has at a moment.
    pub strangers: usize,
    /// Of those from one address: the two connections of each of some nodes that share it.
    pub strangers_of_address: usize,
    /// After the greeting: two from each of 1 000 peers, and some more.
    pub members: usize,
    /// Of those from one address, which many nodes may share.
    pub members_of_address: usize,
    /// Of those of one node at one address: two, on a fast link eleven more, those being replaced,
    /// and those of a benchmark.
    /// Any node may greet under any id, so connections from elsewhere do not count.
    pub members_of_node: usize,
}

impl Bounds {
    const LARGEST: Self =
        Self { strangers: 256, strangers_of_address: 64, members: 2048, members_of_address: 512, members_of_node: 64 };

    /// As many as half of this process's descriptors allow.
    pub fn of_process() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::within(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    fn within(descriptors: usize) -> Self {
        let Self { strangers, strangers_of_address, members, members_of_address, members_of_node } = Self::LARGEST;
        let at_most = |bound: usize, share: usize| bound.min(descriptors / share).max(2);
        Self {
            strangers: at_most(strangers, 8),
            strangers_of_address: at_most(strangers_of_address, 16),
            members: at_most(members, 2),
            members_of_address: at_most(members_of_address, 4),
            members_of_node: at_most(members_of_node, 8),
        }
    }
}

/// The places of all connections.
#[derive(Debug)]
pub struct Gate {
    bounds: Bounds,
    opened: Instant,
    guests: Mutex<Guests>,
    misdeeds: Arc<Misdeeds>,
}

#[derive(Debug, Default)]
struct Guests {
    numbered: u64,
    /// In the order in which they came.
    strangers: BTreeMap<u64, Arc<Guest>>,
    members: BTreeMap<u64, (NodeId, Arc<Guest>)>,
}

#[derive(Debug)]
struct Guest {
    ip: IpAddr,
    /// When it last sent a request, in microseconds after the gate was opened.
    active_us: AtomicU64,
    out: Notify,
}

/// The place of one connection; given up by dropping it.
#[derive(Debug)]
pub struct Place {
    gate: Arc<Gate>,
    number: u64,
    guest: Arc<Guest>,
}

impl Gate {
    /// A gate without connections. It counts those that it closes in `misdeeds`.
    pub fn new(bounds: Bounds, misdeeds: Arc<Misdeeds>) -> Arc<Self> {
        Arc::new(Self { bounds, opened: Instant::now(), guests: Mutex::default(), misdeeds })
    }

    /// Lets a stranger in.
    pub fn enter(self: &Arc<Self>, ip: IpAddr) -> Place {
        let guest = Arc::new(Guest { ip, active_us: AtomicU64::new(self.now_us()), out: Notify::new() });
        let mut guests = self.guests();
        guests.numbered += 1;
        let number = guests.numbered;
        let same = guests.strangers.iter().filter(|(_, other)| other.ip == ip);
        let longest = if same.clone().count() >= self.bounds.strangers_of_address {
            same.map(|(number, _)| *number).next()
        } else if guests.strangers.len() >= self.bounds.strangers {
            guests.strangers.keys().next().copied()
        } else {
            None
        };
        self.show_out(longest.and_then(|number| guests.strangers.remove(&number)));
        guests.strangers.insert(number, Arc::clone(&guest));
        Place { gate: Arc::clone(self), number, guest }
    }

    /// Closes a connection for want of descriptors, for the next one.
    pub fn make_room(&self) {
        let mut guests = self.guests();
        let stranger = guests.strangers.pop_first().map(|(_, guest)| guest);
        let idlest = guests.idlest(|_, _| true).filter(|_| stranger.is_none());
        self.show_out(stranger.or_else(|| guests.members.remove(&idlest?).map(|(_, guest)| guest)));
    }

    fn show_out(&self, guest: Option<Arc<Guest>>) {
        if let Some(guest) = guest {
            self.misdeeds.add(Misdeed::ShownOut);
            guest.out.notify_one();
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guests {
    /// The longest-idle of some members' connections.
    fn idlest(&self, which: impl Fn(NodeId, IpAddr) -> bool) -> Option<u64> {
        let some = self.members.iter().filter(|(_, (node, guest))| which(*node, guest.ip));
        some.min_by_key(|(_, (_, guest))| guest.active_us.load(Ordering::Relaxed)).map(|(number, _)| *number)
    }

    /// The number of such connections of members.
    fn count(&self, which: impl Fn(NodeId, IpAddr) -> bool) -> usize {
        self.members.values().filter(|(node, guest)| which(*node, guest.ip)).count()
    }
}

impl Place {
    /// The stranger has become a member.
    pub fn prove(&self, node: NodeId) {
        let (gate, ip) = (&self.gate, self.guest.ip);
        let mut guests = gate.guests();
        if guests.strangers.remove(&self.number).is_none() {
            // Shown out this very moment.
            return;
        }
        let of_node = |other: NodeId, other_ip: IpAddr| (other, other_ip) == (node, ip);
        let of_address = |_: NodeId, other: IpAddr| other == ip;
        let idlest = if guests.count(of_node) >= gate.bounds.members_of_node {
            guests.idlest(of_node)
        } else if guests.count(of_address) >= gate.bounds.members_of_address {
            guests.idlest(of_address)
        } else if guests.members.len() >= gate.bounds.members {
            guests.idlest(|_, _| true)
        } else {
            None
        };
        gate.show_out(idlest.and_then(|number| guests.members.remove(&number)).map(|(_, guest)| guest));
        guests.members.insert(self.number, (node, Arc::clone(&self.guest)));
    }

    /// Notes that a request came.
    pub fn used(&self) {
        self.guest.active_us.store(self.gate.now_us(), Ordering::Relaxed);
    }

    /// Returns when the place is wanted for another.
    pub async fn shown_out(&self) {
        self.guest.out.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guests = self.gate.guests();
        guests.strangers.remove(&self.number);
        guests.members.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { strangers: 4, strangers_of_address: 2, members: 6, members_of_address: 4, members_of_node: 2 };

    fn ip(last: u8) -> IpAddr {
        [198, 18, 0, last].into()
    }

    /// The indexes of the closed connections.
    fn out(places: &[Place]) -> Vec<usize> {
        let is_out = |place: &Place| {
            let guests = place.gate.guests();
            !guests.strangers.contains_key(&place.number) && !guests.members.contains_key(&place.number)
        };
        (0..places.len()).filter(|at| is_out(&places[*at])).collect()
    }

    #[tokio::test]
    async fn the_longest_waiting_stranger_makes_room_for_the_next() {
        let gate = Gate::new(BOUNDS, Arc::default());
        let mut places: Vec<Place> = [1, 1, 1, 2].map(|host| gate.enter(ip(host))).into();
        assert_eq!(out(&places), [0], "one address has no more than two");
        places[0].shown_out().await;
        places.push(gate.enter(ip(3)));
        places.push(gate.enter(ip(4)));
        assert_eq!((out(&places), gate.misdeeds.of(Misdeed::ShownOut)), (vec![0, 1], 2));
        drop(places.drain(2..));
        assert_eq!(gate.guests().strangers.len(), 0);
    }

    #[test]
    fn the_idlest_makes_room_for_the_next_member() {
        let gate = Gate::new(BOUNDS, Arc::default());
        let mut places: Vec<Place> = Vec::new();
        let enter = |host: u8, node: u64| {
            let place = gate.enter(ip(host));
            place.prove(NodeId(node));
            place
        };
        // Microseconds may be the same.
        let use_it = |place: &Place| place.guest.active_us.store(1 << 40, Ordering::Relaxed);
        places.push(enter(1, 1));
        places.push(enter(1, 1));
        use_it(&places[0]);
        places.push(enter(1, 1));
        assert_eq!(out(&places), [1], "of the same node");
        use_it(&places[2]);
        places.extend([2, 3, 4].map(|node| enter(1, node)));
        assert_eq!(out(&places), [1, 3], "of the same address");
        use_it(&places[4]);
        use_it(&places[5]);
        places.extend([5, 6, 7].map(|node| enter(node as u8, node)));
        assert_eq!(out(&places), [1, 3, 6], "of all");
        let stranger = gate.enter(ip(9));
        gate.make_room();
        assert!(out(&[stranger]) == [0] && out(&places).len() == 3, "strangers go first");
        gate.make_room();
        assert_eq!(out(&places), [1, 3, 6, 7]);
    }

    #[test]
    fn bounds_follow_the_descriptors() {
        let few = Bounds::within(256);
        assert!(few.strangers + few.members < 200 && few.members_of_node > 2, "{few:?}");
        assert_eq!(Bounds::within(1 << 20).members, Bounds::LARGEST.members);
    }
}
