//! A member with false claims: its store counts once it was seen to hold them, and no more once it
//! was caught.

use crate::one_origin::{IMAGE, ME, ORIGIN, identity};
use crate::signed::{alive, keys, signed};
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::{RequestId, Token};
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, Header};
use vfield_core::inquiry::Purpose;
use vfield_core::membership::Member;
use vfield_core::misdeed::Misdeed;
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::wire::Refusal;

const DATA: u64 = 600;
const BOASTER: NodeId = NodeId(3);

fn header() -> Header {
    Header::new(DATA * ChunkSize::MIN.bytes(), ChunkSize::MIN, DATA).expect("a header")
}

fn member(node: NodeId) -> Member {
    alive(identity(node))
}

/// A record of an origin, or of a store that claims to have everything.
fn record(node: NodeId, origin: bool) -> Record {
    let size = Geometry::new(header()).chunks();
    let length = if origin { 0 } else { size };
    signed(Record {
        node,
        version: 1,
        progress: 0,
        subject: Subject { image: IMAGE, names: "image".into(), header: header().encode() }.into(),
        origin,
        arc: Arc { start: 0, length },
        filled: Filled { from: 0, count: length },
        leaving: false,
        signature: Signature::default(),
    })
}

/// A node without a store, beside the two.
struct Bench {
    node: Node,
    /// Two honest members.
    others: [Node; 2],
    now: Time,
    tokens: u64,
    /// Whether the boaster delivers data after all.
    delivers: bool,
    /// How it refuses data if not.
    denies: fn(RequestId) -> Input,
    /// The first chunk of the image's end that is zeros, of which its origin learns only when it
    /// is about to ask for one.
    holes_from: u64,
    boaster_asked: usize,
    /// What the boaster says of its store on a connection.
    claim: Record,
}

impl Bench {
    /// Of a reader.
    fn new() -> Self {
        Self::of(false)
    }

    /// Of a reader, or of a second origin.
    fn of(origin: bool) -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let mut node = Node::new(identity(ME), keys(ME), Config::default(), 2, now);
        let others =
            [ORIGIN, BOASTER].map(|other| Node::new(identity(other), keys(other), Config::default(), other.0, now));
        let (members, records) = ([ORIGIN, BOASTER].map(member), vec![record(ORIGIN, true), record(BOASTER, false)]);
        let snapshot = Snapshot { members: members.into(), records, ..Snapshot::default() };
        node.handle(now, Input::Learned { from: ORIGIN, snapshot });
        let (id, names) = (IMAGE, "image".into());
        let image = ImageConfig { id, names, header: header(), origin, capacity_bytes: 0, kept: None };
        node.add_image(now, image);
        let claim = record(BOASTER, false);
        let (delivers, denies, holes_from) = (false, not_held, DATA);
        Self { node, others, now, tokens: 0, delivers, denies, holes_from, boaster_asked: 0, claim }
    }

    /// Advances the time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = (self.now + Duration::from_millis(10)).min(end);
            self.settle();
        }
    }

    fn settle(&mut self) {
        let mut datagrams = Vec::new();
        loop {
            for node in self.others.iter_mut().chain([&mut self.node]) {
                while node.next_wake().is_some_and(|at| at <= self.now) {
                    node.handle(self.now, Input::Wake);
                }
            }
            for other in &mut self.others {
                let from = other.me().addr;
                let said = std::iter::from_fn(|| other.poll());
                datagrams.extend(said.filter_map(|output| match output {
                    Output::Datagram(to, bytes) => Some((from, to, bytes)),
                    _ => None,
                }));
            }
            while let Some(output) = self.node.poll() {
                match output {
                    Output::Datagram(to, bytes) => datagrams.push((identity(ME).addr, to, bytes)),
                    Output::Request { request, chunk, .. } if (self.holes_from..DATA).contains(&chunk.0) => {
                        let zeros = std::iter::once(chunk.0..DATA).collect();
                        self.node.handle(self.now, Input::Found { image: IMAGE, chunks: Vec::new(), zeros });
                        self.node.handle(self.now, Input::Lost(request));
                    }
                    Output::Request { request, peer, chunk, .. } => {
                        let input = self.answer(peer.node, request, chunk);
                        self.node.handle(self.now, input);
                    }
                    Output::Sync(peer) if peer.node == BOASTER => self.tell(BOASTER, self.claim.clone()),
                    _ => {}
                }
            }
            if datagrams.is_empty() {
                break;
            }
            for (from, to, bytes) in datagrams.drain(..) {
                let nodes = self.others.iter_mut().chain([&mut self.node]);
                nodes.filter(|node| node.me().addr == to).for_each(|node| {
                    node.handle(self.now, Input::Datagram(from, bytes.clone()));
                });
            }
        }
    }

    fn answer(&mut self, peer: NodeId, request: RequestId, chunk: Chunk) -> Input {
        self.boaster_asked += usize::from(peer == BOASTER);
        if peer == BOASTER && chunk.0 < DATA && !self.delivers {
            (self.denies)(request)
        } else {
            Input::Arrived { request, waited: Duration::ZERO, transit: Transit::default(), zeros: Vec::new() }
        }
    }

    fn inquire(&mut self) {
        self.node.handle(self.now, Input::Inquire { times: 1, purpose: Purpose::Look });
        self.settle();
    }

    /// The boaster's store has another first chunk, and is as full as before.
    fn moves(&mut self, version: u64) {
        let mut moved = record(BOASTER, false);
        (moved.version, moved.filled.from) = (version + 1, version);
        self.tell(BOASTER, signed(moved));
    }

    /// A member says something about the boaster's store.
    fn tell(&mut self, from: NodeId, record: Record) {
        let snapshot = Snapshot { members: vec![member(from)], records: vec![record], ..Snapshot::default() };
        self.node.handle(self.now, Input::Learned { from, snapshot });
    }

    fn read(&mut self, chunks: std::ops::Range<u64>) {
        for chunk in chunks {
            self.tokens += 1;
            let (token, chunks) = (Token(self.tokens), chunk..chunk + 1);
            self.node.handle(self.now, Input::Read { token, image: IMAGE, chunks });
            self.settle();
        }
    }

    /// The node's view of the coverage: as announced, and as it verified.
    fn covered(&self) -> (bool, bool) {
        (self.node.images()[0].coverage.multiplicity_min > 0, self.node.is_covered(1))
    }
}

fn not_held(request: RequestId) -> Input {
    Input::Refused(request, Refusal::NotHeld)
}

#[test]
fn a_peer_with_false_claims_does_not_count() {
    let mut bench = Bench::new();
    assert!(Geometry::new(header()).is_data(Chunk(DATA - 1)));
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.covered(), (true, false), "nothing was seen so far");
    // Others may have invented its claim, until it says the same itself.
    bench.read(0..100);
    assert_eq!((bench.boaster_asked >= 32, bench.covered()), (true, (false, false)));
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.covered(), (true, false));
    bench.read(100..200);
    assert_eq!(bench.covered(), (false, false));
    // It is asked again after a while, since stores move; it counts once it has delivered.
    bench.pass(Duration::from_secs(100));
    assert_eq!(bench.covered(), (false, false));
    bench.delivers = true;
    bench.read(200..400);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.covered(), (true, false), "the first third was not seen");
    bench.inquire();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.covered(), (true, true));
}

#[test]
fn reads_of_the_whole_image_verify_a_claim() {
    let mut bench = Bench::new();
    bench.delivers = true;
    bench.read(0..DATA - 1);
    // The origin delivered about every other chunk.
    assert_eq!(bench.covered(), (true, true));
}

#[test]
fn a_question_for_coverage_verifies_a_claim_with_a_few_checks() {
    let mut bench = Bench::new();
    bench.delivers = true;
    bench.pass(Duration::from_secs(2));
    assert_eq!((bench.covered(), bench.boaster_asked), ((true, false), 0), "nobody asked");
    bench.inquire();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.covered(), (true, true));
    // Eight parts, and pages of hashes.
    assert!((8..=16).contains(&bench.boaster_asked), "{}", bench.boaster_asked);
    bench.pass(Duration::from_secs(300));
    assert!(bench.boaster_asked <= 16, "it is verified, and the question was long ago");
}

#[test]
fn a_holder_of_nothing_is_never_verified_and_seldom_asked() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.inquire();
        bench.pass(Duration::from_secs(30));
        assert!(!bench.covered().1);
    }
    // Sixteen at most at once, then a pause that grows to a minute.
    assert!(bench.boaster_asked <= 16 * 10, "{}", bench.boaster_asked);
}

/// It is busy, sends the node elsewhere, sends unusable bytes, or hangs up: none of that is a
/// lie, and none is asked for again at once.
#[test]
fn a_holder_that_evades_checks_is_seldom_asked() {
    let evasions: [fn(RequestId) -> Input; 5] = [
        |request| Input::Refused(request, Refusal::Busy),
        |request| Input::Refused(request, Refusal::SourceChanged),
        |request| Input::Redirected(request, ORIGIN),
        Input::Unusable,
        Input::Lost,
    ];
    for (at, denies) in evasions.into_iter().enumerate() {
        let mut bench = Bench::new();
        bench.denies = denies;
        for _ in 0..10 {
            bench.inquire();
            bench.pass(Duration::from_secs(30));
            assert!(!bench.covered().1);
        }
        // Sixteen at most at once, then a pause that grows to a minute.
        assert!(bench.boaster_asked <= 16 * 12, "evasion {at}: {}", bench.boaster_asked);
        bench.delivers = true;
        bench.pass(Duration::from_secs(60));
        bench.inquire();
        bench.pass(Duration::from_secs(1));
        assert!(bench.covered().1, "evasion {at}: it delivers now");
    }
}

#[test]
fn an_origin_verifies_claims_by_itself_and_goes_on() {
    let mut bench = Bench::of(true);
    bench.delivers = true;
    // Readers need the links now: one check in 4 s.
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.covered(), (true, false));
    assert!((5..=6).contains(&bench.boaster_asked), "{}", bench.boaster_asked);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.covered(), (true, true));
    let first = bench.boaster_asked;
    assert!((8..=9).contains(&first), "{first}");
    bench.pass(Duration::from_secs(640));
    let later = bench.boaster_asked - first;
    assert!((9..=11).contains(&later), "one in 64 s: {later}");
    // A store that was lost is found out.
    bench.delivers = false;
    bench.pass(Duration::from_secs(65));
    assert!(!bench.covered().1);
}

#[test]
fn an_origin_that_is_asked_verifies_claims_at_once() {
    let mut bench = Bench::of(true);
    bench.delivers = true;
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.covered(), (true, false));
    bench.inquire();
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.covered(), (true, true));
}

/// An image that is mostly holes: a check that ends before it was sent is no evasion.
#[test]
fn a_hole_says_nothing_about_its_holder() {
    let mut bench = Bench::of(true);
    (bench.delivers, bench.holes_from) = (true, 10);
    bench.pass(Duration::from_millis(100));
    bench.inquire();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.covered(), (true, true));
}

/// `watch vfield status` in a field whose claims change all the time.
#[test]
fn questions_without_end_cost_a_small_share_of_the_link() {
    let mut bench = Bench::new();
    bench.delivers = true;
    for tenth in 1..=600 {
        bench.moves(tenth);
        if tenth % 10 == 0 {
            bench.inquire();
        }
        bench.pass(Duration::from_millis(100));
    }
    // A 128th of 100 Mbit/s for a minute, and of the four seconds before.
    let most = 64 * 12_500_000 / 128 / ChunkSize::MIN.bytes() as usize;
    assert!((most / 2..=most).contains(&bench.boaster_asked), "{} checks, not {most}", bench.boaster_asked);
}

#[test]
fn questions_without_end_verify_nothing_twice() {
    let mut bench = Bench::new();
    bench.delivers = true;
    for _ in 0..300 {
        bench.inquire();
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.covered(), (true, true));
    // Eight parts, and pages of hashes.
    assert!(bench.boaster_asked <= 16, "{}", bench.boaster_asked);
}

#[test]
fn a_store_that_nobody_asks_any_more_counts_again_after_a_while() {
    let mut bench = Bench::new();
    bench.read(0..200);
    assert_eq!(bench.covered(), (false, false));
    bench.pass(Duration::from_secs(700));
    bench.delivers = true;
    bench.inquire();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.covered(), (true, true));
}

/// Progress is not signed, so another member may have invented it.
#[test]
fn nobody_is_doubted_for_what_others_say_of_it() {
    let mut bench = Bench::new();
    bench.claim.filled.count = 0;
    let state = |bench: &Bench| bench.node.members().iter().find(|view| view.identity.node == BOASTER).unwrap().state;
    for lie in 1..=10 {
        bench.tell(ORIGIN, Record { progress: lie, ..record(BOASTER, false) });
        bench.read(lie * 50 - 50..lie * 50);
        assert_eq!(state(&bench), "alive", "lie {lie}");
        bench.pass(Duration::from_secs(1));
    }
    assert!(!bench.covered().0);
    let refused = bench.node.misdeeds().of(Misdeed::FalseClaims);
    assert!((32..40).contains(&refused), "lies were believed {refused} times");
    // A later version is signed, but for its progress.
    bench.tell(ORIGIN, signed(Record { version: 2, ..record(BOASTER, false) }));
    assert!(!bench.covered().0);
    // Its own word counts.
    bench.claim = signed(Record { version: 2, ..record(BOASTER, false) });
    bench.delivers = true;
    bench.pass(Duration::from_secs(30));
    assert_eq!((bench.covered().0, state(&bench)), (true, "alive"));
}
