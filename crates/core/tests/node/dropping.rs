//! A node that drops an image: no reader waits in vain, no node counts on it, and late answers do
//! no harm.

use crate::signed::{alive, keys};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_block::source::ReadError;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::{Asker, ConnectionId, RequestId, Token};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::node::{ImageConfig, Input, Node, Notice, Output};
use vfield_core::reach::Reach;
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::wire::{Priority, Refusal};

const DROPPED: ImageId = ImageId([7; 32]);
const OTHER: ImageId = ImageId([8; 32]);
const CHUNKS: u64 = 60;

fn identity(node: u64) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, node as u8], 4000));
    Identity { addr, node: NodeId(node), generation: 1, zone: Zone::default() }
}

fn image(id: ImageId, origin: bool, chunks: u64) -> ImageConfig {
    let header = Header::new(CHUNKS * ChunkSize::MIN.bytes(), ChunkSize::MIN, CHUNKS).expect("a header");
    let capacity_bytes = chunks * ChunkSize::MIN.bytes();
    ImageConfig { id, names: format!("image-{}", id.0[0]).into(), header, origin, capacity_bytes, kept: None }
}

/// An origin of both images and a node that has joined them.
struct Pair {
    origin: Node,
    node: Node,
    now: Time,
}

impl Pair {
    fn new() -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let [mut origin, mut node] =
            [1, 2].map(|node| Node::new(identity(node), keys(NodeId(node)), Config::default(), node, now));
        node.handle(now, Input::Met(alive(identity(1))));
        origin.handle(now, Input::Met(alive(identity(2))));
        for id in [DROPPED, OTHER] {
            origin.add_image(now, image(id, true, 0));
        }
        node.handle(now, Input::Learned { from: NodeId(1), snapshot: origin.snapshot(&identity(2), &[]) });
        for id in [DROPPED, OTHER] {
            node.add_image(now, image(id, false, CHUNKS + 8));
        }
        let mut pair = Self { origin, node, now };
        pair.tell_origin();
        pair
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        self.node.handle(self.now, input);
        std::iter::from_fn(|| self.node.poll()).collect()
    }

    fn tell_origin(&mut self) {
        let snapshot = self.node.snapshot(&identity(1), &[]);
        self.origin.handle(self.now, Input::Learned { from: NodeId(2), snapshot });
        while self.origin.poll().is_some() {}
    }

    /// The node's requests, until it sends no more.
    fn requests(&mut self, input: Input) -> Vec<(RequestId, ImageId, Chunk)> {
        let asked = self.input(input).into_iter().filter_map(|output| match output {
            Output::Request { request, image, chunk, .. } => Some((request, image, chunk)),
            _ => None,
        });
        asked.collect()
    }

    /// Answers every request until none is open; true once the image is filled.
    fn fills(&mut self, id: ImageId) -> bool {
        let mut filled = false;
        for _ in 0..1000 {
            self.now = self.now + Duration::from_millis(10);
            let mut outputs = self.input(Input::Wake);
            while let Some(output) = outputs.pop() {
                match output {
                    Output::Request { request, .. } => {
                        outputs.extend(self.input(Input::Arrived {
                            request,
                            waited: Duration::ZERO,
                            transit: Transit::default(),
                            zeros: Vec::new(),
                        }));
                    }
                    Output::Notice(Notice::Filled(of)) => filled |= of == id,
                    _ => {}
                }
            }
        }
        filled
    }
}

#[test]
fn waiting_readers_get_an_error_when_an_image_is_dropped() {
    let mut pair = Pair::new();
    let mut outputs = pair.input(Input::Read { token: Token(1), image: DROPPED, chunks: 3..5 });
    let asker = Asker { connection: ConnectionId(9), request: 4, reach: Reach::READER };
    // The page above is under way for the reader; a peer that requests it joins that fetch.
    let page = outputs.iter().find_map(|output| match output {
        Output::Request { image: DROPPED, chunk, .. } => Some(*chunk),
        _ => None,
    });
    let page = page.expect("something is asked for");
    outputs.extend(pair.input(Input::Asked { asker, image: DROPPED, chunk: page, priority: Priority::Demand }));
    assert!(!outputs.iter().any(|output| matches!(output, Output::Refuse(..) | Output::Answer(..))), "they wait");
    let open = outputs.iter().filter(|output| matches!(output, Output::Request { image: DROPPED, .. })).count();

    let told = pair.input(Input::Drop(DROPPED));
    let has = |wanted: &dyn Fn(&Output) -> bool| told.iter().filter(|output| wanted(output)).count();
    assert_eq!(has(&|output| matches!(output, Output::Answer(Token(1), Err(ReadError::Dropped)))), 1, "{told:?}");
    assert_eq!(
        has(&|output| matches!(output, Output::Refuse(who, Refusal::NoSuchImage) if *who == asker)),
        1,
        "{told:?}"
    );
    assert!(has(&|output| matches!(output, Output::CancelRequest(..))) >= open.max(1), "{told:?}");
    assert_eq!(pair.node.images().len(), 1);
    // A later reader gets the error at once.
    let later = pair.input(Input::Read { token: Token(2), image: DROPPED, chunks: 0..1 });
    assert!(matches!(later[..], [Output::Answer(Token(2), Err(ReadError::Dropped))]), "{later:?}");
}

#[test]
fn nobody_counts_on_it_any_more() {
    let mut pair = Pair::new();
    assert!(pair.fills(DROPPED));
    pair.tell_origin();
    let share = |pair: &Pair, id| {
        let view = pair.origin.images().into_iter().find(|view| view.id == id).expect("the origin has it");
        view.coverage.share
    };
    assert_eq!((share(&pair, DROPPED), share(&pair, OTHER)), (1.0, 1.0));
    pair.input(Input::Drop(DROPPED));
    pair.tell_origin();
    pair.now = pair.now + Duration::from_secs(1);
    pair.origin.handle(pair.now, Input::Wake);
    assert_eq!((share(&pair, DROPPED), share(&pair, OTHER)), (0.0, 1.0));
    let unreachable = |output| matches!(output, Output::Notice(Notice::Available(_, false)));
    assert!(!std::iter::from_fn(|| pair.origin.poll()).any(unreachable), "others still connect to it");
    // No node has a record of an image that all have dropped.
    pair.origin.handle(pair.now, Input::Drop(DROPPED));
    let known: Vec<ImageId> = pair.origin.claims().iter().map(|claim| claim.subject.image).collect();
    assert_eq!(known, [OTHER]);
}

#[test]
fn late_answers_of_a_dropped_image_belong_to_nothing_and_it_can_be_joined_again() {
    let mut pair = Pair::new();
    let open = pair.requests(Input::Read { token: Token(1), image: DROPPED, chunks: 3..5 });
    let (late, ..) = *open.iter().find(|(_, image, _)| *image == DROPPED).expect("it asks");
    pair.input(Input::Drop(DROPPED));
    let now = pair.now;
    pair.node.add_image(now, image(DROPPED, false, CHUNKS + 8));
    assert_ne!(pair.node.asked_for(late).map(|(image, _)| image), Some(DROPPED), "it was for what is no more");
    pair.input(Input::Arrived {
        request: late,
        waited: Duration::ZERO,
        transit: Transit::default(),
        zeros: Vec::new(),
    });
    let view = pair.node.images().into_iter().find(|view| view.id == DROPPED).expect("it is back");
    assert_eq!((view.stored, view.transient), (0, 0), "nothing of it is here");
    assert!(pair.fills(DROPPED));
    pair.tell_origin();
    pair.now = pair.now + Duration::from_secs(1);
    pair.origin.handle(pair.now, Input::Wake);
    let view = pair.origin.images().into_iter().find(|view| view.id == DROPPED).expect("the origin has it");
    assert_eq!(view.coverage.share, 1.0, "what it says now is news");
}
