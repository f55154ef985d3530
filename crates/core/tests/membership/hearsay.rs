//! Hearsay: dials, members and contacts stay within bounds, whatever a frame names.

use crate::signed::{alive, keys, signed};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::{Config, SYNC_EVERY, SYNC_EVERY_MEMBER};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::message::{Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member, Membership, State};
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::placement::{Arc, Filled, mix};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::time::Time;

/// As many members as a frame of a mebibyte has room for, and some more.
const NAMED: u64 = 70_000;

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn zone(name: &str) -> Zone {
    Zone::named(name).expect("a name")
}

fn identity(number: u64, zone: Zone) -> Identity {
    let addr = SocketAddr::from(((0xC612_0000 + (number >> 12) as u32).to_be_bytes(), 4000 + (number & 0xfff) as u16));
    Identity { addr, node: NodeId(mix(number)), generation: 1000, zone }
}

fn member(number: u64, zone: Zone) -> Member {
    alive(identity(number, zone))
}

fn node() -> Node {
    let me = identity(0, zone("here"));
    Node::new(me, keys(me.node), Config::default(), 42, at(0))
}

/// The nodes that this node dials.
fn dials(node: &mut Node) -> Vec<NodeId> {
    let outputs = std::iter::from_fn(|| node.poll());
    outputs.filter_map(|output| if let Output::Sync(to) = output { Some(to.node) } else { None }).collect()
}

/// The header of all images here.
fn header() -> Header {
    Header::new(256 * ChunkSize::MIN.bytes(), ChunkSize::MIN, 256).expect("a header")
}

/// An image of which this node is an origin.
fn image(number: u8) -> ImageConfig {
    let (id, names) = (ImageId([number; 32]), "image".into());
    ImageConfig { id, names, header: header(), origin: true, capacity_bytes: 0, kept: None }
}

/// What a node says of such an image: that it is an origin, or has nothing of it yet.
fn record(number: u64, of: u8, origin: bool) -> Record {
    let ImageConfig { id, names, header, .. } = image(of);
    signed(Record {
        node: identity(number, zone("here")).node,
        version: 1,
        progress: 0,
        subject: std::sync::Arc::new(Subject { image: id, names, header: header.encode() }),
        origin,
        arc: Arc { start: 0, length: 0 },
        filled: Filled::default(),
        leaving: false,
        signature: Signature::default(),
    })
}

/// A snapshot from its first member, or from a guest.
fn learned(snapshot: Snapshot) -> Input {
    let from = snapshot.members.first().map_or(NodeId(7), |member| member.identity.node);
    Input::Learned { from, snapshot }
}

/// A snapshot that names as many gateways of the node's own zone.
fn names(teller: u64, gateways: std::ops::Range<u64>) -> Input {
    let gateways = gateways.map(|number| member(number, zone("here"))).collect();
    learned(Snapshot { members: vec![member(teller, zone("there"))], gateways, ..Snapshot::default() })
}

#[test]
fn a_frame_that_names_thousands_makes_a_node_dial_few() {
    let mut node = node();
    node.handle(at(1), names(1, 10..10 + NAMED));
    let few = dials(&mut node);
    assert!((1..=8).contains(&few.len()), "{} dials", few.len());
    node.handle(at(2), names(1, 10..10 + NAMED));
    assert_eq!(dials(&mut node), [], "nor does the same teller a moment later");
    // Nor do any number of tellers.
    for teller in 100..200 {
        node.handle(at(3), names(teller, teller * NAMED..teller * NAMED + 3));
    }
    let many = dials(&mut node).len() + few.len();
    assert!((few.len() + 1..=32).contains(&many), "{many} dials");
    // A later teller is heard.
    node.handle(at(1100), names(2, 5..7));
    let named: BTreeSet<NodeId> = dials(&mut node).into_iter().collect();
    assert!([5, 6].iter().all(|number| named.contains(&identity(*number, zone("here")).node)), "{named:?}");
}

#[test]
fn a_frame_that_names_thousands_of_zones_leaves_room_for_others() {
    let mut node = node();
    let elsewhere = |number: u64| member(number, zone(&format!("zone-{number}")));
    let snapshot = |teller, gateways: std::ops::Range<u64>| {
        let gateways = gateways.map(elsewhere).collect();
        learned(Snapshot { members: vec![member(teller, zone("there"))], gateways, ..Snapshot::default() })
    };
    node.handle(at(1), snapshot(1, 10..10 + NAMED));
    assert!(node.contacts().count() < 100, "{} contacts", node.contacts().count());
    node.handle(at(2), snapshot(2, 3..5));
    let known: BTreeSet<NodeId> = node.contacts().map(|contact| contact.node).collect();
    assert!([3, 4].iter().all(|number| known.contains(&elsewhere(*number).identity.node)));
}

/// One frame with 32 767 invented members does not keep out members known by hearsay, nor
/// newcomers.
#[test]
fn members_that_were_made_up_do_not_keep_others_out() {
    let mut node = node();
    let here = zone("here");
    let knows = |node: &Node, number: u64| {
        node.members().iter().any(|known| known.identity.node == identity(number, here).node)
    };
    let learned = |members: Vec<Member>| learned(Snapshot { members, ..Snapshot::default() });
    let ghosts = |from: u64| (from..from + 32_767).map(|number| member(number, here)).collect::<Vec<_>>();
    node.handle(at(1), learned(ghosts(100_000)));
    node.handle(at(2), learned(vec![member(1, here), member(2, here)]));
    assert!(knows(&node, 1) && knows(&node, 2), "of {}", node.members().len());
    // The same teller, again and again.
    for frame in 2..12 {
        node.handle(at(frame), learned(ghosts(frame * 100_000)));
    }
    node.handle(at(20), learned(vec![member(3, here)]));
    node.handle(at(21), Input::Met(member(4, here)));
    assert!(knows(&node, 3) && knows(&node, 4), "of {}", node.members().len());
    assert!(node.members().len() < 20_000, "{}", node.members().len());
}

/// The shell hears of a denial before it is sent, since others may have stopped accepting this
/// node.
#[test]
fn a_node_that_denies_its_death_says_so_before() {
    let mut node = node();
    let here = zone("here");
    let mut said = vec![member(1, here), member(0, here)];
    node.handle(at(1), learned(Snapshot { members: said.clone(), ..Snapshot::default() }));
    while let Some(output) = node.poll() {
        assert!(!matches!(output, Output::Denied), "nobody said anything wrong");
    }
    said[1].state = State::Suspect;
    node.handle(at(2), learned(Snapshot { members: said, ..Snapshot::default() }));
    node.handle(at(100), Input::Wake);
    let outputs: Vec<Output> = std::iter::from_fn(|| node.poll()).collect();
    let denied = outputs.iter().position(|output| matches!(output, Output::Denied));
    let datagram = outputs.iter().position(|output| matches!(output, Output::Datagram(..)));
    assert!(denied.is_some() && datagram.is_some_and(|datagram| denied < Some(datagram)), "{outputs:?}");
}

/// Where members live that are held for dead, only their tellers know: whoever says that they live
/// makes a node send there, so it sends little.
#[test]
fn members_that_are_said_to_live_and_to_be_dead_are_greeted_slowly() {
    let mut node = node();
    let here = zone("here");
    let dead = 10..310;
    let foreign: BTreeSet<SocketAddr> = dead.clone().map(|number| identity(number, here).addr).collect();
    let said = |state: State| {
        let others = dead.clone().map(|number| Member { state, ..member(number, here) });
        let members = std::iter::once(member(1, here)).chain(others).collect();
        learned(Snapshot { members, ..Snapshot::default() })
    };
    let mut greeted = BTreeSet::new();
    let mut sent = 0;
    for ms in 1..=1000 {
        let now = at(ms);
        if ms % 50 == 1 {
            node.handle(now, said(State::Down));
            node.handle(now, said(State::Alive));
        }
        if node.next_wake().is_some_and(|wake| wake <= now) {
            node.handle(now, Input::Wake);
        }
        for output in std::iter::from_fn(|| node.poll()) {
            if let Output::Datagram(to, _) = output
                && foreign.contains(&to)
            {
                sent += 1;
                greeted.insert(to);
            }
        }
    }
    assert!((20..=8 * 21).contains(&sent), "{sent} datagrams in a second");
    assert!(greeted.len() >= 8, "{} were greeted", greeted.len());
}

/// Records of invented members leave room for this node's own, and for those of members that it
/// met.
#[test]
fn records_that_were_made_up_do_not_keep_others_out() {
    let mut node = node();
    let here = zone("here");
    for frame in 1..8 {
        let records = (frame * 100_000..frame * 100_000 + 16_384).map(|number| record(number, 1, true)).collect();
        node.handle(at(frame), learned(Snapshot { records, ..Snapshot::default() }));
    }
    let met = Snapshot { members: vec![member(1, here)], records: vec![record(1, 1, true)], ..Snapshot::default() };
    node.handle(at(10), learned(met));
    node.add_image(at(10), image(1));
    let told = node.snapshot(&identity(1, here), &[]).records;
    for number in [0, 1] {
        assert!(told.iter().any(|said| said.node == identity(number, here).node), "{number}");
    }
}

/// A fleet may have more images than a node can remember all holders of. It still finds new images,
/// and the holders of its own ones.
#[test]
fn a_table_that_is_filling_has_room_for_what_a_node_needs() {
    let mut node = node();
    let here = zone("here");
    node.add_image(at(0), image(255));
    // A node may have fewer than 256 images.
    let images = 1..=200;
    for number in 10..200 {
        let (members, records) = (vec![member(9, here), member(number, here)], images.clone());
        let records = records.map(|image| record(number, image, false)).collect();
        node.handle(at(number), learned(Snapshot { members, records, ..Snapshot::default() }));
    }
    assert!(node.remembers_no_more());
    let cases = [
        (record(300, 1, false), false, "one more holder of another's image"),
        (record(301, 1, true), true, "an origin"),
        (record(302, 254, false), true, "a new image"),
        (record(303, 254, false), false, "it is no longer new"),
        (record(304, 255, false), true, "a holder of its own image"),
    ];
    for (said, is_taken, what) in cases {
        let number = 300..305;
        let members = std::iter::once(9).chain(number).map(|number| member(number, here)).collect();
        // While many join, each is told of a few only.
        node.handle(at(60_000), learned(Snapshot { members, records: vec![said.clone()], ..Snapshot::default() }));
        let told = node.snapshot(&identity(1, here), &[]).records;
        assert_eq!(told.iter().any(|known| known.key() == said.key()), is_taken, "{what}");
    }
}

/// Partners are chosen among all members, so they may all have been made up.
#[test]
fn snapshots_are_exchanged_with_acquaintances_too() {
    let (here, me) = (zone("here"), identity(0, zone("here")));
    let mut membership = Membership::new(Level::Zone, me, keys(me.node), at(0));
    let ghosts: Vec<Member> = (100..600).map(|number| member(number, here)).collect();
    [1, 2].into_iter().for_each(|number| drop(membership.met(member(number, here), at(1))));
    membership.learn(identity(1, here).node, ghosts, Vec::new(), at(2));
    let asked: Vec<NodeId> = (0..40).filter_map(|number| membership.partner(number)).map(|to| to.node).collect();
    for number in [1, 2] {
        let times = asked.iter().filter(|node| **node == identity(number, here).node).count();
        assert!((10..20).contains(&times), "member {number}: {times} of {}", asked.len());
    }
}

/// The more members, the more a snapshot costs, and the more seldom they are exchanged. Members
/// that others invent all the time are gone before they count.
#[test]
fn snapshots_are_exchanged_as_often_beside_members_that_were_made_up() {
    let (here, me) = (zone("here"), identity(0, zone("here")));
    let mut membership = Membership::new(Level::Zone, me, keys(me.node), at(0));
    let room: Vec<Member> = (1..41).map(|number| member(number, here)).collect();
    membership.learn(room[0].identity.node, room.clone(), Vec::new(), at(0));
    let mut longest = Duration::ZERO;
    for second in 1..60_u64 {
        let ghosts = |second: u64| (0..100).map(move |number| member(second * 100 + number, here));
        // Whoever watches them finds out.
        let found = ghosts(second.max(5) - 4).map(|ghost| Member { state: State::Suspect, ..ghost });
        membership.learn(room[1].identity.node, ghosts(second).chain(found).collect(), Vec::new(), at(second * 1000));
        for ms in (0..1000).step_by(50) {
            room.iter().for_each(|living| drop(membership.met(*living, at(second * 1000 + ms))));
            membership.tick(at(second * 1000 + ms));
        }
        if second > 30 {
            assert!(membership.live().len() > 140, "ghosts live for a moment: {}", membership.live().len());
            longest = longest.max(membership.sync_every());
        }
    }
    assert!(longest < Duration::from_secs(30), "{longest:?}");
    // In a room in which all have lived for a while, all count.
    let mut membership = Membership::new(Level::Zone, me, keys(me.node), at(0));
    membership.learn(room[0].identity.node, room.clone(), Vec::new(), at(0));
    assert_eq!(membership.sync_every(), SYNC_EVERY);
    room.iter().for_each(|living| drop(membership.met(*living, at(20_000))));
    assert_eq!(membership.sync_every(), SYNC_EVERY_MEMBER * 40);
}

/// A machine starts again without a farewell, while a liar names hundreds of members at each
/// other's addresses. The first answer from there is lost.
#[test]
fn a_newcomer_at_a_known_address_is_found_among_many_that_were_made_up() {
    let (here, me) = (zone("here"), identity(0, zone("here")));
    let mut membership = Membership::new(Level::Zone, me, keys(me.node), at(0));
    let [liar, former, honest] = [1, 2, 3].map(|number| member(number, here));
    let newcomer = Identity { node: NodeId(mix(4)), generation: 2000, ..former.identity };
    membership.met(liar, at(1));
    membership.met(honest, at(1));
    membership.learn(honest.identity.node, vec![honest, former], Vec::new(), at(2));
    let ghosts = (1000..1400).flat_map(|number| {
        let first = identity(number, here);
        [first, Identity { node: NodeId(mix(number + 1000)), generation: 2000, ..first }].map(alive)
    });
    membership.learn(liar.identity.node, std::iter::once(liar).chain(ghosts).collect(), Vec::new(), at(3));
    membership.learn(honest.identity.node, vec![honest, alive(newcomer)], Vec::new(), at(4));
    let head = Head { level: Level::Zone, from: newcomer.node, life: (2000, 0), to: me.node, purpose: Purpose::News };
    let mut answer = Draft::new(&head);
    answer.add(&Item::Member(alive(newcomer)));
    let answer = answer.finish();
    let mut calls = 0;
    for ms in (10..8000).step_by(10) {
        for living in [liar, honest] {
            membership.met(living, at(ms));
        }
        for (to, _) in membership.tick(at(ms)).datagrams {
            calls += u32::from(to == newcomer.addr);
            if to == newcomer.addr && calls > 1 {
                membership.datagram(newcomer.addr, &answer, at(ms));
            }
        }
    }
    assert!(membership.live().contains_key(&newcomer.node), "after {calls} calls");
}

/// Members that were made up are suspect all the time. Those without a store keep no store from
/// going where it is needed.
#[test]
fn suspects_without_a_store_keep_no_store_from_moving() {
    let mut node = node();
    let here = zone("here");
    let header = Header::new(256 * ChunkSize::MIN.bytes(), ChunkSize::MIN, 256).expect("a header");
    let (id, capacity_bytes) = (ImageId([1; 32]), 128 * ChunkSize::MIN.bytes());
    let subject = std::sync::Arc::new(Subject { image: id, names: "image".into(), header: header.encode() });
    let names = subject.names.clone();
    node.add_image(at(1), ImageConfig { id, names, header, origin: false, capacity_bytes, kept: None });
    let before = node.arc(id).expect("an arc");
    let record = |number: u64, origin: bool, arc: Arc| {
        signed(Record {
            node: identity(number, here).node,
            version: 1,
            progress: 0,
            subject: std::sync::Arc::clone(&subject),
            origin,
            arc,
            filled: Filled::default(),
            leaving: false,
            signature: Signature::default(),
        })
    };
    // Another store is to hold the same half, and nobody the other one.
    let records = vec![record(1, true, Arc::default()), record(2, false, before)];
    let members = vec![member(1, here), member(2, here)];
    node.handle(at(2), learned(Snapshot { members, records, ..Snapshot::default() }));
    for ms in 3..3000 {
        [1, 2].into_iter().for_each(|number| node.handle(at(ms), Input::Met(member(number, here))));
        let ghost = Member { state: State::Suspect, ..member(1000 + ms, here) };
        node.handle(at(ms), learned(Snapshot { members: vec![member(1, here), ghost], ..Snapshot::default() }));
        while node.poll().is_some() {}
    }
    assert_ne!(node.arc(id), Some(before));
}

/// News makes work for membership earlier than it was due. The timer that was set before is not
/// left over, however much is said.
#[test]
fn news_leaves_no_timers_behind() {
    let mut node = node();
    let here = zone("here");
    let mut most = 0;
    for ms in 1..3000 {
        node.handle(at(ms), Input::Met(member(ms % 50 + 1, here)));
        let suspect = Member { state: State::Suspect, ..member(ms % 40 + 1, here) };
        let said = vec![member(1000, here), suspect];
        node.handle(at(ms), learned(Snapshot { members: said, ..Snapshot::default() }));
        while node.poll().is_some() {}
        most = most.max(node.load().timers);
    }
    assert!(most < 10, "{most} timers");
}
