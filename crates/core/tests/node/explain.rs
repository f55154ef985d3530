//! Why a chunk is not here: what a node says of its own waits is what happened to it.

use crate::one_origin::{IMAGE, ORIGIN, joined, three_pages};
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{Asker, ConnectionId, RequestId, Stage, Token, Why};
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, ImageId};
use vfield_core::node::explain::ChunkView;
use vfield_core::node::{Input, Node, Output};
use vfield_core::pursuit::{ACCOUNTS_MAX, Account};
use vfield_core::reach::Reach;
use vfield_core::slow_reads::Cause;
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::wire::Refusal;

const MS: Duration = Duration::from_millis(1);

/// The noted moves of the fetches of one chunk.
fn moves_of(node: &mut Node, chunk: u64) -> Vec<Option<Stage>> {
    let all = node.take_moves().into_iter();
    all.filter(|(image, of, _)| (*image, of.0) == (IMAGE, chunk)).map(|(_, _, stage)| stage).collect()
}

/// A node without a store, in a field with one origin.
struct Joined {
    node: Node,
    now: Time,
}

impl Joined {
    fn new() -> Self {
        let (node, now) = joined(three_pages());
        let mut joined = Self { node, now };
        joined.requests();
        joined
    }

    /// The requests to the origin among the outputs.
    fn requests(&mut self) -> Vec<(RequestId, Chunk)> {
        let all = std::iter::from_fn(|| self.node.poll());
        let request = |output| match output {
            Output::Request { request, peer, chunk, .. } if peer.node == ORIGIN => Some((request, chunk)),
            _ => None,
        };
        all.filter_map(request).collect()
    }

    fn give(&mut self, input: Input) -> Vec<(RequestId, Chunk)> {
        self.node.handle(self.now, input);
        self.requests()
    }

    /// Time goes on, in the steps of a shell.
    fn after(&mut self, wait: Duration) -> Vec<(RequestId, Chunk)> {
        let (end, mut all) = (self.now + wait, Vec::new());
        while self.now < end {
            self.now = self.now + MS * 10;
            all.extend(self.give(Input::Wake));
        }
        all
    }

    fn read(&mut self, chunk: u64) -> Vec<(RequestId, Chunk)> {
        self.give(Input::Read { token: Token(chunk), image: IMAGE, chunks: chunk..chunk + 1 })
    }

    /// The origin delivers, after it waited so long itself.
    fn arrives(&mut self, request: RequestId, waited: Duration) -> Vec<(RequestId, Chunk)> {
        self.give(Input::Arrived { request, waited, transit: Transit::default(), zeros: Vec::new() })
    }

    fn explained(&self, chunk: u64) -> Vec<ChunkView> {
        self.node.explain(IMAGE, Chunk(chunk))
    }

    /// The pages of a chunk are here.
    fn with_pages(chunk: u64) -> Self {
        let mut joined = Self::new();
        let (geometry, mut page) = (Geometry::new(three_pages()), Chunk(chunk));
        let mut chunks = vec![geometry.top()];
        while let Some((parent, _)) = geometry.parent(page) {
            chunks.push(parent);
            page = parent;
        }
        joined.give(Input::Found { image: IMAGE, chunks, zeros: Vec::new() });
        joined
    }
}

#[test]
fn a_wait_for_a_page_is_followed_to_the_peer_that_is_asked() {
    let mut joined = Joined::new();
    let asked = joined.read(5);
    assert_eq!(asked.len(), 1, "the top page");
    joined.now = joined.now + MS * 250;
    let steps = joined.explained(5);
    assert_eq!(steps.len(), 3, "chunk, page, top page: {steps:#?}");
    let stages: Vec<Stage> = steps.iter().filter_map(|step| Some(step.fetch.as_ref()?.stage)).collect();
    assert_eq!(stages, [Stage::NeedsParent, Stage::NeedsParent, Stage::Requested]);
    assert!(!steps[0].is_page && steps[1].is_page && steps.iter().all(|step| !step.is_here));
    joined.after(MS * 10);
    let top = joined.explained(5).pop().and_then(|step| step.fetch).expect("it is under way");
    let (peer, age, silent) = top.requests[0];
    assert_eq!(peer, ORIGIN);
    assert!(age >= MS * 250 && silent >= MS * 250 && top.has_reader, "{top:#?}");
    assert_eq!(joined.node.awaited(9), [(IMAGE, Chunk(5))]);
}

#[test]
fn holders_are_named_with_their_state() {
    let joined = Joined::with_pages(5);
    let steps = joined.explained(5);
    assert!(steps[0].fetch.is_none(), "nobody wants it");
    let holder = steps[0].holders[0];
    assert_eq!((holder.node, holder.is_origin, holder.announces, holder.state), (ORIGIN, true, true, "alive"));
    assert!(joined.explained(1 << 40).is_empty() && joined.node.explain(ImageId([8; 32]), Chunk(0)).is_empty());
}

#[test]
fn a_chunk_that_its_origin_does_not_deliver_says_why() {
    let mut joined = Joined::with_pages(5);
    let asked = joined.read(5);
    joined.give(Input::Refused(asked[0].0, Refusal::NotHeld));
    joined.after(MS * 20);
    let fetch = joined.explained(5).remove(0).fetch.expect("it is wanted");
    assert_eq!(fetch.why.map(|(why, _)| why), Some(Why::Undelivered), "{fetch:#?}");
    assert_eq!(fetch.failures, 1);
}

/// The simulated fault is known: the node names it.
#[test]
fn slow_reads_name_their_cause() {
    for (waited, cause) in [(MS * 280, Cause::Upstream(ORIGIN)), (MS, Cause::Peer(ORIGIN))] {
        let mut joined = Joined::with_pages(5);
        let asked = joined.read(5);
        joined.after(MS * 290);
        joined.arrives(asked[0].0, waited);
        let slow = joined.node.slow_reads();
        assert_eq!((slow.len(), slow[0].chunk), (1, Chunk(5)));
        assert!((MS * 290..MS * 310).contains(&slow[0].waited), "{slow:#?}");
        assert_eq!(slow[0].cause(), cause, "{slow:#?}");
        assert!(joined.node.awaited(9).is_empty());
    }
}

#[test]
fn a_page_that_comes_late_is_the_cause() {
    let mut joined = Joined::new();
    let mut asked = joined.read(5);
    joined.after(MS * 200);
    for _ in 0..3 {
        let (request, _) = asked.remove(0);
        asked = joined.arrives(request, Duration::ZERO);
    }
    let slow = joined.node.slow_reads();
    assert_eq!((slow[0].chunk, slow[0].cause()), (Chunk(5), Cause::Page), "{slow:#?}");
}

#[test]
fn each_move_of_a_fetch_is_noted_while_somebody_looks_on() {
    let mut joined = Joined::with_pages(5);
    joined.read(4);
    assert_eq!(joined.node.take_moves(), [], "nobody looks on");
    joined.node.note_moves(true);
    // It begins with the fetches under way.
    assert_eq!(moves_of(&mut joined.node, 4), [Some(Stage::Requested)]);
    let asked = joined.read(5);
    let [(request, chunk)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!(chunk, Chunk(5));
    assert_eq!(moves_of(&mut joined.node, 5), [Some(Stage::Queued), Some(Stage::Requested)]);
    joined.arrives(request, Duration::ZERO);
    assert_eq!(moves_of(&mut joined.node, 5), [None]);
    joined.node.note_moves(false);
    joined.read(6);
    assert_eq!(joined.node.take_moves(), []);
}

/// What the node answers to a question of this peer.
fn asked_why(joined: &mut Joined, node: NodeId, image: ImageId) -> Result<Account, Refusal> {
    let asker = Asker { connection: ConnectionId(9), request: 4, reach: Reach::HOLDER };
    joined.node.handle(joined.now, Input::AskedWhy { asker, node, image, chunk: Chunk(5) });
    let answer = std::iter::from_fn(|| joined.node.poll()).find_map(|output| match output {
        Output::Account(of, account) if of == asker => Some(Ok(account)),
        Output::Refuse(of, refusal) if of == asker => Some(Err(refusal)),
        _ => None,
    });
    answer.expect("each question has its answer")
}

#[test]
fn members_are_told_for_whom_a_chunk_waits() {
    let mut joined = Joined::with_pages(5);
    joined.read(5);
    joined.after(MS * 40);
    let account = asked_why(&mut joined, ORIGIN, IMAGE).expect("a member is answered");
    let wait = account.wait.expect("it waits");
    assert_eq!((account.chunk, account.is_here, wait.stage), (5, false, 3));
    let (awaits, asked_ms) = wait.awaits.expect("the origin was asked");
    assert!(awaits == ORIGIN && asked_ms >= 40, "{awaits} {asked_ms}");
    assert_eq!(asked_why(&mut joined, NodeId(0xdead), IMAGE), Err(Refusal::NotHeld), "no member");
    assert_eq!(asked_why(&mut joined, ORIGIN, ImageId([9; 32])), Err(Refusal::NoSuchImage));
    // Two answers were given by now.
    let more = (2..ACCOUNTS_MAX + 3).map(|_| asked_why(&mut joined, ORIGIN, IMAGE));
    assert_eq!(more.filter(|answer| *answer == Err(Refusal::Busy)).count(), 3);
    joined.after(Duration::from_secs(1));
    assert!(asked_why(&mut joined, ORIGIN, IMAGE).is_ok());
}
