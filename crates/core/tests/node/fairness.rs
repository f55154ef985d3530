//! Fairness: one client costs the others no more than its share. Local readers go before peers,
//! abandoned reads are not requested, and useless requests grow rare.

use crate::signed::{alive, keys};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::{Asker, ConnectionId, RequestId, Token};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::reach::Reach;
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::wire::Priority;

const IMAGE: ImageId = ImageId([7; 32]);
/// Chunks of data; pages come after them.
const DATA: u64 = 30_000;
/// Requests that a peer's connection may have open, as the shell allows.
const OPEN_MAX: u64 = 1024;

fn identity(node: u64) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, node as u8], 4000));
    Identity { addr, node: NodeId(node), generation: 1, zone: Zone::default() }
}

fn image(origin: bool) -> ImageConfig {
    let header = Header::new(DATA * ChunkSize::MIN.bytes(), ChunkSize::MIN, DATA).expect("a header");
    ImageConfig { id: IMAGE, names: "image".into(), header, origin, capacity_bytes: 0, kept: None }
}

/// A node without a store, beside a live origin whose answers the bench makes.
struct Bench {
    node: Node,
    origin: Node,
    now: Time,
    /// Requests that were not answered yet.
    open: VecDeque<(RequestId, Chunk)>,
    asked: usize,
    answered: BTreeSet<Token>,
    served: usize,
    refused: usize,
}

impl Bench {
    fn new() -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let mut origin = Node::new(identity(1), keys(NodeId(1)), Config::default(), 1, now);
        origin.add_image(now, image(true));
        let mut node = Node::new(identity(2), keys(NodeId(2)), Config::default(), 2, now);
        node.handle(now, Input::Met(alive(identity(1))));
        node.handle(now, Input::Learned { from: NodeId(1), snapshot: origin.snapshot(&identity(2), &[]) });
        node.add_image(now, image(false));
        let (open, answered) = Default::default();
        let mut bench = Self { node, origin, now, open, asked: 0, answered, served: 0, refused: 0 };
        bench.settle();
        bench
    }

    fn input(&mut self, input: Input) {
        self.node.handle(self.now, input);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            while self.node.next_wake().is_some_and(|at| at <= self.now) {
                self.node.handle(self.now, Input::Wake);
            }
            let Some(output) = self.node.poll() else { return };
            match output {
                Output::Request { request, chunk, .. } => {
                    self.asked += 1;
                    assert!(self.asked < 100_000, "it asks without an end");
                    self.open.push_back((request, chunk));
                }
                Output::Datagram(_, bytes) => self.tell_origin(bytes),
                Output::Answer(token, Ok(())) => drop(self.answered.insert(token)),
                Output::Serve(_) => self.served += 1,
                Output::Refuse(..) => self.refused += 1,
                _ => {}
            }
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

    /// Answers the oldest requests, `answer` saying how; false if there were none.
    fn answer(&mut self, count: usize, answer: impl Fn(RequestId) -> Input) -> bool {
        let some = !self.open.is_empty();
        for _ in 0..count {
            self.now = self.now + Duration::from_micros(100);
            let Some((request, _)) = self.open.pop_front() else { break };
            self.input(answer(request));
        }
        some
    }

    /// Advances the time, answering at once.
    fn pass(&mut self, time: Duration, answer: impl Fn(RequestId) -> Input + Copy) {
        let end = self.now + time;
        loop {
            while self.answer(1, answer) {}
            let Some(at) = self.node.next_wake().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.input(Input::Wake);
        }
        self.now = self.now.max(end);
    }

    /// A peer's connection asks for as much as it may, as urgently as can be.
    fn ask_for_much(&mut self, connection: u64) {
        let first = connection * OPEN_MAX % DATA;
        for request in 0..OPEN_MAX {
            let asker = Asker { connection: ConnectionId(connection), request, reach: Reach::READER };
            let chunk = Chunk((first + request) % DATA);
            self.input(Input::Asked { asker, image: IMAGE, chunk, priority: Priority::Demand });
        }
    }
}

fn arrived(request: RequestId) -> Input {
    Input::Arrived { request, waited: Duration::ZERO, transit: Transit::default(), zeros: Vec::new() }
}

#[test]
fn useless_requests_grow_rare() {
    let mut bench = Bench::new();
    bench.input(Input::Read { token: Token(1), image: IMAGE, chunks: 5..6 });
    bench.pass(Duration::from_secs(20), Input::Unusable);
    assert!((15..=40).contains(&bench.asked), "{} requests in 20 s", bench.asked);
    // Once it can be used the reader goes on, within the longest pause.
    bench.pass(Duration::from_millis(1500), arrived);
    assert!(bench.answered.contains(&Token(1)));
}

#[test]
fn a_reader_goes_before_the_wishes_of_peers() {
    let mut bench = Bench::new();
    (1..=24).for_each(|connection| bench.ask_for_much(connection));
    let before = bench.asked;
    bench.input(Input::Read { token: Token(1), image: IMAGE, chunks: 29_999..30_000 });
    let mut answers = 0;
    while !bench.answered.contains(&Token(1)) {
        assert!(bench.answer(1, arrived), "nothing is under way");
        answers += 1;
    }
    // The chunk and its pages, behind the requests under way: one window, over all peers.
    let window = (Config::default().window_bytes / ChunkSize::MIN.bytes()) as usize;
    assert!(answers <= window + 3, "{answers} answers, {before} requests before");
}

#[test]
fn abandoned_reads_are_not_requested() {
    let mut bench = Bench::new();
    (1..=8).for_each(|connection| bench.ask_for_much(connection));
    let before = bench.asked;
    for request in 0..OPEN_MAX {
        bench.input(Input::CancelAsked(ConnectionId(1), request));
    }
    assert_eq!(bench.refused as u64, OPEN_MAX, "each request has its answer");
    (2..=8).for_each(|connection| bench.input(Input::AskerGone(ConnectionId(connection))));
    bench.pass(Duration::from_secs(5), arrived);
    assert_eq!((bench.asked, bench.served), (before, 0), "only what was under way");
    assert_eq!(bench.node.images()[0].transient, before as u64);
}

/// A reader may give up while an answer that could not be used keeps its chunk waiting.
#[test]
fn a_pause_ends_with_its_fetch() {
    let mut bench = Bench::new();
    let before = bench.node.load().timers;
    for token in 0..100 {
        bench.input(Input::Read { token: Token(token), image: IMAGE, chunks: 5..6 });
        assert!(bench.answer(1, Input::Unusable));
        bench.input(Input::CancelRead(Token(token)));
    }
    let load = bench.node.load();
    assert!(load.fetches == 0 && load.timers <= before + 1, "{load:?}, {before} timers before");
}

/// Behind a full window a peer may ask and cancel as often as it likes.
#[test]
fn cancelled_requests_leave_no_place_in_line() {
    let mut bench = Bench::new();
    (1..=2).for_each(|connection| bench.ask_for_much(connection));
    let before = bench.node.load().lines;
    for request in 0..OPEN_MAX {
        let asker = Asker { connection: ConnectionId(3), request, reach: Reach::READER };
        bench.input(Input::Asked { asker, image: IMAGE, chunk: Chunk(DATA - 1), priority: Priority::Demand });
        bench.input(Input::CancelAsked(ConnectionId(3), request));
    }
    assert_eq!(bench.node.load().lines, before);
}

/// A chunk that both a peer and a local reader want is requested even if one of them goes.
#[test]
fn a_reader_keeps_what_a_peer_no_longer_wants() {
    let mut bench = Bench::new();
    bench.ask_for_much(1);
    bench.input(Input::Read { token: Token(1), image: IMAGE, chunks: 1500..1501 });
    bench.input(Input::Prefetch { image: IMAGE, chunks: 1501..1502, priority: Priority::ReadAhead });
    bench.input(Input::AskerGone(ConnectionId(1)));
    bench.pass(Duration::from_secs(5), arrived);
    assert!(bench.answered.contains(&Token(1)));
    bench.input(Input::Read { token: Token(2), image: IMAGE, chunks: 1501..1502 });
    assert!(bench.answered.contains(&Token(2)), "it was read ahead");
}
