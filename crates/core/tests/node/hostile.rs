//! A core with arbitrary inputs in any order: it does not panic, and equal inputs give equal
//! outputs.

use crate::signed::{keys, said, signed};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::{Asker, ConnectionId, RequestId, Token};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::membership::State;
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::placement::{Arc, Filled};
use vfield_core::reach::Reach;
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::wire::{Priority, Refusal};

const ME: u64 = 3;
const DATA: u64 = 600;

/// Something that happens; numbers are brought into range, or just outside of it, when it does.
#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Datagram(Vec<u8>),
    /// A datagram that a member really sent, with one byte changed or not.
    Gossip(usize, Option<(usize, u8)>),
    Met(u64, u64),
    Learned(Vec<(u64, u64, u32, u8)>, Vec<Claim>),
    Read(u8, u64, u64),
    CancelRead(u64),
    Prefetch(u8, u64, u64),
    Asked(u64, u64, u64, u8, u64),
    CancelAsked(u64, u64),
    AskerGone(u64),
    /// An answer of some kind to a request that is open, or to one that never was.
    Answer(usize, u8, u64),
    Progress(u64),
    Broken(u64),
    Misbehaved(u64),
    /// An image goes.
    Drop(u8),
    /// The image is added, again or still.
    Add(u8),
    Leave,
    Gone,
}

#[derive(Debug, Clone)]
struct Claim {
    node: u64,
    version: u64,
    image: u8,
    arc: (u64, u64),
    filled: (u64, u64),
    origin: bool,
    leaving: bool,
    sound: bool,
    progress: u64,
    genuine: bool,
}

fn claim() -> impl Strategy<Value = Claim> {
    let extreme = || prop_oneof![0u64..700, Just(603), any::<u64>()];
    let numbers = ((0u64..7), extreme(), 0u8..3, (extreme(), extreme()), (extreme(), extreme()));
    let flags = (prop::bool::weighted(0.9), extreme(), prop::bool::weighted(0.8));
    (numbers, any::<(bool, bool)>(), flags).prop_map(
        |((node, version, image, arc, filled), (origin, leaving), (sound, progress, genuine))| Claim {
            node,
            version,
            image,
            arc,
            filled,
            origin,
            leaving,
            sound,
            progress,
            genuine,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0u64..7;
    let generation = || prop_oneof![0u64..4, Just(u64::MAX)];
    let member = || (node(), generation(), prop_oneof![Just(0), any::<u32>()], 0u8..4);
    prop_oneof![
        6 => prop_oneof![0u64..2_000, 0u64..3_000_000, Just(100_000_000_000)].prop_map(Step::Pass),
        1 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Step::Datagram),
        3 => (any::<usize>(), prop::option::of((any::<usize>(), any::<u8>()))).prop_map(|(at, change)| Step::Gossip(at, change)),
        2 => (node(), generation()).prop_map(|(node, generation)| Step::Met(node, generation)),
        3 => (prop::collection::vec(member(), 0..5), prop::collection::vec(claim(), 0..5)).prop_map(|(m, r)| Step::Learned(m, r)),
        4 => (0u8..4, 0u64..610, 1u64..20).prop_map(|(image, start, length)| Step::Read(image, start, length)),
        1 => (0u64..40).prop_map(Step::CancelRead),
        2 => (0u8..4, 0u64..610, 0u64..40).prop_map(|(image, start, length)| Step::Prefetch(image, start, length)),
        4 => (0u64..4, 0u64..40, prop_oneof![0u64..5, any::<u64>(), u64::MAX - 3..=u64::MAX], 0u8..4, prop_oneof![0u64..610, any::<u64>()])
            .prop_map(|(connection, request, reach, image, chunk)| Step::Asked(connection, request, reach, image, chunk)),
        1 => (0u64..4, 0u64..40).prop_map(|(connection, request)| Step::CancelAsked(connection, request)),
        1 => (0u64..4).prop_map(Step::AskerGone),
        12 => (any::<usize>(), 0u8..12, node()).prop_map(|(at, kind, node)| Step::Answer(at, kind, node)),
        1 => node().prop_map(Step::Progress),
        1 => node().prop_map(Step::Broken),
        1 => node().prop_map(Step::Misbehaved),
        1 => (0u8..4).prop_map(Step::Drop),
        1 => (0u8..3).prop_map(Step::Add),
        1 => prop::bool::weighted(0.05).prop_map(|leave| if leave { Step::Leave } else { Step::Pass(1) }),
        1 => prop::bool::weighted(0.05).prop_map(|gone| if gone { Step::Gone } else { Step::Pass(1) }),
    ]
}

fn state_of(number: u8) -> State {
    [State::Alive, State::Suspect, State::Down, State::Left][usize::from(number)]
}

fn identity(node: u64, generation: u64) -> Identity {
    // Two of the nodes claim one address.
    let addr = SocketAddr::from(([198, 18, 0, 1 + (node % 6) as u8], 4000));
    Identity { addr, node: NodeId(node), generation, zone: Zone::default() }
}

fn header(image: u8) -> Header {
    let populated = if image == 1 { DATA / 10 } else { DATA };
    Header::new(DATA * ChunkSize::MIN.bytes(), ChunkSize::MIN, populated).expect("a header")
}

fn record(claim: &Claim) -> Record {
    let record = Record {
        node: NodeId(claim.node),
        version: claim.version,
        progress: claim.progress,
        subject: Subject {
            image: ImageId([claim.image; 32]),
            names: if claim.sound { "image".into() } else { "\0".into() },
            header: header(claim.image).encode(),
        }
        .into(),
        origin: claim.origin,
        arc: Arc { start: claim.arc.0, length: claim.arc.1 },
        filled: Filled { from: claim.filled.0, count: claim.filled.1 },
        leaving: claim.leaving,
        signature: Signature::default(),
    };
    if claim.genuine { signed(record) } else { record }
}

/// An image of the core under test.
fn config_of(image: u8) -> ImageConfig {
    let (origin, chunks) = [(false, 200), (false, 30), (true, 0)][usize::from(image)];
    let (id, header) = (ImageId([image; 32]), header(image));
    let capacity_bytes = chunks * ChunkSize::MIN.bytes();
    ImageConfig { id, names: format!("image-{image}").into(), header, origin, capacity_bytes, kept: None }
}

/// A core under test, and its surroundings.
struct Bench {
    node: Node,
    now: Time,
    open: Vec<(RequestId, Chunk)>,
    gossip: Vec<Vec<u8>>,
    tokens: u64,
    outputs: String,
}

impl Bench {
    fn new() -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let config = Config {
            window_bytes: 8 * ChunkSize::MIN.bytes(),
            transient_bytes: 8 * ChunkSize::MIN.bytes(),
            io_timeout: Some(Duration::from_secs(1)),
            ..Config::default()
        };
        let mut node = Node::new(identity(ME, 1), keys(NodeId(ME)), config, 42, now);
        for image in 0..3 {
            node.add_image(now, config_of(image));
        }
        // Another member, for datagrams that are nearly right.
        let mut other = Node::new(identity(1, 1), keys(NodeId(1)), Config::default(), 7, now);
        other.handle(now, Input::Learned { from: NodeId(ME), snapshot: node.snapshot(&identity(1, 1), &[]) });
        let id = ImageId([0; 32]);
        let config = ImageConfig {
            id,
            names: "image-0".into(),
            header: header(0),
            origin: false,
            capacity_bytes: 1 << 24,
            kept: None,
        };
        other.add_image(now, config);
        for second in 1..4 {
            other.handle(now + Duration::from_secs(second), Input::Wake);
        }
        let gossip = std::iter::from_fn(|| other.poll()).filter_map(|output| match output {
            Output::Datagram(_, bytes) => Some(bytes),
            _ => None,
        });
        let gossip = gossip.collect();
        Self { node, now, open: Vec::new(), gossip, tokens: 0, outputs: String::new() }
    }

    /// Takes part in an image, if it does not do so already.
    fn add(&mut self, image: u8) {
        let config = config_of(image);
        if self.node.images().iter().all(|view| view.id != config.id) {
            self.node.add_image(self.now, config);
        }
    }

    fn take(&mut self, step: &Step) {
        let image = |image: u8| ImageId([image; 32]);
        let input = match step.clone() {
            Step::Pass(microseconds) => {
                self.now = self.now + Duration::from_micros(microseconds);
                Input::Wake
            }
            Step::Datagram(bytes) => Input::Datagram(identity(5, 1).addr, bytes),
            Step::Gossip(at, change) => {
                let mut bytes = self.gossip[at % self.gossip.len()].clone();
                if let Some((at, byte)) = change {
                    let length = bytes.len();
                    bytes[at % length] = byte;
                }
                Input::Datagram(identity(1, 1).addr, bytes)
            }
            Step::Met(node, generation) => Input::Met(said(identity(node, generation), 0, State::Alive)),
            Step::Learned(members, claims) => {
                let from = NodeId(members.first().map_or(6, |member| member.0));
                let members = members.iter().map(|(node, generation, incarnation, state)| {
                    said(identity(*node, *generation), *incarnation, state_of(*state))
                });
                let (members, records) = (members.collect(), claims.iter().map(record).collect());
                Input::Learned { from, snapshot: Snapshot { members, records, ..Snapshot::default() } }
            }
            Step::Read(of, start, length) => {
                self.tokens += 1;
                Input::Read { token: Token(self.tokens), image: image(of), chunks: start..start + length }
            }
            Step::CancelRead(token) => Input::CancelRead(Token(token)),
            Step::Prefetch(of, start, length) => {
                Input::Prefetch { image: image(of), chunks: start..start + length, priority: Priority::ReadAhead }
            }
            Step::Asked(connection, request, reach, of, chunk) => {
                let asker = Asker { connection: ConnectionId(connection), request, reach: Reach(reach) };
                Input::Asked { asker, image: image(of), chunk: Chunk(chunk), priority: Priority::Demand }
            }
            Step::CancelAsked(connection, request) => Input::CancelAsked(ConnectionId(connection), request),
            Step::AskerGone(connection) => Input::AskerGone(ConnectionId(connection)),
            Step::Answer(at, kind, node) => self.answer(at, kind, node),
            Step::Progress(node) => Input::Progress(NodeId(node)),
            Step::Broken(node) => Input::Broken(NodeId(node)),
            Step::Misbehaved(node) => Input::Misbehaved(NodeId(node)),
            Step::Drop(of) => Input::Drop(image(of)),
            Step::Add(of) => {
                self.add(of);
                Input::Wake
            }
            Step::Leave => Input::Leave,
            Step::Gone => Input::Gone,
        };
        self.node.handle(self.now, input);
        // All work that is due ends without time going on.
        let mut wakes = 0;
        while self.node.next_wake().is_some_and(|next| next <= self.now) {
            wakes += 1;
            assert!(wakes < 1_000, "it spins");
            self.node.handle(self.now, Input::Wake);
        }
        while let Some(output) = self.node.poll() {
            if let Output::Request { request, chunk, .. } = &output {
                self.open.push((*request, *chunk));
            }
            self.outputs += &format!("{output:?}\n");
        }
        for view in self.node.images() {
            assert!(view.stored <= view.capacity && (0.0..=1.0).contains(&view.coverage.share));
        }
        let _ = (self.node.members(), self.node.longest_waits(Duration::ZERO), self.node.former());
        let _ = (self.node.sole_chunks(), self.node.is_filled(), self.node.is_covered(1));
    }

    fn answer(&mut self, at: usize, kind: u8, node: u64) -> Input {
        let (request, chunk) = if self.open.is_empty() || at.is_multiple_of(17) {
            (RequestId(at as u64), Chunk(0))
        } else {
            let at = at % self.open.len();
            self.open.swap_remove(at)
        };
        match kind {
            0 => Input::Corrupt(request),
            1 => Input::Unusable(request),
            2 => Input::Refused(request, Refusal::NotHeld),
            3 => Input::Refused(request, Refusal::SourceChanged),
            4 => Input::Redirected(request, NodeId(node)),
            5 => Input::Lost(request),
            _ => {
                let waited = Duration::from_nanos(node);
                let children = Geometry::new(header(0)).children(chunk);
                let first = children.start..children.start + 1;
                let zeros = std::iter::once(first).filter(|_| kind > 9 && !children.is_empty()).collect();
                let transit = Transit { took: Duration::from_nanos(node >> 20), beside: node };
                Input::Arrived { request, waited, transit, zeros }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn anything_may_happen_in_any_order(steps in prop::collection::vec(step(), 0..150)) {
        let (mut first, mut second) = (Bench::new(), Bench::new());
        for step in &steps {
            first.take(step);
        }
        for step in &steps {
            second.take(step);
        }
        prop_assert_eq!(first.outputs, second.outputs);
    }
}
