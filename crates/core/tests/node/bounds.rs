//! Bounds of single images: requests of a bounded image keep to its rate, and those of another one
//! pass them.

use crate::one_origin::{IMAGE, ME, ORIGIN};
use std::collections::BTreeMap;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::fetch::{RequestId, Token};
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::slice::Groups;
use vfield_core::snapshot::Snapshot;
use vfield_core::speed::{LinkBounds, Transit};
use vfield_core::time::Time;
use vfield_core::wire::{Priority, Refusal};

const OTHER: ImageId = ImageId([8; 32]);
const CHUNK: u64 = ChunkSize::DEFAULT.bytes();
const CHUNKS: u64 = 1500;
const MS: Duration = Duration::from_millis(1);

fn header() -> Header {
    Header::new(CHUNKS * CHUNK, ChunkSize::DEFAULT, CHUNKS).expect("a header")
}

/// A node without a store in a field whose origin has two images, and answers each request a
/// millisecond later. It says nothing else, so after a second it counts as dead.
struct Joined {
    node: Node,
    now: Time,
    open: Vec<RequestId>,
    /// Bytes requested of each image, slices included.
    asked: BTreeMap<ImageId, u64>,
    answers: usize,
    /// True if the origin refuses all.
    refuses: bool,
}

impl Joined {
    /// Both pages above the data are here.
    fn new() -> Self {
        let (mut node, now) = crate::one_origin::joined(header());
        let record = crate::signed::signed(Record {
            node: ORIGIN,
            version: 1,
            progress: 0,
            subject: Subject { image: OTHER, names: "other".into(), header: header().encode() }.into(),
            origin: true,
            arc: Arc::default(),
            filled: Filled::default(),
            leaving: false,
            signature: Signature::default(),
        });
        node.handle(
            now,
            Input::Learned { from: ORIGIN, snapshot: Snapshot { records: vec![record], ..Snapshot::default() } },
        );
        let (header, names) = (header(), "other".into());
        node.add_image(now, ImageConfig { id: OTHER, names, header, origin: false, capacity_bytes: 0, kept: None });
        let geometry = Geometry::new(header);
        for image in [IMAGE, OTHER] {
            let pages = (0..CHUNKS).filter_map(|chunk| geometry.parent(Chunk(chunk)).map(|(page, _)| page));
            let mut pages: Vec<Chunk> = pages.chain([geometry.top()]).collect();
            pages.dedup();
            node.handle(now, Input::Found { image, chunks: pages, zeros: Vec::new() });
        }
        let mut joined = Self { node, now, open: Vec::new(), asked: BTreeMap::new(), answers: 0, refuses: false };
        joined.outputs();
        joined.asked.clear();
        joined
    }

    fn outputs(&mut self) {
        while let Some(output) = self.node.poll() {
            let (image, request, bytes) = match output {
                Output::Request { image, request, .. } => (image, request, CHUNK),
                Output::RequestSlice { image, request, slice, chunk, .. } => {
                    (image, request, slice.length(&Geometry::new(header()), chunk).expect("it is in the chunk") as u64)
                }
                Output::Answer(_, answer) => {
                    answer.expect("nothing fails");
                    self.answers += 1;
                    continue;
                }
                _ => continue,
            };
            self.open.push(request);
            *self.asked.entry(image).or_default() += bytes;
        }
    }

    fn give(&mut self, input: Input) {
        self.node.handle(self.now, input);
        self.outputs();
    }

    fn bound(&mut self, image: ImageId, down: Option<u64>) {
        self.give(Input::BoundsOf(image, LinkBounds { up: None, down }));
    }

    fn prefetch(&mut self, image: ImageId, priority: Priority) {
        self.give(Input::Prefetch { image, chunks: 0..CHUNKS, priority });
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + MS;
            for request in std::mem::take(&mut self.open) {
                let (waited, transit) = (Duration::ZERO, Transit::default());
                self.give(if self.refuses {
                    Input::Refused(request, Refusal::Busy)
                } else {
                    Input::Arrived { request, waited, transit, zeros: Vec::new() }
                });
            }
            self.give(Input::Wake);
        }
    }

    fn asked(&self, image: ImageId) -> u64 {
        self.asked.get(&image).copied().unwrap_or_default()
    }
}

#[test]
fn requests_of_an_image_keep_to_its_bound_and_pass_no_other_image() {
    let mut joined = Joined::new();
    joined.bound(IMAGE, Some(2_000_000));
    joined.prefetch(IMAGE, Priority::ReadAhead);
    joined.prefetch(OTHER, Priority::ReadAhead);
    joined.run(MS * 1000);
    assert_eq!(joined.asked(OTHER), CHUNKS * CHUNK, "the other one has no bound");
    let asked = joined.asked(IMAGE) as f64;
    assert!((2_000_000.0 * 0.97..2_000_000.0 * 1.03 + CHUNK as f64).contains(&asked), "{asked}");
    assert!(joined.node.held_back(IMAGE) > MS * 900, "{:?}", joined.node.held_back(IMAGE));
    assert_eq!(joined.node.held_back(OTHER), Duration::ZERO);
    // Without the bound the rest comes at once.
    joined.bound(IMAGE, None);
    joined.run(MS * 500);
    assert_eq!(joined.asked(IMAGE), CHUNKS * CHUNK);
}

#[test]
fn a_reader_passes_what_is_read_ahead_within_a_bound() {
    let mut joined = Joined::new();
    joined.bound(IMAGE, Some(8 * CHUNK));
    joined.prefetch(IMAGE, Priority::ReadAhead);
    joined.run(MS * 300);
    joined.give(Input::Read { token: Token(1), image: IMAGE, chunks: CHUNKS - 1..CHUNKS });
    joined.run(MS * 130);
    assert_eq!(joined.answers, 1, "it is the next one that goes");
}

#[test]
fn short_reads_are_held_back_and_cancelled_ones_go_nowhere() {
    let mut joined = Joined::new();
    let rate = 131_072;
    joined.bound(IMAGE, Some(rate));
    for chunk in 0..CHUNKS {
        let groups = Groups::new(0, 1).expect("a group");
        joined.give(Input::ReadSlice { token: Token(chunk), image: IMAGE, chunk: Chunk(chunk), groups });
    }
    joined.run(MS * 1000);
    let asked = joined.asked(IMAGE) as f64;
    assert!((rate as f64 * 0.97..rate as f64 * 1.06).contains(&asked), "{asked}");
    (0..CHUNKS).for_each(|chunk| joined.give(Input::CancelRead(Token(chunk))));
    joined.run(MS * 200);
    assert!(joined.asked(IMAGE) as f64 <= asked + 10_000.0);
    assert!(joined.node.next_wake().is_none_or(|at| at > joined.now), "nothing keeps it busy");
}

/// Refused requests cost nothing.
#[test]
fn a_refusal_gives_the_bytes_back() {
    let mut joined = Joined::new();
    joined.bound(IMAGE, Some(131_072));
    joined.refuses = true;
    joined.prefetch(IMAGE, Priority::ReadAhead);
    joined.run(MS * 500);
    assert!(joined.asked(IMAGE) > 20 * CHUNK, "each refusal makes room for the next: {}", joined.asked(IMAGE));
}

/// The record of a bounded image, and no other, says that this node is slow.
#[test]
fn a_bound_is_announced_with_its_image() {
    let mut joined = Joined::new();
    let said = |joined: &Joined, image: ImageId| {
        let records = joined.node.snapshot(&crate::one_origin::identity(ORIGIN), &[]).records;
        records.iter().find(|record| record.node == ME && record.image() == image).map(|record| record.link().speed())
    };
    joined.give(Input::Delivers(ORIGIN, vfield_core::speed::Speed::of(50_000_000)));
    let before = said(&joined, OTHER);
    joined.give(Input::BoundsOf(IMAGE, LinkBounds { up: Some(1_000_000), down: None }));
    assert_eq!(said(&joined, OTHER), before);
    assert!(said(&joined, IMAGE) <= before);
}

#[test]
fn an_image_that_is_dropped_takes_its_bound_along() {
    let mut joined = Joined::new();
    joined.bound(IMAGE, Some(131_072));
    joined.prefetch(IMAGE, Priority::Demand);
    joined.run(MS * 300);
    joined.give(Input::Drop(IMAGE));
    joined.bound(IMAGE, Some(131_072));
    joined.prefetch(OTHER, Priority::ReadAhead);
    joined.run(MS * 1000);
    assert_eq!(joined.asked(OTHER), CHUNKS * CHUNK);
}
