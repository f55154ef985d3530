//! Messages that go over connections where no datagrams come through.

use crate::room::{Room, joined, record, room};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::identity::NodeId;
use vfield_core::membership::Membership;
use vfield_core::membership::message::{self, DATAGRAM_MAX, Draft, Head, Item, Level, Purpose, Relayed};

/// A room for a minute behind firewalls that drop all datagrams.
fn without_udp(count: usize) -> Room {
    let mut room = room(count);
    room.drops = Box::new(|_, _| true);
    room.run(Duration::from_secs(60));
    room
}

fn without_datagrams(member: &Membership, room: &Room) -> usize {
    member.without_datagrams(room.now).count()
}

#[test]
fn a_room_without_datagrams_buries_the_dead_only() {
    for count in [2, 9, 50] {
        let mut room = without_udp(count);
        assert!(room.deaths.is_empty(), "{count} members: {:?}", room.deaths);
        assert!(room.members.iter().all(|member| without_datagrams(member, &room) > 0));
        room.dead.insert(1);
        let took = room.until_agreed(Duration::from_secs(4));
        assert!(took < Duration::from_millis(2500), "{count} members took {took:?}");
    }
}

#[test]
fn datagrams_that_come_through_again_are_used_again() {
    for count in [2, 9, 50] {
        let mut room = without_udp(count);
        room.drops = Box::new(|_, _| false);
        room.run(Duration::from_secs(60));
        let before = room.by_connection;
        room.run(Duration::from_secs(20));
        assert_eq!(room.by_connection, before, "{count} members");
        assert!(room.members.iter().all(|member| without_datagrams(member, &room) == 0));
    }
}

/// Members that talk over connections all the time hear each other, and yet find out that datagrams
/// come through.
#[test]
fn datagrams_that_come_through_again_are_used_again_amid_all_the_talk() {
    for count in [2, 4, 9] {
        let mut room = without_udp(count);
        room.drops = Box::new(|_, _| false);
        for version in 1..150 {
            for at in 0..count {
                let news = record(room.members[at].me().node, version, 10);
                let effects = room.members[at].announce(news, room.now);
                room.apply(at, effects);
            }
            room.run(Duration::from_millis(100));
        }
        assert!(room.members.iter().all(|member| without_datagrams(member, &room) == 0), "{count} members");
    }
}

/// Connections that were slow for a moment: messages go through others meanwhile, and not for ever.
#[test]
fn connections_that_come_through_again_are_used_again() {
    for count in [3, 9, 30] {
        let mut room = without_udp(count);
        let without_a_way =
            |room: &Room| -> usize { room.members.iter().map(|member| member.without_a_way(room.now).count()).sum() };
        room.loses = Box::new(|_, from, to| from.min(to) == 1 && from.max(to) == 2);
        room.run(Duration::from_secs(60));
        assert!(room.deaths.is_empty(), "{count} members: {:?}", room.deaths);
        assert!(count > 3 || without_a_way(&room) == 2);
        room.loses = Box::new(|_, _, _| false);
        room.run(Duration::from_secs(60));
        assert_eq!(without_a_way(&room), 0, "{count} members");
    }
}

#[test]
fn a_parted_room_without_datagrams_comes_together_again() {
    let mut room = without_udp(20);
    room.loses = Box::new(|_, from, to| (from < 5) != (to < 5));
    room.run(Duration::from_secs(30));
    assert!((0..20).all(|at| room.members[at].live().len() + 1 == if at < 5 { 5 } else { 15 }));
    room.loses = Box::new(|_, _, _| false);
    let took = room.until_agreed(Duration::from_secs(120));
    assert!(took < Duration::from_secs(60), "it took {took:?}");
}

/// One way alone, between two members or at one of them.
#[test]
fn who_hears_no_datagrams_is_heard_and_hears() {
    let rules: [fn(usize, usize) -> bool; 4] =
        [|_, to| to == 3, |from, _| from == 3, |from, to| (from, to) == (3, 4), |from, to| from.min(to) == 3];
    for (number, rule) in rules.into_iter().enumerate() {
        let mut room = room(9);
        room.drops = Box::new(rule);
        room.run(Duration::from_secs(60));
        assert!(room.deaths.is_empty(), "rule {number}: {:?}", room.deaths);
        let leaving = room.members[7].leave(room.now);
        room.apply(7, leaving);
        room.dead.insert(7);
        let took = room.until_agreed(Duration::from_secs(4));
        assert!(took < Duration::from_secs(2), "rule {number}: news took {took:?}");
    }
}

#[test]
fn where_datagrams_come_through_no_connections_are_made() {
    let mut room = room(50);
    room.loses = Box::new(|number, _, _| number % 50 == 0);
    room.run(Duration::from_secs(60));
    let share = room.by_connection as f64 / room.datagrams as f64;
    assert!(share < 0.01, "{} messages over connections, {} datagrams", room.by_connection, room.datagrams);
}

/// A connection proves who speaks. Nobody says something in another's name there, or by it that
/// another one hears no datagrams.
#[test]
fn a_message_in_the_name_of_another_is_nothing() {
    let mut room = room(5);
    let [me, liar, victim] = [0, 1, 2].map(|at| *room.members[at].myself());
    let head = Head {
        level: Level::Zone,
        from: victim.identity.node,
        life: (u64::MAX, 0),
        to: me.identity.node,
        purpose: Purpose::Ping(1),
    };
    let mut draft = Draft::new(&head);
    draft.add(&Item::Member(victim));
    let bytes = draft.finish();
    let effects = room.members[0].gossip(liar.identity.node, &bytes, room.now);
    assert!(effects.by_connection.is_empty() && effects.datagrams.is_empty());
    for rubbish in [&bytes[..10], &[0; 1400], &[]] {
        let effects = room.members[0].gossip(victim.identity.node, rubbish, room.now);
        assert!(effects.by_connection.is_empty() && effects.datagrams.is_empty());
    }
    // The victim itself is answered where it asked; a stranger, whose address is unknown, is not.
    let effects = room.members[0].gossip(victim.identity.node, &bytes, room.now);
    assert!(effects.by_connection.iter().all(|(to, _)| *to == victim.identity) && !effects.by_connection.is_empty());
    let stranger = NodeId(77);
    let bytes = Draft::new(&Head { from: stranger, ..head }).finish();
    let effects = room.members[0].gossip(stranger, &bytes, room.now);
    assert!(effects.by_connection.is_empty() && effects.datagrams.is_empty());
}

/// Rooms in which not everybody has a way to everybody, from the start: through the first member
/// alone, or in two halves that share it.
fn parted(count: usize, half: usize) -> Room {
    let mut room = Room::new();
    room.loses = Box::new(move |_, from, to| from.min(to) > 0 && (half < 2 || from % half != to % half));
    joined(room, count)
}

#[test]
fn members_without_a_way_to_each_other_bury_the_dead_only() {
    for (count, half) in [(3, 1), (6, 1), (16, 1), (40, 1), (16, 2), (60, 3)] {
        let mut room = parted(count, half);
        room.run(Duration::from_secs(60));
        assert!(room.deaths.is_empty(), "{count} members in {half}: {:?}", room.deaths);
        let denials: u64 = room.members.iter().map(Membership::denials).sum();
        assert!(denials < count as u64, "{count} members in {half}: {denials} denials");
        room.dead.insert(1);
        let took = room.until_agreed(Duration::from_secs(6));
        assert!(took < Duration::from_millis(2500), "{count} members took {took:?}");
    }
}

/// Only a live member has messages passed on, from its own address and to live members, and only
/// such a member passes any on.
#[test]
fn messages_are_passed_on_between_members_only() {
    let mut room = room(5);
    let [me, asker, relay, target] = [0, 1, 2, 3].map(|at| *room.members[at].me());
    let life = room.members[1].myself().life();
    let (stranger, elsewhere) = (NodeId(77), SocketAddr::from(([198, 51, 100, 200], 4000)));
    let head = |from, purpose| Head { level: Level::Zone, from, life, to: me.node, purpose };
    let mut answers = |source, head: Head, fill: usize| -> Vec<(SocketAddr, Head)> {
        let mut bytes = Draft::new(&head).finish();
        bytes.resize(bytes.len() + fill, 0);
        let effects = room.members[0].datagram(source, &bytes, room.now);
        assert!(effects.by_connection.is_empty());
        let sent = effects.datagrams.into_iter();
        sent.map(|(to, bytes)| (to, message::parse(&bytes).expect("a message").0)).collect()
    };
    let through = |to| Purpose::Through(to, Relayed::Ping(7));
    let passed = Head {
        to: target.node,
        purpose: Purpose::Passed(me.node, Relayed::Ping(7)),
        ..head(asker.node, through(target.node))
    };
    assert_eq!(answers(asker.addr, head(asker.node, through(target.node)), 0), [(target.addr, passed)]);
    for (source, from, to, fill) in [
        (elsewhere, asker.node, target.node, 0),
        (relay.addr, asker.node, target.node, 0),
        (elsewhere, stranger, target.node, 0),
        (asker.addr, asker.node, stranger, 0),
        (asker.addr, asker.node, me.node, 0),
        (asker.addr, asker.node, target.node, DATAGRAM_MAX),
    ] {
        assert_eq!(answers(source, head(from, through(to)), fill), [], "{from:?} at {source} to {to:?}");
    }
    let by = |relay| Purpose::Passed(relay, Relayed::Ping(7));
    for (source, by_whom) in [(elsewhere, relay.node), (asker.addr, relay.node), (elsewhere, stranger)] {
        assert_eq!(answers(source, head(asker.node, by(by_whom)), 0), [], "by {by_whom:?} at {source}");
    }
    let answered = answers(relay.addr, head(asker.node, by(relay.node)), 0);
    let answer = Purpose::Through(asker.node, Relayed::Ack(7));
    assert!(answered.iter().all(|(to, head)| (*to, head.to, head.purpose) == (relay.addr, relay.node, answer)));
    assert_eq!(answered.len(), 1);
    // Over a connection nobody asks in the name of another either.
    let bytes = Draft::new(&head(asker.node, through(target.node))).finish();
    let effects = room.members[0].gossip(relay.node, &bytes, room.now);
    assert!(effects.datagrams.is_empty() && effects.by_connection.is_empty());
}
