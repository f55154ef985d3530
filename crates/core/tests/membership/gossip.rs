//! Members alone, without chunks: all learn of joins and deaths, no live member is buried, and none
//! has more than a few partners.

use crate::room::{DELAY, Event, Room, record, room};
use crate::signed::keys;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::membership::message::{self, Item};
use vfield_core::membership::{Level, Membership};
use vfield_core::outbid::{CLAIM_MAX, FIRST_MAX};
use vfield_core::placement::{Filled, mix};
use vfield_core::record::Record;
use vfield_core::time::Time;

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

/// Each newcomer hears of it, and would remember it for as long as a member that knew it.
#[test]
fn a_goodbye_is_forgotten_though_newcomers_keep_coming() {
    let mut room = room(5);
    let gone = room.members[3].me().node;
    let effects = room.members[3].leave(room.now);
    room.apply(3, effects);
    room.dead.insert(3);
    for _ in 0..6 {
        room.join();
        room.run(Duration::from_secs(30));
    }
    for at in room.living() {
        let (members, _) = room.members[at].snapshot(&[]);
        assert!(members.iter().all(|member| member.identity.node != gone), "member {at} tells of it");
    }
}

#[test]
fn a_member_that_comes_back_after_its_goodbye_is_believed() {
    let mut room = room(30);
    let (before, everybody) = (*room.members[9].myself(), room.members[3].live().len());
    let effects = room.members[9].leave(room.now);
    room.apply(9, effects);
    room.run(Duration::from_secs(1));
    assert_eq!(room.members[3].live().len(), everybody - 1);
    let me = before.identity;
    room.members[9] = Membership::new(Level::Zone, me, keys(me.node), room.now);
    room.members[9].return_after(before.life());
    room.at(DELAY, Event::Sync(9, 0));
    room.run(Duration::from_secs(1));
    assert_eq!(room.members[3].live().len(), everybody);
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

/// Progress comes all the time, and a large room hears of it seldom. The end of it comes once, and
/// readers wait for it.
#[test]
fn a_store_that_is_full_is_known_to_all_soon() {
    let mut room = room(200);
    let node = room.members[7].me().node;
    let announced = |room: &mut Room, count| {
        let effects = room.members[7].announce(filled(node, count), room.now);
        room.apply(7, effects);
        let start = room.now;
        let is_known = |member: &Membership| member.records().of(node).iter().any(|known| known.filled.count == count);
        while !room.members.iter().all(is_known) {
            room.run(Duration::from_millis(10));
        }
        room.now - start
    };
    // All have just spoken.
    announced(&mut room, 10);
    let seldom = announced(&mut room, 20);
    // 256 chunks and the page with their hashes.
    let soon = announced(&mut room, 257);
    assert!(8 * soon < seldom, "full: {soon:?}, more than before: {seldom:?}");
}

/// A node's record with a store that is filled as far as this.
fn filled(node: NodeId, count: u64) -> Record {
    Record { filled: Filled { from: 0, count }, ..record(node, 1, 10) }
}

#[test]
fn partners_that_have_a_record_get_its_progress_alone() {
    let mut room = room(20);
    let mut now = room.now;
    let member = &mut room.members[7];
    let (node, mut records, mut progress) = (member.me().node, 0, 0);
    for count in 1..=12 {
        _ = member.announce(filled(node, count), now);
        now = now + Duration::from_millis(250);
        for (_, bytes) in member.tick(now).datagrams {
            let (_, items) = message::parse(&bytes).expect("sound");
            for item in items {
                records += usize::from(matches!(item, Item::Record(_)));
                progress += usize::from(matches!(item, Item::Progress(_)));
            }
        }
    }
    assert!(records > 0 && progress > 2 * records, "{records} records, {progress} times progress alone");
}

/// Whoever lost a record does not know what its progress is about, until it comes whole.
#[test]
fn a_record_that_was_lost_comes_again_with_progress() {
    let mut room = room(20);
    let (teller, deaf) = (7, 11);
    let node = room.members[teller].me().node;
    // Nobody exchanges snapshots, which would repair it too.
    let repairs = |event: &&mut Event| matches!(event, Event::Compare(..) | Event::Sync(..));
    room.what.values_mut().filter(repairs).for_each(|event| *event = Event::Tick(teller));
    let announce = |room: &mut Room, count| {
        let effects = room.members[teller].announce(filled(node, count), room.now);
        room.apply(teller, effects);
        room.run(Duration::from_millis(250));
    };
    let knows = |room: &Room| room.members[deaf].records().of(node).first().map(|known| known.filled.count);
    room.loses = Box::new(move |_, _, to| to == deaf);
    announce(&mut room, 1);
    room.loses = Box::new(|_, _, _| false);
    assert_eq!(knows(&room), None);
    let told = (2..40).find(|count| {
        announce(&mut room, *count);
        knows(&room).is_some()
    });
    assert!(told.is_some_and(|told| told < 20), "{told:?}");
    (40..60).for_each(|count| announce(&mut room, count));
    assert_eq!(knows(&room), Some(59), "then it follows");
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
