//! Repair beside a member that makes news all the time: stores move to bare places all the same.

use crate::one_origin::{IMAGE, ME, ORIGIN, identity, origin_says};
use crate::signed::{alive, keys, signed};
use std::ops::Range;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::Config;
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, Header};
use vfield_core::membership::{Member, State};
use vfield_core::node::{Commitment, ImageConfig, Input, Node, Output};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::time::Time;

const DATA: u64 = 100;
/// It holds the same as this node.
const TWIN: NodeId = NodeId(3);
/// It makes news all the time. Its place is worth least, so it is the first to move, and stays.
const RESTLESS: NodeId = NodeId(4);
const OTHERS: [NodeId; 3] = [ORIGIN, TWIN, RESTLESS];

fn header() -> Header {
    Header::new(DATA * ChunkSize::MIN.bytes(), ChunkSize::MIN, DATA).expect("a header")
}

fn store(node: NodeId, version: u64, arc: Arc) -> Record {
    signed(Record {
        node,
        version,
        progress: 0,
        subject: Subject { image: IMAGE, names: "image".into(), header: header().encode() }.into(),
        origin: false,
        arc,
        filled: Filled { from: 0, count: Geometry::new(header()).chunks() },
        leaving: false,
        signature: Signature::default(),
    })
}

/// A node whose store is of use elsewhere only, and members that answer it.
struct Bench {
    node: Node,
    others: [Node; 3],
    now: Time,
    /// True while no datagram arrives.
    silent: bool,
}

/// The news with which all others are suspects: the turn of this node comes, and they are not
/// buried yet.
const SUSPECTED: Range<u64> = 3..8;
const MINE: Arc = Arc { start: 0, length: 40 };

impl Bench {
    fn new() -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let others = OTHERS.map(|other| Node::new(identity(other), keys(other), Config::default(), other.0, now));
        let mut node = Node::new(identity(ME), keys(ME), Config::default(), 2, now);
        node.handle(now, origin_says(header(), 1));
        let capacity_bytes = MINE.length * ChunkSize::MIN.bytes();
        let kept = Some(Commitment { start: MINE.start, from: 0 });
        let (id, names) = (IMAGE, "image".into());
        node.add_image(now, ImageConfig { id, names, header: header(), origin: false, capacity_bytes, kept });
        node.handle(now, Input::Surveyed(IMAGE));
        let mut bench = Self { node, others, now, silent: false };
        let stores = vec![store(TWIN, 1, MINE), store(RESTLESS, 1, Arc { length: 10, ..MINE })];
        bench.hear(vec![alive(identity(TWIN)), alive(identity(RESTLESS))], stores);
        bench
    }

    fn hear(&mut self, members: Vec<Member>, records: Vec<Record>) {
        let snapshot = Snapshot { members, records, ..Snapshot::default() };
        self.node.handle(self.now, Input::Learned { from: ORIGIN, snapshot });
    }

    /// Lets a time pass, in which all members answer.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = (self.now + Duration::from_millis(10)).min(end);
            let mut nodes: Vec<&mut Node> = self.others.iter_mut().chain([&mut self.node]).collect();
            let mut datagrams = Vec::new();
            for node in &mut nodes {
                while node.next_wake().is_some_and(|at| at <= self.now) {
                    node.handle(self.now, Input::Wake);
                }
                let from = node.me().addr;
                datagrams.extend(std::iter::from_fn(|| node.poll()).filter_map(|output| match output {
                    Output::Datagram(to, bytes) => Some((from, to, bytes)),
                    _ => None,
                }));
            }
            for (from, to, bytes) in datagrams {
                if let Some(node) = nodes.iter_mut().find(|node| !self.silent && node.me().addr == to) {
                    node.handle(self.now, Input::Datagram(from, bytes));
                }
            }
        }
    }

    /// Has news ten times a second, and says after how many of them the store has moved.
    fn until_it_moves(&mut self, mut news: impl FnMut(&mut Self, u64)) -> Option<u64> {
        (1..100).find(|number| {
            news(self, *number);
            self.pass(Duration::from_millis(100));
            self.node.arc(IMAGE) != Some(MINE)
        })
    }
}

#[test]
fn a_store_moves_to_a_bare_place() {
    assert!(Bench::new().until_it_moves(|_, _| {}).is_some());
}

#[test]
fn a_member_that_is_suspected_all_the_time_keeps_no_store_from_moving() {
    let accuse = |bench: &mut Bench, _| {
        let known = *bench.others[2].myself();
        bench.hear(vec![Member { state: State::Suspect, ..known }], Vec::new());
    };
    assert!(Bench::new().until_it_moves(accuse).is_some());
}

#[test]
fn a_member_that_moves_all_the_time_keeps_no_other_store_from_moving() {
    let wander = |bench: &mut Bench, number| {
        let arc = Arc { start: number % 2, length: 10 };
        bench.hear(Vec::new(), vec![store(RESTLESS, 1 + number, arc)]);
    };
    assert!(Bench::new().until_it_moves(wander).is_some());
}

/// A room that is switched on is heard of bit by bit. If each store went by the few that it knew at
/// first, all would move at the same moment, to the same place.
#[test]
fn a_store_waits_for_those_that_it_hears_of_while_it_waits() {
    let room: Vec<NodeId> = (10..30).map(NodeId).collect();
    let moved = Bench::new().until_it_moves(|bench, number| {
        if number == 1 {
            let members = room.iter().map(|node| alive(identity(*node))).collect();
            bench.hear(members, room.iter().map(|node| store(*node, 1, Arc { length: 10, ..MINE })).collect());
        }
    });
    // They are worth less and go first, 0.3 s each.
    assert!(moved.is_some_and(|moved| moved > 3 * room.len() as u64), "after {moved:?} tenths of a second");
}

#[test]
fn a_suspicion_in_its_turn_keeps_a_store_from_moving_only_for_its_time() {
    let mut bench = Bench::new();
    let moved = bench.until_it_moves(|bench, number| {
        if number == SUSPECTED.start {
            // Without a sure origin and other sure stores, a move would lose chunks.
            let accused = bench.others.iter().map(|other| Member { state: State::Suspect, ..*other.myself() });
            bench.hear(accused.collect(), Vec::new());
        }
        let sure = bench.node.members().iter().filter(|member| member.state == "alive").count();
        assert!(!bench.silent || sure == 0, "{sure} are sure after {number}");
        assert_eq!(bench.node.members().len(), 1 + OTHERS.len(), "after {number}");
        bench.silent = SUSPECTED.contains(&number);
    });
    assert!(moved.is_some_and(|moved| moved >= SUSPECTED.end), "moved after {moved:?}");
}
