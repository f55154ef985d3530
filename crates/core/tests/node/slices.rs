//! Short reads ask for slices; a slice that fails becomes a read of the whole chunk.

use crate::one_origin::{IMAGE, ORIGIN, joined, three_pages};
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{RequestId, Token};
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, ImageId};
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::slice::{Groups, Slice};
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::tuning::{CHECK_EVERY, HEDGE_AFTER};
use vfield_core::wire::Refusal;

/// A node without a store, in a field with one origin.
struct Joined {
    node: Node,
    now: Time,
}

impl Joined {
    /// It has the top page.
    fn new() -> Self {
        let (node, now) = joined(three_pages());
        let mut joined = Self { node, now };
        let top = Geometry::new(three_pages()).top();
        joined.node.handle(joined.now, Input::Found { image: IMAGE, chunks: vec![top], zeros: Vec::new() });
        joined.outputs();
        joined
    }

    fn after(&mut self, wait: Duration) -> Vec<Output> {
        let (end, mut all) = (self.now + wait, Vec::new());
        while self.now < end {
            self.now = self.now + Duration::from_millis(10);
            self.node.handle(self.now, Input::Wake);
            all.extend(self.outputs());
        }
        all
    }

    /// All but gossip.
    fn outputs(&mut self) -> Vec<Output> {
        let all = std::iter::from_fn(|| self.node.poll());
        all.filter(|output| !matches!(output, Output::Datagram(..) | Output::Sync(_) | Output::Call(_))).collect()
    }

    fn give(&mut self, input: Input) -> Vec<Output> {
        self.node.handle(self.now, input);
        self.outputs()
    }

    fn read(&mut self, token: u64, chunk: u64, groups: (u16, u16)) -> Vec<Output> {
        let groups = Groups::new(groups.0, groups.1).expect("a range of groups");
        self.give(Input::ReadSlice { token: Token(token), image: IMAGE, chunk: Chunk(chunk), groups })
    }

    fn arrives(&mut self, request: RequestId) -> Vec<Output> {
        let (waited, transit) = (Duration::ZERO, Transit::default());
        self.give(Input::Arrived { request, waited, transit, zeros: Vec::new() })
    }
}

/// The only request for a slice.
fn asked(outputs: &[Output]) -> (RequestId, Slice) {
    let mut slices = outputs.iter().filter_map(|output| match output {
        Output::RequestSlice { request, peer, slice, origin: true, .. } if peer.node == ORIGIN => {
            Some((*request, *slice))
        }
        _ => None,
    });
    let first = slices.next().unwrap_or_else(|| panic!("no request in {outputs:?}"));
    assert_eq!(slices.next(), None);
    first
}

/// The chunks that are asked for as a whole.
fn wholes(outputs: &[Output]) -> Vec<u64> {
    let chunk = |output: &Output| if let Output::Request { chunk, .. } = output { Some(chunk.0) } else { None };
    outputs.iter().filter_map(chunk).collect()
}

fn answered(outputs: &[Output]) -> Vec<u64> {
    let token = |output: &Output| if let Output::Answer(token, Ok(())) = output { Some(token.0) } else { None };
    outputs.iter().filter_map(token).collect()
}

#[test]
fn a_lone_read_asks_for_its_slice_and_for_the_hash_above() {
    let mut joined = Joined::new();
    let outputs = joined.read(1, 100, (3, 4));
    let (request, slice) = asked(&outputs);
    assert_eq!((slice.groups, slice.pages), (Groups::new(3, 4).unwrap(), 1));
    assert_eq!(wholes(&outputs), Vec::<u64>::new());
    assert_eq!(answered(&joined.arrives(request)), [1]);
}

#[test]
fn a_page_that_is_wanted_again_comes_as_a_whole() {
    let mut joined = Joined::new();
    let page = Geometry::new(three_pages()).parent(Chunk(100)).unwrap().0;
    joined.read(1, 100, (0, 1));
    assert_eq!(wholes(&joined.read(2, 2500, (0, 1))), Vec::<u64>::new(), "below the other page");
    assert_eq!(wholes(&joined.read(3, 900, (0, 1))), [page.0]);
    joined.give(Input::Found { image: IMAGE, chunks: vec![page], zeros: Vec::new() });
    assert_eq!(asked(&joined.read(4, 901, (0, 1))).1.pages, 0);
}

#[test]
fn without_the_top_page_the_whole_chunk_is_read() {
    let mut joined = Joined::new();
    joined.node.handle(joined.now, Input::Drop(IMAGE));
    let (id, names) = (ImageId([8; 32]), "another".into());
    let config = ImageConfig { id, names, header: three_pages(), origin: false, capacity_bytes: 0, kept: None };
    joined.node.add_image(joined.now, config);
    let groups = Groups::new(0, 1).unwrap();
    let outputs = joined.give(Input::ReadSlice { token: Token(1), image: id, chunk: Chunk(5), groups });
    assert!(!outputs.iter().any(|output| matches!(output, Output::RequestSlice { .. })), "{outputs:?}");
    assert!(answered(&outputs).is_empty());
    let gone = joined.read(2, 5, (0, 1));
    assert!(matches!(gone[..], [Output::Answer(Token(2), Err(_))]), "{gone:?}");
}

#[test]
fn readers_share_a_slice_and_one_that_stops_ends_only_its_own_wait() {
    let mut joined = Joined::new();
    let (request, _) = asked(&joined.read(1, 7, (4, 8)));
    assert!(joined.read(2, 7, (5, 6)).is_empty(), "it is part of what comes");
    asked(&joined.read(3, 7, (8, 9)));
    assert!(joined.give(Input::CancelRead(Token(1))).is_empty());
    assert_eq!(answered(&joined.arrives(request)), [2]);
    let (request, _) = asked(&joined.read(4, 8, (0, 1)));
    let outputs = joined.give(Input::CancelRead(Token(4)));
    assert!(matches!(outputs[..], [Output::CancelRequest(of, ORIGIN)] if of == request), "{outputs:?}");
    assert!(answered(&joined.arrives(request)).is_empty());
}

/// All ways in which a slice does not come, with the time until the chunk is asked for.
#[test]
fn whatever_fails_becomes_a_read_of_the_whole_chunk() {
    let page = Geometry::new(three_pages()).parent(Chunk(100)).unwrap().0.0;
    type Fails = fn(RequestId) -> Option<Input>;
    let ways: [(&str, Fails); 6] = [
        ("whole chunks are better", |request| Some(Input::Refused(request, Refusal::Whole))),
        ("not held", |request| Some(Input::Refused(request, Refusal::NotHeld))),
        ("lost", |request| Some(Input::Lost(request))),
        ("unusable", |request| Some(Input::Unusable(request))),
        ("elsewhere", |request| Some(Input::Redirected(request, NodeId(9)))),
        ("silent", |_| None),
    ];
    for (way, fails) in ways {
        let mut joined = Joined::new();
        let (request, _) = asked(&joined.read(1, 100, (0, 1)));
        let mut outputs = fails(request).map_or_else(Vec::new, |input| joined.give(input));
        let since = joined.now;
        while wholes(&outputs).is_empty() {
            assert!(joined.now - since < Duration::from_secs(1), "{way}: nothing is asked for");
            outputs.extend(joined.after(Duration::from_millis(10)));
        }
        assert_eq!(wholes(&outputs)[0], page, "{way}: the page comes first");
        assert!(answered(&outputs).is_empty(), "{way}");
        if way == "whole chunks are better" {
            assert_eq!(joined.now, since, "{way}: the same node delivers them");
        }
        if way == "silent" {
            let waited = joined.now - since;
            assert!((HEDGE_AFTER..HEDGE_AFTER + 2 * CHECK_EVERY).contains(&waited), "{waited:?}");
        }
        let found = Input::Found { image: IMAGE, chunks: vec![Chunk(page), Chunk(100)], zeros: Vec::new() };
        assert_eq!(answered(&joined.give(found)), [1], "{way}");
    }
}

#[test]
fn a_slice_of_a_peer_that_shows_signs_of_life_is_waited_for() {
    let mut joined = Joined::new();
    let (request, _) = asked(&joined.read(1, 100, (0, 1)));
    for _ in 0..100 {
        joined.give(Input::Progress(ORIGIN));
        assert_eq!(wholes(&joined.after(Duration::from_millis(10))), Vec::<u64>::new());
    }
    assert_eq!(answered(&joined.arrives(request)), [1]);
}

#[test]
fn a_wrong_slice_is_a_lie() {
    let mut joined = Joined::new();
    let (request, _) = asked(&joined.read(1, 100, (0, 1)));
    let outputs = joined.give(Input::Corrupt(request));
    let blamed = |output: &Output| matches!(output, Output::Notice(vfield_core::node::Notice::Blamed(ORIGIN, _)));
    assert!(outputs.iter().any(blamed), "{outputs:?}");
    assert!(answered(&outputs).is_empty());
}
