//! Hedges: a demand that is late goes to another node too, within bounds.

use crate::company::{Company, Says};
use crate::one_origin::{IMAGE, says};
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::fetch::Token;
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, Header};
use vfield_core::node::{Input, Node, Output};
use vfield_core::time::Time;
use vfield_core::tuning::{CHECK_EVERY, HEDGE_AFTER, HEDGES_MAX, LATE, STALL};
use vfield_core::wire::Priority;

const DATA: u64 = 100;
const OTHER: NodeId = NodeId(3);
const STEP: Duration = Duration::from_millis(10);

fn header() -> Header {
    Header::new(DATA * ChunkSize::MIN.bytes(), ChunkSize::MIN, DATA).expect("a header")
}

/// A node that knows two origins and has the top page.
struct Reader {
    node: Node,
    now: Time,
    /// True if all origins give signs of life.
    lively: bool,
}

impl Reader {
    fn new() -> Self {
        let (mut node, now) = crate::one_origin::joined(header());
        node.handle(now, says(OTHER, header(), 1));
        let top = Geometry::new(header()).top();
        node.handle(now, Input::Found { image: IMAGE, chunks: vec![top], zeros: Vec::new() });
        let mut reader = Self { node, now, lively: false };
        reader.requests();
        reader
    }

    /// The requests that it makes now: of whom, for which chunk.
    fn requests(&mut self) -> Vec<(NodeId, Chunk)> {
        let outputs: Vec<Output> = std::iter::from_fn(|| self.node.poll()).collect();
        let request = |output: &Output| match output {
            Output::Request { peer, chunk, .. } => Some((peer.node, *chunk)),
            _ => None,
        };
        outputs.iter().filter_map(request).collect()
    }

    fn read(&mut self, chunk: u64) -> Vec<(NodeId, Chunk)> {
        self.node.handle(self.now, Input::Read { token: Token(chunk), image: IMAGE, chunks: chunk..chunk + 1 });
        self.requests()
    }

    fn after(&mut self, wait: Duration) -> Vec<(NodeId, Chunk)> {
        let (end, mut all) = (self.now + wait, Vec::new());
        while self.now < end {
            self.now = self.now + STEP;
            if self.lively {
                for origin in [crate::one_origin::ORIGIN, OTHER] {
                    self.node.handle(self.now, Input::Progress(origin));
                }
            }
            self.node.handle(self.now, Input::Wake);
            all.extend(self.requests());
        }
        all
    }
}

/// The only request, for this chunk.
fn only(requests: &[(NodeId, Chunk)], chunk: u64) -> NodeId {
    let [(peer, asked)] = requests else { panic!("{requests:?}") };
    assert_eq!(*asked, Chunk(chunk));
    *peer
}

#[test]
fn a_demand_of_a_silent_peer_goes_to_another_once() {
    let mut reader = Reader::new();
    let first = only(&reader.read(5), 5);
    assert_eq!(reader.after(HEDGE_AFTER - STEP), []);
    let second = only(&reader.after(CHECK_EVERY + STEP), 5);
    assert_ne!(first, second);
    assert_eq!(reader.after(HEDGE_AFTER - 2 * CHECK_EVERY), [], "both are asked");
}

#[test]
fn a_peer_that_shows_signs_of_life_has_more_time() {
    let mut reader = Reader::new();
    reader.lively = true;
    let first = only(&reader.read(5), 5);
    assert_eq!(reader.after(LATE - STEP), []);
    assert_ne!(only(&reader.after(CHECK_EVERY + STEP), 5), first);
}

#[test]
fn few_hedges_are_under_way_at_once() {
    let mut reader = Reader::new();
    // With a third origin there is room for two requests of each chunk.
    reader.node.handle(reader.now, says(NodeId(4), header(), 1));
    let asked: usize = (0..6).map(|chunk| reader.read(chunk).len()).sum();
    assert_eq!(asked, 6);
    assert_eq!(reader.after(HEDGE_AFTER + 2 * CHECK_EVERY).len() as u64, HEDGES_MAX);
}

/// Answers that were late too give a silent peer more time: half of what they took beyond a stall.
#[test]
fn after_late_answers_a_demand_waits_for_longer() {
    let mut company = Company::settled(&[Says::origin(1), Says::origin(3)]);
    let late = company.read(5);
    (0..140).for_each(|_| {
        [1, 3].into_iter().for_each(|origin| company.give(Input::Progress(NodeId(origin))));
        company.after(STEP);
    });
    company.arrives(late[0], STEP);
    let begun = company.now;
    let first = company.read(6)[0];
    let (hedged, other) =
        company.passes(2 * LATE).into_iter().find(|(_, asked)| asked.chunk == Chunk(6)).expect("a hedge");
    assert_ne!(other.peer, first.peer);
    let expected = HEDGE_AFTER + (Duration::from_millis(1400) - STALL) / 2;
    let waited = hedged - begun;
    assert!(waited >= expected && waited <= expected + CHECK_EVERY + 2 * STEP, "{waited:?}, not {expected:?}");
}

/// Of peers that show signs of life one request in a hundred is hedged. Others wait until the peer
/// is given up: two seconds, and the time of the chunk at the least rate.
#[test]
fn late_answers_of_lively_peers_are_seldom_hedged() {
    let mut company = Company::settled(&[1, 3, 4, 5].map(Says::origin));
    let begun = company.now;
    let first = [5, 6].map(|chunk| company.read(chunk)[0]);
    assert_ne!(first[0].peer, first[1].peer);
    let mut again = Vec::new();
    while again.len() < 2 {
        [1, 3, 4, 5].into_iter().for_each(|origin| company.give(Input::Progress(NodeId(origin))));
        again.extend(company.passes(STEP).into_iter().map(|(now, _)| now - begun));
    }
    let given_up = LATE + Duration::from_millis(250);
    assert!(again[0] >= LATE && again[0] < given_up && again[1] >= given_up, "{again:?}");
}

#[test]
fn hedges_that_ended_make_room_for_others() {
    let mut company = Company::settled(&[Says::origin(1), Says::origin(3)]);
    for chunk in 0..2 * HEDGES_MAX {
        let first = company.read(chunk)[0];
        let hedge = company.after(HEDGE_AFTER + 2 * CHECK_EVERY);
        assert_eq!(hedge.len(), 1, "chunk {chunk}: {hedge:?}");
        company.arrives(hedge[0], STEP);
        company.refuse(first);
    }
}

#[test]
fn a_prefetch_is_not_hedged() {
    let mut reader = Reader::new();
    let (chunks, priority) = (5..6, Priority::ReadAhead);
    reader.node.handle(reader.now, Input::Prefetch { image: IMAGE, chunks, priority });
    only(&reader.requests(), 5);
    assert_eq!(reader.after(HEDGE_AFTER + 2 * CHECK_EVERY), [], "no reader waits");
}
