//! Members that speak for others: nobody believes them, and nobody is buried, moved or muted.

use crate::room::{Room, record, room};
use crate::signed::{forged, keys, said};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::membership::message::{self, Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member, Membership, State};
use vfield_core::outbid::{CLAIM_MAX, FIRST_MAX, latest_believed};
use vfield_core::placement::{Arc, Filled, mix};
use vfield_core::record::{Record, RecordKey};

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

/// A first statement is a hint until another one differs. Nothing else is said of this member and
/// of this record, and both are looked at all the same.
#[test]
fn forged_first_statements_are_forgotten_although_nobody_contradicts_them() {
    let mut room = room(5);
    let (addr, ghost) = (SocketAddr::from(([198, 51, 100, 200], 4000)), NodeId(99));
    let stranger = Identity { addr, node: ghost, generation: 1012, zone: Zone::default() };
    tell(&mut room, 3, vec![forged(stranger, 0, State::Alive)]);
    let lie = Record { version: 5000, node: room.members[1].me().node, ..record(ghost, 1, 7) };
    let key = lie.key();
    let effects = room.members[3].learn(NodeId(7), Vec::new(), vec![lie], room.now);
    room.apply(3, effects);
    let believes = |member: &Membership| (member.live().contains_key(&ghost), member.records().get(&key).is_some());
    assert_eq!(believes(&room.members[3]), (true, true));
    let effects = room.members[3].verify_some(room.now);
    assert_eq!(effects.down.len(), 1);
    room.apply(3, effects);
    assert_eq!(believes(&room.members[3]), (false, false));
    assert!(room.members[3].verify_some(room.now).down.is_empty() && room.members[3].live().len() == 4);
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

/// A member that was cut off forgets all deaths. Then it hears of another first by somebody who
/// invents where that is, in the life that it once verified.
#[test]
fn a_forged_statement_after_a_new_start_gives_way_to_a_true_one() {
    let mut room = room(5);
    let true_one = *room.members[2].myself();
    room.members[0].verify_some(room.now);
    room.dead.extend(1..5);
    room.run(Duration::from_secs(5));
    assert!(room.members[0].live().is_empty());
    room.members[0].start_over();
    let elsewhere = SocketAddr::from(([198, 51, 100, 200], 4000));
    let lie = forged(Identity { addr: elsewhere, ..true_one.identity }, true_one.incarnation, State::Alive);
    for (told, addr) in [(lie, elsewhere), (true_one, true_one.identity.addr), (lie, true_one.identity.addr)] {
        whisper(&mut room, 0, &[Item::Member(told)]);
        assert_eq!(room.members[0].live().get(&true_one.identity.node).map(|known| known.addr), Some(addr));
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

/// A request for a relay names a member, and no address. One datagram causes one, of a few
/// bytes, where that member lives; a stranger's name causes none.
#[test]
fn relays_go_to_members_where_they_live() {
    let mut room = room(4);
    let [asker, to, target] = [2, 1, 3].map(|at| *room.members[at].me());
    let life = room.members[2].myself().life();
    let source = SocketAddr::from(([198, 51, 100, 200], 4000));
    let stranger = NodeId(99);
    let mut sent_to = |purpose| -> Vec<(SocketAddr, Purpose)> {
        let ask = Draft::new(&Head { level: Level::Zone, from: asker.node, life, to: to.node, purpose }).finish();
        let sent = room.members[1].datagram(source, &ask, room.now).datagrams;
        sent.into_iter().map(|(addr, bytes)| (addr, message::parse(&bytes).expect("a datagram").0.purpose)).collect()
    };
    assert_eq!(sent_to(Purpose::Relay(stranger, 1)), []);
    assert_eq!(sent_to(Purpose::AckFor(stranger, 2)), []);
    assert_eq!(sent_to(Purpose::Relay(target.node, 3)), [(target.addr, Purpose::PingFor(asker.node, 3))]);
    assert_eq!(sent_to(Purpose::AckFor(target.node, 4)), [(target.addr, Purpose::Vouch(asker.node, 4))]);
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

/// Two members know a record of a third one in the same version, and one of the two records was
/// invented: each has news for the other.
#[test]
fn an_invented_record_of_the_same_version_is_no_known_one() {
    let mut room = room(3);
    let node = room.members[2].me().node;
    let mine = Record { origin: true, ..record(node, 1, 100) };
    let effects = room.members[2].announce(mine.clone(), room.now);
    room.apply(2, effects);
    room.run(Duration::from_secs(1));
    let records = |room: &Room, of: usize, to: usize| room.members[of].snapshot(&room.members[to].known()).1;
    let about = |records: &[Record]| records.iter().filter(|record| record.node == node).count();
    assert_eq!(about(&records(&room, 0, 1)), 0, "the same record on both sides is no news");
    // The signature of the true one, under other words.
    let known = room.members[2].records().get(&mine.key()).cloned().expect("its own");
    let invented = Record { arc: Arc { start: 7, ..known.arc }, ..known };
    let newcomer = room.join();
    let (members, _) = room.members[0].snapshot(&[]);
    let teller = room.members[1].me().node;
    let effects = room.members[newcomer].learn(teller, members, vec![invented], room.now);
    room.apply(newcomer, effects);
    assert_eq!(about(&records(&room, 0, newcomer)), 1);
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

/// Other nodes are said to be at the address of a member, again and again. Nobody speaks from there
/// but the member, and no other misses it for a moment.
#[test]
fn hearsay_displaces_nobody() {
    for generation in [2000, CLAIM_MAX, LATEST - 1] {
        let mut room = room(20);
        let me = *room.members[12].me();
        for round in 0..50 {
            let claim = said(Identity { node: NodeId(round % 8 + 1), generation, ..me }, 0, State::Alive);
            for to in 0..20 {
                whisper(&mut room, to, &[Item::Member(claim)]);
            }
            for _ in 0..10 {
                let others = room.members.iter().filter(|member| member.me().node != me.node);
                assert!(others.clone().all(|other| other.live().contains_key(&me.node)), "round {round}");
                room.run(Duration::from_millis(10));
            }
        }
        room.run(Duration::from_secs(1));
        assert!(room.agrees() && room.deaths.is_empty(), "{:?}", room.deaths);
    }
}

/// A member dies, and another process starts at its address at once, with another key. It is known
/// as soon as a death would be.
#[test]
fn a_process_that_starts_at_an_address_is_known_soon() {
    for generation in [1500, 1_000_000] {
        let mut room = room(40);
        let addr = room.members[12].me().addr;
        room.dead.insert(12);
        let at = room.join();
        let me = Identity { addr, generation, ..*room.members[at].me() };
        room.members[at] = Membership::new(Level::Zone, me, keys(me.node), room.now);
        let time = room.until_agreed(Duration::from_secs(10));
        assert!(time < Duration::from_secs(3), "{time:?}");
    }
}

/// A node does not believe a member, since another one spoke from its address. It asks that member
/// once to introduce itself. It does not ask again when the answer says the same, since each
/// question would bring the next, as fast as the network carries them.
#[test]
fn a_member_that_is_not_believed_is_asked_once() {
    let mut room = room(3);
    let (me, there) = (*room.members[2].me(), room.members[1].me().node);
    let speak = |room: &mut Room, identity: Identity| {
        let life = (identity.generation, 0);
        let mut draft =
            Draft::new(&Head { level: Level::Zone, from: identity.node, life, to: there, purpose: Purpose::News });
        assert!(draft.add(&Item::Member(said(identity, 0, State::Alive))));
        room.members[1].datagram(me.addr, &draft.finish(), room.now);
    };
    speak(&mut room, Identity { node: NodeId(8), generation: 5000, ..me });
    assert!(!room.members[1].live().contains_key(&me.node));
    let mine = said(Identity { generation: 4000, ..me }, 0, State::Alive);
    let head = |purpose| Head { level: Level::Zone, from: me.node, life: (4000, 0), to: there, purpose };
    let asks = Draft::new(&head(Purpose::Ping(1))).finish();
    let mut introduces = Draft::new(&head(Purpose::News));
    assert!(introduces.add(&Item::Member(mine)));
    let introduces = introduces.finish();
    let asked = |room: &mut Room, bytes: &[u8]| {
        let sent = room.members[1].datagram(me.addr, bytes, room.now).datagrams;
        let heads = sent.iter().filter_map(|(_, bytes)| Some(message::parse(bytes)?.0.purpose));
        heads.filter(|purpose| *purpose == Purpose::Introduce).count()
    };
    assert_eq!((asked(&mut room, &asks), asked(&mut room, &introduces)), (1, 0));
    // Once it says more than the other, it is believed.
    speak(&mut room, Identity { generation: 6000, ..me });
    assert!(room.members[1].live().contains_key(&me.node));
}

/// One node takes a member for dead, then hears that somebody else is at that member's address,
/// with a generation that the member cannot outbid. No other node believes that, so none finds out
/// that there is no such node: this one does, since it hears that the member lives.
#[test]
fn a_node_finds_out_who_is_at_an_address() {
    for victim in 4..20 {
        let mut room = room(20);
        let (me, said_by) = (*room.members[victim].me(), *room.members[victim].myself());
        whisper(&mut room, 3, &[Item::Member(Member { state: State::Suspect, ..said_by })]);
        // Before the denial comes.
        room.now = room.now + Duration::from_millis(400);
        whisper(&mut room, 3, &[Item::Member(Member { state: State::Down, ..said_by })]);
        let node = NodeId(mix(victim as u64 ^ 0xdead));
        let other = Identity { node, generation: FIRST_MAX - 1, ..me };
        whisper(&mut room, 3, &[Item::Member(said(other, 0, State::Alive))]);
        assert!(room.members[3].live().contains_key(&other.node) && !room.members[3].live().contains_key(&me.node));
        knows_itself(&mut room);
    }
}
