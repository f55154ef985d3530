//! A node that takes up an earlier process's store: found chunks are not requested, and only
//! present chunks are announced.

use crate::signed::{alive, keys};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::Token;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::node::{Commitment, ImageConfig, Input, Keep, Node, Notice, Output};
use vfield_core::placement::Ring;
use vfield_core::record::Record;
use vfield_core::speed::Transit;
use vfield_core::time::Time;

const IMAGE: ImageId = ImageId([7; 32]);

fn header() -> Header {
    let chunk = ChunkSize::MIN;
    Header::new(600 * chunk.bytes(), chunk, 600).expect("a header")
}

fn identity(node: u64) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, node as u8], 4000));
    Identity { addr, node: NodeId(node), generation: 1, zone: Zone::default() }
}

fn image(origin: bool, capacity: u64, kept: Option<Commitment>) -> ImageConfig {
    let capacity_bytes = capacity * ChunkSize::MIN.bytes();
    ImageConfig { id: IMAGE, names: "image".into(), header: header(), origin, capacity_bytes, kept }
}

/// A node beside an origin, which has everything.
struct Bench {
    node: Node,
    origin: Node,
    now: Time,
    /// Chunks in the shell's store.
    here: BTreeSet<Chunk>,
    asked: Vec<Chunk>,
    /// How many of these requests are for the store.
    for_store: usize,
    called_off: usize,
    committed: Vec<Commitment>,
    answered: Vec<Token>,
    filled: bool,
}

impl Bench {
    fn new(capacity: u64, kept: Option<Commitment>) -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let config = || Config { join_boost: 9, ..Config::default() };
        let mut origin = Node::new(identity(1), keys(NodeId(1)), config(), 1, now);
        origin.add_image(now, image(true, 0, None));
        let mut node = Node::new(identity(2), keys(NodeId(2)), config(), 2, now);
        node.handle(now, Input::Met(alive(identity(1))));
        node.handle(now, Input::Learned { from: NodeId(1), snapshot: origin.snapshot(&identity(2), &[]) });
        node.add_image(now, image(false, capacity, kept));
        let (here, asked, committed, answered) = Default::default();
        let (for_store, called_off, filled) = (0, 0, false);
        let mut bench = Self { node, origin, now, here, asked, for_store, called_off, committed, answered, filled };
        bench.settle(false);
        bench
    }

    /// A node whose store of 200 chunks is full.
    fn full() -> Self {
        let mut bench = Self::new(200, Some(Commitment { start: 0, from: 0 }));
        bench.input(Input::Surveyed(IMAGE), true);
        bench.pass(Duration::from_secs(5), true);
        assert!(bench.filled);
        bench
    }

    fn input(&mut self, input: Input, answers: bool) {
        self.node.handle(self.now, input);
        self.settle(answers);
    }

    /// Carries out the node's outputs, and checks its announcements.
    fn settle(&mut self, answers: bool) {
        loop {
            while self.node.next_wake().is_some_and(|at| at <= self.now) {
                self.node.handle(self.now, Input::Wake);
            }
            let Some(output) = self.node.poll() else { break };
            match output {
                Output::Request { request, chunk, keep, .. } => {
                    self.asked.push(chunk);
                    self.for_store += usize::from(keep == Keep::Stored);
                    if answers {
                        self.here.insert(chunk);
                        self.node.handle(
                            self.now,
                            Input::Arrived {
                                request,
                                waited: Duration::ZERO,
                                transit: Transit::default(),
                                zeros: Vec::new(),
                            },
                        );
                    }
                }
                Output::CancelRequest(..) => self.called_off += 1,
                Output::Committed(IMAGE, commitment) => self.committed.push(commitment),
                Output::Evict(IMAGE, chunk) => assert!(self.here.remove(&chunk), "{chunk} was not here"),
                Output::Datagram(_, bytes) => self.tell_origin(bytes),
                Output::Answer(token, Ok(())) => self.answered.push(token),
                Output::Notice(Notice::Filled(IMAGE)) => self.filled = true,
                _ => {}
            }
        }
        let (record, ring) = (self.record(), Ring::new(Geometry::new(header()).chunks()));
        for chunk in (0..ring.size()).map(Chunk) {
            let said =
                record.arc.contains(ring.place(chunk), ring.size()) && record.filled.contains(chunk, ring.size());
            assert!(!said || self.here.contains(&chunk), "{chunk} is said to be here");
        }
    }

    /// The origin is alive and announces it.
    fn tell_origin(&mut self, bytes: Vec<u8>) {
        self.origin.handle(self.now, Input::Datagram(identity(2).addr, bytes));
        while let Some(output) = self.origin.poll() {
            if let Output::Datagram(_, bytes) = output {
                self.node.handle(self.now, Input::Datagram(identity(1).addr, bytes));
            }
        }
    }

    /// Advances the time.
    fn pass(&mut self, time: Duration, answers: bool) {
        let end = self.now + time;
        while let Some(at) = self.node.next_wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.node.handle(self.now, Input::Wake);
            self.settle(answers);
        }
        self.now = end;
    }

    fn record(&self) -> Record {
        let records = self.node.snapshot(&identity(1), &[]).records;
        records.into_iter().find(|record| record.node == NodeId(2)).expect("it says something")
    }

    fn find(&mut self, chunks: Vec<Chunk>, answers: bool) {
        self.here.extend(&chunks);
        self.input(Input::Found { image: IMAGE, chunks, zeros: Vec::new() }, answers);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn only_missing_chunks_are_fetched(
        capacity in 1u64..700,
        (start, from) in (0u64..603, 0u64..603),
        lost in prop::collection::btree_set(0u64..603, 0..20),
        // The earlier store may have been larger, too.
        had in 1u64..=603,
        batch in 1usize..200,
    ) {
        let kept = Commitment { start, from };
        let mut bench = Bench::new(capacity, Some(kept));
        prop_assert_eq!(&bench.committed, &[kept]);
        bench.pass(Duration::from_secs(2), false);
        prop_assert!(bench.asked.is_empty(), "nothing is fetched while it is being looked");

        let (record, ring) = (bench.record(), Ring::new(603));
        prop_assert_eq!((record.arc.start, record.arc.length), (start, capacity.min(603)));
        let before = vfield_core::placement::Arc { start, length: had };
        let left = (0..603).filter(|n| before.contains(ring.place(Chunk(*n)), 603) && !lost.contains(n)).map(Chunk);
        let left: Vec<Chunk> = left.collect();
        for chunks in left.chunks(batch) {
            bench.find(chunks.to_vec(), false);
        }
        bench.pass(Duration::from_secs(1), false);
        prop_assert!(bench.asked.is_empty());

        bench.input(Input::Surveyed(IMAGE), true);
        bench.pass(Duration::from_secs(5), true);
        prop_assert!(bench.filled);
        let wanted: BTreeSet<Chunk> = (0..603).map(Chunk).filter(|c| record.arc.contains(ring.place(*c), 603)).collect();
        prop_assert!(wanted.is_subset(&bench.here));
        prop_assert!(bench.asked.iter().all(|chunk| !left.contains(chunk)), "{:?} were found", bench.asked);
        prop_assert_eq!(bench.node.images()[0].stored, wanted.len() as u64);
    }
}

#[test]
fn a_reader_goes_on_with_found_chunks_and_asks_no_peer() {
    let mut bench = Bench::new(603, Some(Commitment { start: 0, from: 0 }));
    // The page with its hash is requested first.
    bench.input(Input::Read { token: Token(1), image: IMAGE, chunks: 3..4 }, false);
    assert_eq!(bench.asked, [Chunk(602)]);
    bench.find(vec![Chunk(602), Chunk(600)], false);
    assert_eq!((bench.called_off, &bench.asked[1..]), (1, &[Chunk(3)][..]));
    bench.find(vec![Chunk(3)], false);
    assert_eq!((bench.called_off, bench.answered), (2, vec![Token(1)]));
}

#[test]
fn impossible_commitments_are_not_taken_up() {
    for kept in [Commitment { start: 603, from: 0 }, Commitment { start: 0, from: u64::MAX }] {
        let mut bench = Bench::new(100, Some(kept));
        assert_eq!(bench.committed.len(), 1);
        assert!(bench.committed[0].fits(603));
        bench.input(Input::Surveyed(IMAGE), true);
        bench.pass(Duration::from_secs(5), true);
        assert!(bench.filled);
    }
}

/// A disk loses chunks of a full store: those are fetched again, and nothing else is.
#[test]
fn lost_chunks_are_fetched_again() {
    let mut bench = Bench::full();
    let held = bench.here.clone();
    let lost: Vec<Chunk> = held.iter().copied().filter(|chunk| chunk.0 < 600).step_by(40).collect();
    assert!(lost.len() > 3);
    (bench.asked, bench.filled) = (Vec::new(), false);
    lost.iter().for_each(|chunk| assert!(bench.here.remove(chunk)));
    // A chunk that was lost before, or never here, changes nothing.
    let elsewhere = (0..600).map(Chunk).find(|chunk| !held.contains(chunk)).expect("a small store");
    bench.node.handle(bench.now, Input::Spoiled { image: IMAGE, chunks: vec![elsewhere] });
    bench.node.handle(bench.now, Input::Spoiled { image: IMAGE, chunks: lost.clone() });
    bench.node.handle(bench.now, Input::Spoiled { image: IMAGE, chunks: lost.clone() });
    bench.pass(Duration::from_secs(5), false);
    assert!(!bench.filled && bench.record().filled.count < 603);
    assert_eq!(bench.node.images()[0].stored, 200 - lost.len() as u64);
    bench.input(Input::AskerGone(vfield_core::fetch::ConnectionId(1)), false);
    let asked: BTreeSet<Chunk> = bench.asked.iter().copied().collect();
    assert_eq!(asked, lost.iter().copied().collect(), "only what is missing is asked for");
    bench.find(lost, true);
    bench.pass(Duration::from_secs(5), true);
    assert!(bench.filled && bench.here == held);
    assert_eq!((bench.record().filled.count, bench.node.images()[0].stored), (603, 200));
}

/// A disk does not deliver chunks of a full store: they are read as others send them, and the store
/// keeps its share.
#[test]
fn withheld_chunks_are_read_from_others() {
    let mut bench = Bench::full();
    let held: Vec<Chunk> = bench.here.iter().copied().filter(|chunk| chunk.0 < 600).collect();
    let (first, second) = (held[0], held[1]);
    let read = |token, chunk: Chunk| Input::Read { token: Token(token), image: IMAGE, chunks: chunk.0..chunk.0 + 1 };
    let counts = |bench: &Bench| (bench.node.images()[0].stored, bench.node.images()[0].transient);
    let (_, pages) = counts(&bench);
    (bench.asked, bench.answered) = (Vec::new(), Vec::new());
    bench.input(Input::Withheld { image: IMAGE, chunks: vec![first, second] }, true);
    bench.pass(Duration::from_secs(5), true);
    assert!(bench.asked.is_empty() && bench.record().filled.count == 603, "nothing is filled anew");
    // It passes through once for all readers.
    bench.input(read(1, first), true);
    bench.input(read(2, first), true);
    assert_eq!((&bench.asked[..], &bench.answered[..]), (&[first][..], &[Token(1), Token(2)][..]));
    assert_eq!(counts(&bench), (200, pages + 1));
    // A reader that waits has it once the disk delivers.
    bench.input(read(3, second), false);
    assert_eq!((bench.asked.len(), bench.answered.len()), (2, 2));
    bench.input(Input::Released { image: IMAGE, chunks: vec![first, second] }, false);
    assert_eq!((bench.answered.last(), bench.called_off, counts(&bench)), (Some(&Token(3)), 1, (200, pages)));
    bench.input(Input::Released { image: IMAGE, chunks: vec![first, second] }, false);
    // A chunk that is not to be stored needs no place on that disk.
    let elsewhere = (0..600).map(Chunk).find(|chunk| !held.contains(chunk)).expect("a small store");
    bench.input(read(4, elsewhere), true);
    assert!(bench.here.contains(&elsewhere));
    bench.input(Input::Withheld { image: IMAGE, chunks: vec![elsewhere] }, true);
    assert!(!bench.here.contains(&elsewhere));
    bench.here.insert(elsewhere);
    bench.input(Input::Released { image: IMAGE, chunks: vec![elsewhere] }, true);
    assert!(!bench.here.contains(&elsewhere));
    bench.input(read(5, elsewhere), true);
    assert_eq!((bench.asked.len(), bench.answered.len()), (4, 5));
}

/// A disk is full before its store is: the store is as large as what it has, and rests.
#[test]
fn a_store_that_takes_no_more_is_smaller() {
    let mut bench = Bench::new(200, Some(Commitment { start: 0, from: 0 }));
    let (record, ring) = (bench.record(), Ring::new(603));
    let wanted = (0..603).map(Chunk).filter(|chunk| record.arc.contains(ring.place(*chunk), 603));
    let first: Vec<Chunk> = wanted.take(50).collect();
    bench.find(first, false);
    assert_eq!(bench.node.images()[0].stored, 50);
    bench.input(Input::Full(IMAGE), true);
    bench.input(Input::Surveyed(IMAGE), true);
    bench.pass(Duration::from_secs(30), true);
    let image = bench.node.images().remove(0);
    assert!(bench.filled && image.filled);
    assert_eq!(image.capacity, 50);
    assert!((25..=50).contains(&image.stored), "{}", image.stored);
    assert!(bench.record().arc.length <= 50 && bench.record().filled.count == 603, "{:?}", bench.record());
    // A store that is full of what it wants stays so.
    let asked = bench.asked.len();
    bench.input(Input::Full(IMAGE), true);
    bench.pass(Duration::from_secs(30), true);
    assert_eq!((bench.asked.len(), bench.node.images()[0].stored), (asked, image.stored));

    // With room it is what it was to be, and keeps what it has.
    assert!(bench.node.may_grow(IMAGE) && !bench.origin.may_grow(ImageId([8; 32])));
    let here = bench.here.clone();
    bench.input(Input::Roomy(IMAGE), true);
    bench.pass(Duration::from_secs(30), true);
    let image = bench.node.images().remove(0);
    assert!(image.filled && bench.here.is_superset(&here));
    assert!(bench.asked[asked..].iter().all(|chunk| !here.contains(chunk)), "fetched twice");
    assert_eq!((bench.record().arc, image.capacity, image.stored), (record.arc, 200, 200));
    let asked = bench.asked.len();
    bench.input(Input::Roomy(IMAGE), true);
    assert!(bench.node.images()[0].filled && bench.asked.len() == asked, "it was not full");
}

/// As long as the survey goes on nothing is filled, so the arc stays as long as it was.
#[test]
fn a_store_that_takes_no_more_is_sent_nothing_during_its_survey() {
    let mut bench = Bench::new(200, Some(Commitment { start: 0, from: 0 }));
    let read = |token, chunk: Chunk| Input::Read { token: Token(token), image: IMAGE, chunks: chunk.0..chunk.0 + 1 };
    let (arc, ring) = (bench.record().arc, Ring::new(603));
    let wanted: Vec<Chunk> = (0..600).map(Chunk).filter(|chunk| arc.contains(ring.place(*chunk), 603)).collect();
    bench.input(read(1, wanted[0]), true);
    let for_store = bench.for_store;
    assert!(for_store > 0 && bench.answered == [Token(1)]);
    bench.input(Input::Full(IMAGE), true);
    bench.input(read(2, wanted[100]), true);
    assert_eq!((bench.for_store, &bench.answered[..]), (for_store, &[Token(1), Token(2)][..]));
}
