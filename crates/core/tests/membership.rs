//! Members alone, without chunks: all learn of joins and deaths, no live member is buried, and none
//! has more than a few partners.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::message::{Draft, Head, Item, Purpose};
use vfield_core::membership::{Effects, Level, Member, Membership, State};
use vfield_core::outbid::{CLAIM_MAX, FIRST_MAX, latest_believed};
use vfield_core::placement::{Arc, Filled, mix};
use vfield_core::record::{Record, RecordKey, Subject};
use vfield_core::time::Time;

/// Time of a datagram on its way.
const DELAY: Duration = Duration::from_millis(1);
const COMPARE_EVERY: Duration = vfield_core::config::SYNC_EVERY;

enum Event {
    Datagram(usize, Vec<u8>),
    Tick(usize),
    /// The first exchanges snapshots with the second.
    Sync(usize, usize),
    /// A member exchanges snapshots with a partner, as nodes do now and then.
    Compare(usize, u32),
}

/// Members, and a network between them that loses what a rule says.
struct Room {
    now: Time,
    members: Vec<Membership>,
    dead: BTreeSet<usize>,
    events: BinaryHeap<Reverse<(Time, u64)>>,
    what: BTreeMap<u64, Event>,
    numbered: u64,
    wakes: Vec<Option<Time>>,
    /// The members with which each has exchanged datagrams.
    contacts: Vec<BTreeSet<usize>>,
    datagrams: u64,
    loses: Box<dyn Fn(u64, usize, usize) -> bool>,
    deaths: Vec<(Time, usize, usize)>,
}

impl Room {
    fn new() -> Self {
        Self {
            now: Time::ZERO,
            members: Vec::new(),
            dead: BTreeSet::new(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            numbered: 0,
            wakes: Vec::new(),
            contacts: Vec::new(),
            datagrams: 0,
            loses: Box::new(|_, _, _| false),
            deaths: Vec::new(),
        }
    }

    /// A member that knows the first one and exchanges snapshots with it as nodes do.
    fn join(&mut self) -> usize {
        let at = self.members.len();
        let addr = SocketAddr::from(([198, 18, (at >> 8) as u8, at as u8], 4000));
        let me =
            Identity { addr, node: NodeId(mix(at as u64 + 1)), generation: 1000 + at as u64, zone: Zone::default() };
        self.members.push(Membership::new(Level::Zone, me, self.now));
        self.wakes.push(None);
        self.contacts.push(BTreeSet::new());
        self.at(COMPARE_EVERY, Event::Compare(at, 0));
        if at > 0 {
            for after in [1, 200, 400, 700, 1200, 2200] {
                self.at(Duration::from_millis(after), Event::Sync(at, 0));
            }
        }
        at
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.numbered += 1;
        self.events.push(Reverse((self.now + after, self.numbered)));
        self.what.insert(self.numbered, event);
    }

    fn apply(&mut self, at: usize, effects: Effects) {
        for (addr, bytes) in effects.datagrams {
            // Nobody is at the address of a member that was made up.
            let Some(to) = self.members.iter().position(|member| member.me().addr == addr) else { continue };
            self.datagrams += 1;
            self.contacts[at].insert(to);
            self.contacts[to].insert(at);
            if !(self.loses)(self.datagrams, at, to) {
                self.at(DELAY, Event::Datagram(to, bytes));
            }
        }
        let real = |node| self.members.iter().position(|member| member.me().node == node);
        let down = effects.down.iter().filter_map(|member| real(member.identity.node));
        let deaths: Vec<_> = down.map(|dead| (self.now, at, dead)).collect();
        self.deaths.extend(deaths);
        if let Some(wake) = self.members[at].next_wake()
            && self.wakes[at].is_none_or(|set| wake < set)
        {
            self.wakes[at] = Some(wake);
            self.at(wake - self.now, Event::Tick(at));
        }
    }

    fn named(&self, node: NodeId) -> usize {
        self.members.iter().position(|member| member.me().node == node).expect("a member of the room")
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(&Reverse((at, number))) = self.events.peek().filter(|Reverse((at, _))| *at <= end) {
            self.events.pop();
            self.now = at;
            match self.what.remove(&number).unwrap() {
                Event::Tick(member) if !self.dead.contains(&member) => {
                    self.wakes[member] = None;
                    let effects = self.members[member].tick(at);
                    self.apply(member, effects);
                }
                Event::Datagram(to, bytes) if !self.dead.contains(&to) => {
                    let effects = self.members[to].datagram(&bytes, at);
                    self.apply(to, effects);
                }
                Event::Compare(member, number) => {
                    self.at(COMPARE_EVERY, Event::Compare(member, number + 1));
                    if let Some(partner) = self.members[member].partner(number) {
                        let partner = self.named(partner.node);
                        self.at(DELAY, Event::Sync(member, partner));
                    }
                }
                Event::Sync(a, b) if (self.loses)(self.numbered, a, b) => {}
                Event::Sync(a, b) if !self.dead.contains(&a) && !self.dead.contains(&b) => {
                    let (told, answer) = (self.members[a].snapshot(), self.members[b].snapshot());
                    let effects = self.members[b].learn(told.0, told.1, at);
                    self.apply(b, effects);
                    let effects = self.members[a].learn(answer.0, answer.1, at);
                    self.apply(a, effects);
                }
                _ => {}
            }
        }
        self.now = end;
    }

    fn living(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|at| !self.dead.contains(at)).collect()
    }

    /// True if each of the living knows just the other ones, and suspects nobody.
    fn agrees(&self) -> bool {
        let living = self.living();
        let nodes: BTreeSet<NodeId> = living.iter().map(|at| self.members[*at].me().node).collect();
        living.iter().map(|at| &self.members[*at]).all(|member| {
            let mut known: BTreeSet<NodeId> = member.live().values().map(|other| other.node).collect();
            known.insert(member.me().node);
            known == nodes && member.suspects().is_empty()
        })
    }

    fn until_agreed(&mut self, limit: Duration) -> Duration {
        let start = self.now;
        while !self.agrees() {
            let sizes = || self.living().iter().map(|at| self.members[*at].live().len() + 1).collect::<Vec<_>>();
            assert!(self.now - start < limit, "no agreement within {limit:?}: {:?}", sizes());
            self.run(Duration::from_millis(20));
        }
        self.now - start
    }
}

fn room(count: usize) -> Room {
    let mut room = Room::new();
    for _ in 0..count {
        room.join();
        room.run(Duration::from_millis(7));
    }
    room.until_agreed(Duration::from_secs(4));
    room
}

#[test]
fn a_room_that_comes_up_at_once_knows_itself_soon() {
    for count in [2, 9, 50, 200] {
        let room = room(count);
        assert!(room.deaths.is_empty(), "{:?}", room.deaths);
    }
}

#[test]
fn no_member_has_more_than_a_few_partners() {
    for count in [50, 200] {
        let mut room = room(count);
        room.run(Duration::from_secs(30));
        let mut contacts: Vec<usize> = room.contacts.iter().map(BTreeSet::len).collect();
        contacts.remove(0);
        let mean = contacts.iter().sum::<usize>() as f64 / contacts.len() as f64;
        assert!(mean < 18.0, "{count} members talk with {mean:.1} others each");
        let before = room.datagrams;
        room.run(Duration::from_secs(10));
        let rate = (room.datagrams - before) as f64 / 10.0 / count as f64;
        assert!(rate < 10.0, "{rate:.1} datagrams a second each in a field of {count} where nothing happens");
    }
}

#[test]
fn a_death_is_known_to_all_within_two_seconds() {
    for (count, victim) in [(3, 1), (10, 4), (50, 17), (200, 0)] {
        let mut room = room(count);
        room.run(Duration::from_secs(5));
        room.dead.insert(victim);
        let took = room.until_agreed(Duration::from_secs(4));
        assert!(took < Duration::from_secs(2), "{count} members took {took:?}");
        assert!(room.deaths.iter().all(|(_, _, who)| *who == victim), "{:?}", room.deaths);
    }
}

#[test]
fn a_third_that_dies_at_once_is_found_and_nobody_else_is_buried() {
    let mut room = room(60);
    room.run(Duration::from_secs(5));
    room.dead.extend((0..60).filter(|at| at % 3 == 1));
    room.until_agreed(Duration::from_secs(10));
    assert!(room.deaths.iter().all(|(_, _, who)| who % 3 == 1));
}

#[test]
fn losing_every_tenth_datagram_kills_nobody() {
    let mut room = room(40);
    room.loses = Box::new(|number, _, _| mix(number).is_multiple_of(10));
    room.run(Duration::from_secs(60));
    assert!(room.deaths.is_empty(), "{:?}", room.deaths);
    room.dead.insert(7);
    room.until_agreed(Duration::from_secs(5));
}

#[test]
fn a_parted_field_comes_together_again() {
    for cut in [1, 5, 20] {
        let mut room = room(40);
        room.loses = Box::new(move |_, from, to| (from < cut) != (to < cut));
        room.run(Duration::from_secs(30));
        let sizes: Vec<usize> = room.members.iter().map(|member| member.live().len() + 1).collect();
        assert!(sizes.iter().enumerate().all(|(at, &size)| size == if at < cut { cut } else { 40 - cut }), "{sizes:?}");
        room.loses = Box::new(|_, _, _| false);
        let took = room.until_agreed(Duration::from_secs(60));
        assert!(took < Duration::from_secs(30), "{cut} of 40 came back after {took:?}");
    }
}

#[test]
fn a_goodbye_is_believed_at_once() {
    let mut room = room(30);
    let effects = room.members[9].leave(room.now);
    room.apply(9, effects);
    room.dead.insert(9);
    let took = room.until_agreed(Duration::from_secs(2));
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[test]
fn a_member_that_is_slandered_denies_it() {
    let mut room = room(20);
    for by in 0..5 {
        let victim = room.members[12].me().node;
        let effects = room.members[by].suspect(victim, room.now);
        room.apply(by, effects);
    }
    room.run(Duration::from_millis(300));
    assert!(room.agrees());
    room.run(Duration::from_secs(5));
    assert!(room.deaths.is_empty());
}

fn record(node: NodeId, version: u64, capacity: u64) -> Record {
    Record {
        node,
        version,
        subject: Subject {
            image: ImageId([1; 32]),
            names: "image".into(),
            header: Header::new(256 * ChunkSize::MIN.bytes(), ChunkSize::MIN, 256).expect("a header").encode(),
        }
        .into(),
        origin: false,
        arc: Arc { start: 0, length: capacity },
        filled: Filled { from: 0, count: 0 },
        leaving: false,
    }
}

#[test]
fn the_downstream_of_a_newcomer_knows_its_holding_at_once() {
    const COUNT: usize = 60;
    // Nodes that join during one snapshot exchange, and are missing from it.
    const AT_A_TIME: usize = 10;
    let mut room = Room::new();
    for at in 0..COUNT + AT_A_TIME {
        if at < COUNT {
            room.join();
        }
        room.run(DELAY / AT_A_TIME as u32);
        if let Some(at) = at.checked_sub(AT_A_TIME) {
            let node = room.members[at].me().node;
            let effects = room.members[at].announce(record(node, 1, 10), room.now);
            room.apply(at, effects);
        }
    }
    // Less than news waits for more.
    room.run(4 * DELAY);
    let mut members: Vec<Identity> = room.members.iter().map(|member| *member.me()).collect();
    members.sort_unstable_by_key(Identity::arrival);
    let nodes: Vec<NodeId> = members.iter().map(|member| member.node).collect();
    for (before, node) in nodes.iter().cycle().zip(nodes.iter().skip(1).chain(&nodes[..1])) {
        let known = room.members[room.named(*node)].records().iter().any(|record| record.node == *before);
        assert!(known, "{node} has not heard of {before}");
    }
}

/// A newcomer whose clock says `generation`, and the members that then met `introducer`.
fn comes(introducer: &mut Membership, number: u64, generation: u64) -> Membership {
    let addr = SocketAddr::from(([198, 18, 1, number as u8], 4000));
    let me = Identity { addr, node: NodeId(mix(100 + number)), generation, zone: Zone::default() };
    let mut newcomer = Membership::new(Level::Zone, me, Time::ZERO);
    let (members, records) = newcomer.snapshot();
    introducer.learn(members, records, Time::ZERO);
    let (members, records) = introducer.snapshot();
    newcomer.learn(members, records, Time::ZERO);
    newcomer
}

#[test]
fn newcomers_are_last_in_the_chain_whatever_their_clocks_say() {
    let me = Identity { generation: 5000, ..*room(1).members[0].me() };
    let mut introducer = Membership::new(Level::Zone, me, Time::ZERO);
    let mut before = me.arrival();
    for (number, generation) in [(1, 7), (2, 5000), (3, 9000), (4, 6000), (5, 9001)] {
        let newcomer = comes(&mut introducer, number, generation);
        let said = *introducer.live().get(&newcomer.me().node).expect("it is known");
        assert_eq!(said, *newcomer.me(), "both know it");
        assert!(said.arrival() > before && said.generation >= generation, "{said:?}");
        before = said.arrival();
    }
}

#[test]
fn a_claimed_far_generation_moves_no_other_member() {
    let mut introducer = Membership::new(Level::Zone, *room(1).members[0].me(), Time::ZERO);
    let liar = comes(&mut introducer, 1, FIRST_MAX);
    assert!(introducer.live().contains_key(&liar.me().node));
    for number in 2..5 {
        let newcomer = comes(&mut introducer, number, 7);
        assert!(newcomer.me().generation <= CLAIM_MAX && introducer.live().contains_key(&newcomer.me().node));
    }
}

#[test]
fn nobody_else_says_what_a_member_holds() {
    let mut room = room(2);
    let node = room.members[1].me().node;
    let (mine, forged) = (record(node, 1, 10), record(node, 9, 200));
    let effects = room.members[1].announce(mine.clone(), room.now);
    room.apply(1, effects);
    let effects = room.members[1].learn(Vec::new(), vec![forged], room.now);
    room.apply(1, effects);
    room.run(Duration::from_secs(1));
    let mine = Record { version: 10, ..mine };
    for member in &room.members {
        assert_eq!(member.records().iter().collect::<Vec<_>>(), [&mine]);
    }
}

/// Tells a member of the room something, as if it had come with a snapshot.
fn tell(room: &mut Room, at: usize, said: Vec<Member>) {
    let effects = room.members[at].learn(said, Vec::new(), room.now);
    room.apply(at, effects);
}

/// The latest believed generation of a member whose clock is right.
const LATEST: u64 = latest_believed(0);

/// It denies its death, whatever generation the claim names, and whatever process is said to
/// replace it.
#[test]
fn a_member_reported_dead_comes_back_by_denying_it() {
    let later = |generation: u64| [generation, generation + 1, LATEST];
    for (state, generation) in [State::Suspect, State::Down, State::Left].into_iter().zip(later(1012)) {
        let mut room = room(20);
        let identity = Identity { generation, ..*room.members[12].me() };
        for incarnation in [0, 7, u32::MAX - 1, u32::MAX] {
            tell(&mut room, 3, vec![Member { identity, incarnation, state }]);
            room.run(Duration::from_secs(1));
        }
        room.until_agreed(Duration::from_secs(4));
        assert!(room.members[12].denials() > 0);
    }
    let mut room = room(20);
    let addr = room.members[12].me().addr;
    for (node, generation) in [(1, 2000), (2, 3000), (3, LATEST), (4, LATEST + 1), (5, 1 << 53), (6, u64::MAX)] {
        let identity = Identity { addr, node: NodeId(node), generation, zone: Zone::default() };
        tell(&mut room, 3, vec![Member { identity, incarnation: 0, state: State::Alive }]);
        room.run(Duration::from_secs(1));
    }
    room.until_agreed(Duration::from_secs(10));
    assert!(room.members[12].denials() > 0);
    // It can still die.
    room.dead.insert(12);
    room.until_agreed(Duration::from_secs(4));
}

/// Members that were made up are buried like others that do not answer, and nobody else is.
#[test]
fn members_that_do_not_exist_are_buried() {
    let mut room = room(20);
    let imaginary = |number: u64| {
        let addr = SocketAddr::from(([198, 51, 100, number as u8], 4000));
        let identity = Identity { addr, node: NodeId(mix(number ^ 0xdead)), generation: 9000, zone: Zone::default() };
        Member { identity, incarnation: 0, state: State::Alive }
    };
    tell(&mut room, 3, (0..100).map(imaginary).collect());
    room.run(Duration::from_millis(100));
    assert!(!room.agrees());
    room.until_agreed(Duration::from_secs(60));
    assert!(room.deaths.is_empty(), "{:?}", room.deaths);
}

/// Says by gossip what a stranger has to say to one member of the room.
fn whisper(room: &mut Room, to: usize, items: &[Item]) {
    let addr = SocketAddr::from(([198, 51, 100, 200], 4000));
    let from = Identity { addr, node: NodeId(7), generation: 1, zone: Zone::default() };
    let head =
        Head { level: Level::Zone, from, incarnation: 0, to: room.members[to].me().node, purpose: Purpose::News };
    let mut draft = Draft::new(&head);
    assert!(items.iter().all(|item| draft.add(item)));
    let effects = room.members[to].datagram(&draft.finish(), room.now);
    room.apply(to, effects);
}

/// All but the hidden stranger know the room; the stranger is buried in time.
fn knows_itself(room: &mut Room) {
    room.until_agreed(Duration::from_secs(20));
}

/// One datagram to the victim: another node is at its address, with the latest possible generation.
#[test]
fn a_member_reported_replaced_stays_whatever_the_generation() {
    for generation in [2000, CLAIM_MAX, LATEST - 1, LATEST, LATEST + 1, FIRST_MAX, (1 << 53) - 1, 1 << 53, u64::MAX] {
        for tell in [&[12][..], &[3], &[3, 12, 3]] {
            let mut room = room(20);
            let identity = Identity { node: NodeId(8), generation, ..*room.members[12].me() };
            let said = Item::Member(Member { identity, incarnation: 0, state: State::Alive });
            for to in tell {
                whisper(&mut room, *to, std::slice::from_ref(&said));
                room.run(Duration::from_secs(1));
            }
            knows_itself(&mut room);
            assert!(room.deaths.iter().all(|(_, _, who)| *who == 12));
            // Its statements count: it can still deny its death, and die.
            tell_death(&mut room, 12);
        }
    }
}

/// A member that is reported dead denies it; then it dies.
fn tell_death(room: &mut Room, victim: usize) {
    let identity = *room.members[victim].me();
    let denials = room.members[victim].denials();
    tell(room, 3, vec![Member { identity, incarnation: u32::MAX - 1, state: State::Down }]);
    room.run(Duration::from_secs(1));
    knows_itself(room);
    assert!(room.members[victim].denials() > denials);
    room.dead.insert(victim);
    room.until_agreed(Duration::from_secs(8));
}

/// One datagram gives it another address: it keeps its own, and all members learn so.
#[test]
fn a_member_reported_elsewhere_corrects_its_address() {
    let numbers = [
        (1012, 0),
        (1012, 1),
        (1012, u32::MAX - 1),
        (1012, u32::MAX),
        (1013, 0),
        (CLAIM_MAX, u32::MAX - 1),
        (LATEST, 0),
        (LATEST, u32::MAX - 1),
        (LATEST, u32::MAX),
        (LATEST + 1, 0),
        (FIRST_MAX, 0),
        (1 << 53, 0),
        (u64::MAX, u32::MAX),
    ];
    for (generation, incarnation) in numbers {
        for tell in [12, 3] {
            let mut room = room(20);
            let me = *room.members[12].me();
            assert_eq!(me.generation, 1012);
            let elsewhere = SocketAddr::from(([198, 51, 100, 200], 4000));
            let identity = Identity { addr: elsewhere, generation, ..me };
            whisper(&mut room, tell, &[Item::Member(Member { identity, incarnation, state: State::Alive })]);
            room.run(Duration::from_secs(5));
            knows_itself(&mut room);
            for (at, member) in room.members.iter().enumerate().filter(|(at, _)| *at != 12) {
                let known = member.live().get(&me.node).expect("it lives");
                assert_eq!(known.addr, me.addr, "{generation}, {incarnation}: member {at} looks for it elsewhere");
            }
            tell_death(&mut room, 12);
        }
    }
}

/// Each lie begins where the last denial ended: there is always one more.
#[test]
fn a_denial_leaves_room_for_the_next() {
    let mut room = room(12);
    for round in 0..40 {
        let me = room.members[5].myself();
        let elsewhere = SocketAddr::from(([198, 51, 100, 200], 4000));
        let identity = Identity { addr: elsewhere, generation: latest_believed(me.identity.generation), ..me.identity };
        let said = Member { identity, incarnation: u32::MAX - 1, state: State::Alive };
        whisper(&mut room, round % 12, &[Item::Member(said)]);
        room.run(Duration::from_secs(3));
        let known = |member: &Membership| member.live().get(&me.identity.node).map(|known| known.addr);
        let others = room.members.iter().filter(|member| member.me().node != me.identity.node);
        assert!(others.clone().all(|member| known(member) == Some(me.identity.addr)), "round {round}");
    }
}

/// A false record about a member's store is outdone by the member.
#[test]
fn a_record_about_oneself_is_outdone() {
    let versions = [1, 2, 1000, CLAIM_MAX, LATEST, LATEST + 1, FIRST_MAX, FIRST_MAX + 1, u64::MAX - 1, u64::MAX];
    for version in versions {
        for tell in [12, 3] {
            let mut room = room(20);
            let node = room.members[12].me().node;
            let mine = Record { origin: true, ..record(node, 1, 0) };
            let effects = room.members[12].announce(mine.clone(), room.now);
            room.apply(12, effects);
            room.run(Duration::from_secs(1));
            let forged = record(node, version, 200);
            whisper(&mut room, tell, &[Item::Record(forged)]);
            room.run(Duration::from_secs(5));
            let believed = |room: &Room, mine: &Record| {
                room.members.iter().all(|member| {
                    let known = member.records().get(&RecordKey { node, image: mine.image() });
                    known.is_some_and(|known| (known.origin, known.arc) == (mine.origin, mine.arc))
                })
            };
            assert!(believed(&room, &mine), "version {version}");
            // Its next record counts too, though its own version restarts.
            let next = Record { version: 2, arc: Arc { start: 0, length: 50 }, ..mine };
            let effects = room.members[12].announce(next.clone(), room.now);
            room.apply(12, effects);
            room.run(Duration::from_secs(2));
            assert!(believed(&room, &next), "version {version}");
        }
    }
}
