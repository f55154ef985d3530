//! Messages that go over connections where no datagrams come through.

use crate::room::{Room, joined, room};
use std::time::Duration;
use vfield_core::identity::NodeId;
use vfield_core::membership::Membership;
use vfield_core::membership::message::{Draft, Head, Item, Level, Purpose};

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
