//! A node finds out which process is at an address now, however many members others invent.

use crate::signed::{keys, said};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::membership::message::{self, Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member, Membership, State};
use vfield_core::time::Time;

/// How many other members there are.
const MEMBERS: u64 = 200;
/// The one that matters: no partner of this node, and the last by its id.
const LAST: u64 = MEMBERS;
/// This node is in the midst of them.
const ME: NodeId = id(MEMBERS / 2, 1);

/// The id of a member, or one behind it.
const fn id(number: u64, behind: u64) -> NodeId {
    NodeId(number << 32 | behind)
}

fn identity(number: u64) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, number as u8], 4000));
    Identity { addr, node: id(number, 0), generation: 1000, zone: Zone::default() }
}

fn member(number: u64, state: State) -> Member {
    said(identity(number), 0, state)
}

struct Bench {
    node: Membership,
    now: Time,
}

impl Bench {
    /// A node that knows these members, each in this state.
    fn new(members: impl Iterator<Item = Member>) -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let me = Identity { addr: SocketAddr::from(([198, 18, 1, 1], 4000)), node: ME, ..identity(0) };
        let mut node = Membership::new(Level::Zone, me, keys(ME), now);
        node.learn(id(1, 0), members.collect(), Vec::new(), now);
        Self { node, now }
    }

    /// This member says in a datagram that a process was started at the address of another one.
    fn replaced(&mut self, teller: u64, number: u64) {
        let from = identity(teller);
        let head = Head { level: Level::Zone, from: from.node, life: (1000, 0), to: ME, purpose: Purpose::News };
        let mut draft = Draft::new(&head);
        let later = Identity { node: id(number, 7), generation: 2000, ..identity(number) };
        assert!(draft.add(&Item::Member(said(later, 0, State::Alive))));
        self.node.datagram(from.addr, &draft.finish(), self.now);
    }

    /// True if a time passes in which it asks whether the last member is there.
    fn asks(&mut self, time: Duration, mut meanwhile: impl FnMut(&mut Self)) -> bool {
        let end = self.now + time;
        let mut asks = false;
        while self.now < end {
            self.now = self.now + Duration::from_millis(10);
            let sent = self.node.tick(self.now).datagrams;
            let to_last = sent.iter().filter(|(to, _)| *to == identity(LAST).addr);
            let mut purposes = to_last.filter_map(|(_, bytes)| Some(message::parse(bytes)?.0.purpose));
            asks |= purposes.any(|purpose| matches!(purpose, Purpose::Ping(_)));
            // All others answer.
            (1..LAST).for_each(|number| self.node.heard(id(number, 0), self.now));
            meanwhile(self);
        }
        asks
    }
}

fn alive(numbers: std::ops::RangeInclusive<u64>) -> impl Iterator<Item = Member> {
    numbers.map(|number| member(number, State::Alive))
}

/// Some members name a new process at the address of each other one, all the time. What an honest
/// one says once of the last address is looked into all the same.
#[test]
fn tellers_share_the_line_of_those_that_are_looked_for() {
    let time = Duration::from_secs(4);
    assert!(!Bench::new(alive(1..=MEMBERS)).asks(time, |_| {}), "a partner");
    let mut bench = Bench::new(alive(1..=MEMBERS));
    let invent = |bench: &mut Bench| {
        (0..160).for_each(|number| bench.replaced(1 + number % 8, 20 + number));
    };
    // Those that were probed at once make room for as many more.
    (0..2).for_each(|_| invent(&mut bench));
    bench.replaced(9, LAST);
    assert!(bench.asks(time, invent));
}

/// Others name members that this node holds for dead, the same ones all the time.
#[test]
fn those_in_doubt_take_turns() {
    let mut bench = Bench::new((1..=MEMBERS).map(|number| member(number, State::Down)));
    let doubt = |bench: &mut Bench, numbers| {
        bench.node.learn(id(1, 0), alive(numbers).collect(), Vec::new(), bench.now);
    };
    doubt(&mut bench, 1..=MEMBERS);
    assert!(bench.asks(Duration::from_secs(3), |bench| doubt(bench, 1..=MEMBERS - 1)));
}

/// A member is buried among many dead ones. Perhaps another process was started at its address
/// while it was taken for alive, and what that one said did not count.
#[test]
fn whoever_is_at_the_address_of_a_dead_member_is_greeted() {
    let dead = (1..LAST).map(|number| member(number, State::Down));
    let mut bench = Bench::new(dead.chain([member(LAST, State::Alive)]));
    bench.node.suspect(id(LAST, 0), bench.now);
    let mut asks = false;
    while bench.node.live().contains_key(&id(LAST, 0)) {
        asks = bench.asks(Duration::from_millis(10), |_| {});
    }
    assert!(asks || bench.asks(Duration::from_secs(1), |_| {}));
}
