//! Members alone, without chunks: all learn of joins and deaths, no live member is buried, and none
//! has more than a few partners.

mod signed;

use signed::{forged, keys, said, signed};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::message::{self, Draft, Head, Item, Purpose};
use vfield_core::membership::{Effects, Level, Member, Membership, State};
use vfield_core::outbid::{CLAIM_MAX, FIRST_MAX, latest_believed};
use vfield_core::placement::{Arc, Filled, mix};
use vfield_core::record::{Record, RecordKey, Subject};
use vfield_core::signing::Signature;
use vfield_core::time::Time;

/// Time of a datagram on its way.
const DELAY: Duration = Duration::from_millis(1);
const COMPARE_EVERY: Duration = vfield_core::config::SYNC_EVERY;

enum Event {
    /// To a member, from an address.
    Datagram(usize, SocketAddr, Vec<u8>),
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
        self.members.push(Membership::new(Level::Zone, me, keys(me.node), self.now));
        self.wakes.push(None);
        if let Some(latest) = self.members.first().filter(|_| at > 0).map(Membership::latest) {
            self.members[at].arrive(latest);
        }
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
                let from = self.members[at].me().addr;
                self.at(DELAY, Event::Datagram(to, from, bytes));
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
                Event::Datagram(to, from, bytes) if !self.dead.contains(&to) => {
                    let effects = self.members[to].datagram(from, &bytes, at);
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
                    let (told, answer) =
                        (self.members[a].snapshot(&[]), self.members[b].snapshot(&self.members[a].known()));
                    let (from, to) = (self.members[a].me().node, self.members[b].me().node);
                    let effects = self.members[b].learn(from, told.0, told.1, at);
                    self.apply(b, effects);
                    let effects = self.members[a].learn(to, answer.0, answer.1, at);
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
    signed(Record {
        node,
        version,
        progress: 0,
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
        signature: Signature::default(),
    })
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
    let mut newcomer = Membership::new(Level::Zone, me, keys(me.node), Time::ZERO);
    newcomer.arrive(introducer.latest());
    let (members, records) = newcomer.snapshot(&[]);
    introducer.learn(me.node, members, records, Time::ZERO);
    let (members, records) = introducer.snapshot(&[]);
    newcomer.learn(introducer.me().node, members, records, Time::ZERO);
    newcomer
}

#[test]
fn newcomers_are_last_in_the_chain_whatever_their_clocks_say() {
    let me = Identity { generation: 5000, ..*room(1).members[0].me() };
    let mut introducer = Membership::new(Level::Zone, me, keys(me.node), Time::ZERO);
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
    let me = *room(1).members[0].me();
    let mut introducer = Membership::new(Level::Zone, me, keys(me.node), Time::ZERO);
    let liar = comes(&mut introducer, 1, FIRST_MAX);
    assert!(introducer.live().contains_key(&liar.me().node));
    for number in 2..5 {
        let newcomer = comes(&mut introducer, number, 7);
        assert!(newcomer.me().generation <= CLAIM_MAX && introducer.live().contains_key(&newcomer.me().node));
    }
}

/// Tells a member of the room something, as if it had come with a snapshot.
fn tell(room: &mut Room, at: usize, said: Vec<Member>) {
    let effects = room.members[at].learn(NodeId(7), said, Vec::new(), room.now);
    room.apply(at, effects);
}

/// Says by gossip what a stranger has to say to one member of the room.
fn whisper(room: &mut Room, to: usize, items: &[Item]) {
    let addr = SocketAddr::from(([198, 51, 100, 200], 4000));
    let to_node = room.members[to].me().node;
    let head = Head { level: Level::Zone, from: NodeId(7), life: (1, 0), to: to_node, purpose: Purpose::News };
    let mut draft = Draft::new(&head);
    assert!(items.iter().all(|item| draft.add(item)));
    let effects = room.members[to].datagram(addr, &draft.finish(), room.now);
    room.apply(to, effects);
}

/// The latest believed generation of a member whose clock is right.
const LATEST: u64 = latest_believed(0);

/// Generations and incarnations that a liar may name.
const LIVES: [(u64, u32); 10] = [
    (1, 0),
    (1012, 0),
    (1012, 1),
    (1012, u32::MAX - 1),
    (1013, 0),
    (CLAIM_MAX, u32::MAX - 1),
    (LATEST, 0),
    (FIRST_MAX, u32::MAX),
    (1 << 53, 0),
    (u64::MAX, u32::MAX),
];

/// Others may say of its present life that it is suspect or dead: it denies that, and nobody buries
/// it meanwhile.
#[test]
fn a_member_reported_dead_denies_it() {
    for state in [State::Suspect, State::Down] {
        let mut room = room(20);
        for round in 0..5 {
            let said = Member { state, ..*room.members[12].myself() };
            tell(&mut room, 3, vec![said]);
            whisper(&mut room, 5, &[Item::Member(said)]);
            room.run(Duration::from_secs(1));
            assert!(room.agrees() && room.members[12].denials() > round, "{state:?}, round {round}");
        }
        assert!(room.deaths.is_empty(), "{:?}", room.deaths);
        room.dead.insert(12);
        room.until_agreed(Duration::from_secs(4));
    }
}

/// Nobody else says where a member is, that it leaves, or which life it lives: not one member
/// believes it for a moment.
#[test]
fn nobody_else_speaks_for_a_member() {
    for (generation, incarnation) in LIVES {
        for tell in [12, 3] {
            let mut room = room(20);
            let me = *room.members[12].me();
            assert_eq!(me.generation, 1012);
            let elsewhere = SocketAddr::from(([198, 51, 100, 200], 4000));
            for state in [State::Alive, State::Suspect, State::Down, State::Left] {
                for addr in [me.addr, elsewhere] {
                    let identity = Identity { addr, generation, ..me };
                    let present = (generation, incarnation) == room.members[12].myself().life();
                    if matches!(state, State::Suspect | State::Down) && present {
                        continue;
                    }
                    whisper(&mut room, tell, &[Item::Member(forged(identity, incarnation, state))]);
                    for (at, member) in room.members.iter().enumerate().filter(|(at, _)| *at != 12) {
                        assert_eq!(member.live().get(&me.node), Some(&me), "member {at}: {state:?} {generation}");
                    }
                }
            }
            room.run(Duration::from_secs(2));
            assert!(room.agrees() && room.deaths.is_empty() && room.members[12].denials() == 0);
        }
    }
}

/// A key of its own under another's id, and a true statement under another's name.
#[test]
fn an_id_that_is_no_hash_of_its_key_is_not_believed() {
    let mut room = room(20);
    let me = *room.members[12].me();
    let liar = said(Identity { node: NodeId(8), ..me }, 0, State::Alive);
    let claimed = Identity { generation: 2000, ..me };
    whisper(&mut room, 3, &[Item::Member(Member { identity: claimed, ..liar })]);
    let unknown = Identity { node: NodeId(9), addr: SocketAddr::from(([198, 51, 100, 9], 4000)), ..me };
    whisper(&mut room, 3, &[Item::Member(Member { identity: unknown, ..liar })]);
    room.run(Duration::from_secs(2));
    assert!(room.agrees() && room.deaths.is_empty());
    assert!(room.members[3].statement(NodeId(9)).is_none());
}

/// Somebody invents a statement about a node that nobody knows yet: the node's own displaces it,
/// whatever numbers it has.
#[test]
fn a_forged_first_statement_gives_way_to_a_true_one() {
    let elsewhere = SocketAddr::from(([198, 51, 100, 200], 4000));
    for state in [State::Alive, State::Suspect, State::Down] {
        let mut room = room(5);
        let addr = SocketAddr::from(([198, 51, 100, 7], 4000));
        let me = Identity { addr, node: NodeId(7), generation: 1500, zone: Zone::default() };
        let lie = forged(Identity { addr: elsewhere, generation: CLAIM_MAX, ..me }, 9, state);
        whisper(&mut room, 3, &[Item::Member(lie)]);
        let true_one = said(me, 0, State::Alive);
        whisper(&mut room, 3, &[Item::Member(true_one)]);
        assert_eq!(room.members[3].live().get(&me.node), Some(&me), "{state:?}");
        whisper(&mut room, 3, &[Item::Member(lie)]);
        assert_eq!(room.members[3].live().get(&me.node), Some(&me), "{state:?}: again");
        // So it is with records.
        let (signer, mine) = (NodeId(8), record(me.node, 5, 10));
        let lie = Record { version: 9, signature: record(signer, 9, 10).signature, ..mine.clone() };
        for (told, believed) in [(&lie, 9), (&mine, 5), (&lie, 5)] {
            whisper(&mut room, 3, &[Item::Record(told.clone())]);
            let known = room.members[3].records().get(&mine.key()).map(|record| record.version);
            assert_eq!(known, Some(believed));
        }
        assert!(room.members[3].confirms(&mine.key()));
    }
}

/// A forged datagram in a partner's name gets an answer at its source, and none of the partner's
/// news.
#[test]
fn news_goes_to_members_only() {
    let mut room = room(3);
    let (partner, to) = (room.members[2].me().node, room.members[1].me().node);
    let mine = record(to, 1, 10);
    let effects = room.members[1].announce(mine.clone(), room.now);
    drop(effects);
    let thief = SocketAddr::from(([198, 51, 100, 200], 4000));
    let ask = |life, purpose| Draft::new(&Head { level: Level::Zone, from: partner, life, to, purpose }).finish();
    let life = room.members[2].myself().life();
    for (life, purpose) in [(life, Purpose::Ping(1)), ((life.0, 9), Purpose::Ping(2)), (life, Purpose::Introduce)] {
        let answers = room.members[1].datagram(thief, &ask(life, purpose), room.now).datagrams;
        assert!(!answers.is_empty() && answers.iter().all(|(to, _)| *to == thief));
        for (_, bytes) in answers {
            let (_, items) = message::parse(&bytes).expect("a datagram");
            assert!(items.into_iter().all(|item| !matches!(item, Item::Record(_))), "{purpose:?}");
        }
    }
    let there = room.members[2].me().addr;
    let answers = room.members[1].datagram(there, &ask(life, Purpose::Ping(3)), room.now).datagrams;
    let told = answers.iter().flat_map(|(_, bytes)| message::parse(bytes).expect("a datagram").1);
    assert!(told.into_iter().any(|item| matches!(item, Item::Record(said) if said == mine)), "it is still to be told");
}

/// An earlier process with the same key, whose clock was ahead, left statements: the present one
/// goes on from there.
#[test]
fn a_node_outbids_an_earlier_process_with_its_key() {
    let mut room = room(20);
    let me = *room.members[12].me();
    let elsewhere = SocketAddr::from(([198, 51, 100, 200], 4000));
    let earlier = said(Identity { addr: elsewhere, generation: 9000, ..me }, 5, State::Alive);
    whisper(&mut room, 3, &[Item::Member(earlier)]);
    room.run(Duration::from_secs(5));
    room.until_agreed(Duration::from_secs(10));
    let known = |member: &Membership| member.live().get(&me.node).map(|known| (known.addr, known.generation));
    let others = room.members.iter().filter(|member| member.me().node != me.node);
    assert!(others.clone().all(|member| known(member) == Some((me.addr, 9000))));
}

/// Members that were made up are buried like others that do not answer, and nobody else is.
#[test]
fn members_that_do_not_exist_are_buried() {
    let mut room = room(20);
    let imaginary = |number: u64| {
        let addr = SocketAddr::from(([198, 51, 100, number as u8], 4000));
        let identity = Identity { addr, node: NodeId(mix(number ^ 0xdead)), generation: 9000, zone: Zone::default() };
        said(identity, 0, State::Alive)
    };
    tell(&mut room, 3, (0..100).map(imaginary).collect());
    room.run(Duration::from_millis(100));
    assert!(!room.agrees());
    room.until_agreed(Duration::from_secs(60));
    assert!(room.deaths.is_empty(), "{:?}", room.deaths);
}

/// All but the hidden stranger know the room; the stranger is buried in time.
fn knows_itself(room: &mut Room) {
    room.until_agreed(Duration::from_secs(20));
}

/// One datagram to the victim: another node is at its address, with the latest possible generation.
/// That node exists, so its statement is signed.
#[test]
fn a_member_reported_replaced_stays_whatever_the_generation() {
    for generation in [2000, CLAIM_MAX, LATEST - 1, LATEST, LATEST + 1, FIRST_MAX, (1 << 53) - 1, 1 << 53, u64::MAX] {
        for told in [&[12][..], &[3], &[3, 12, 3]] {
            let mut room = room(20);
            let identity = Identity { node: NodeId(8), generation, ..*room.members[12].me() };
            let claim = Item::Member(said(identity, 0, State::Alive));
            for to in told {
                whisper(&mut room, *to, std::slice::from_ref(&claim));
                room.run(Duration::from_secs(1));
            }
            knows_itself(&mut room);
            assert!(room.deaths.iter().all(|(_, _, who)| *who == 12));
            // Its statements count: it can still deny its death, and die.
            let denials = room.members[12].denials();
            let said = Member { state: State::Down, ..*room.members[12].myself() };
            tell(&mut room, 3, vec![said]);
            room.run(Duration::from_secs(1));
            knows_itself(&mut room);
            assert!(room.members[12].denials() > denials);
            room.dead.insert(12);
            room.until_agreed(Duration::from_secs(8));
        }
    }
}

/// Nobody else says what a member holds, and a progress that somebody invented is outdone.
#[test]
fn a_record_about_oneself_is_outdone() {
    for version in [1, 2, 1000, CLAIM_MAX, u64::MAX - 1, u64::MAX] {
        for tell in [12, 3] {
            let mut room = room(20);
            let node = room.members[12].me().node;
            let mine = Record { origin: true, ..record(node, 1, 100) };
            let effects = room.members[12].announce(mine.clone(), room.now);
            room.apply(12, effects);
            room.run(Duration::from_secs(1));
            let believed = |room: &Room, mine: &Record| {
                room.members.iter().all(|member| {
                    let known = member.records().get(&RecordKey { node, image: mine.image() });
                    let said = |record: &Record| (record.origin, record.arc, record.filled);
                    known.is_some_and(|known| said(known) == said(mine))
                })
            };
            assert!(believed(&room, &mine));
            let signature = record(NodeId(8), version, 200).signature;
            let forged = Record { version, arc: Arc { start: 0, length: 200 }, signature, ..mine.clone() };
            whisper(&mut room, tell, &[Item::Record(forged)]);
            assert!(believed(&room, &mine), "version {version}: not for a moment");
            // Its progress is a hint.
            let known = room.members[12].records().get(&mine.key()).cloned().expect("its own");
            let filled = Filled { from: 0, count: 100 };
            let invented = Record { progress: version, filled, ..known };
            whisper(&mut room, tell, &[Item::Record(invented)]);
            room.run(Duration::from_secs(5));
            assert!(believed(&room, &mine), "progress {version}");
            // Its next record counts too, though its own version restarts.
            let next = Record { version: 2, arc: Arc { start: 0, length: 50 }, ..mine };
            let effects = room.members[12].announce(next.clone(), room.now);
            room.apply(12, effects);
            room.run(Duration::from_secs(2));
            assert!(believed(&room, &next), "progress {version}");
        }
    }
}

/// A datagram names a stranger: it is asked to introduce itself, and its answer makes it a member.
/// A bounded number of times a second.
#[test]
fn a_stranger_introduces_itself() {
    let mut room = room(3);
    let addr = SocketAddr::from(([198, 51, 100, 200], 4000));
    let me = Identity { addr, node: NodeId(7), generation: 9000, zone: Zone::default() };
    let mut stranger = Membership::new(Level::Zone, me, keys(me.node), room.now);
    let to = room.members[1].me().node;
    let head = Head { level: Level::Zone, from: me.node, life: (9000, 0), to, purpose: Purpose::Ping(1) };
    let sent = room.members[1].datagram(addr, &Draft::new(&head).finish(), room.now).datagrams;
    assert!(sent.iter().all(|(to, _)| *to == addr) && room.members[1].statement(me.node).is_none());
    let there = room.members[1].me().addr;
    let answers: Vec<_> =
        sent.iter().flat_map(|(_, bytes)| stranger.datagram(there, bytes, room.now).datagrams).collect();
    for (_, bytes) in answers {
        room.members[1].datagram(addr, &bytes, room.now);
    }
    assert_eq!(room.members[1].live().get(&me.node), Some(&me));
    // An unknown node that asks this one may have forged its address.
    let ask = |number: u64| {
        let (from, purpose) = (NodeId(1000 + number), Purpose::Introduce);
        Draft::new(&Head { level: Level::Zone, from, life: (1, 0), to, purpose }).finish()
    };
    let told: usize =
        (0..1000).map(|number| room.members[1].datagram(addr, &ask(number), room.now).datagrams.len()).sum();
    assert!((1..=64).contains(&told), "{told} answers");
}
