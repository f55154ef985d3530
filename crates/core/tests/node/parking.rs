//! Full windows: chunks wait for the room of a peer, and no peer waits here for ever.

use crate::company::{Company, DATA, STEP, Says, chunks};
use crate::one_origin::IMAGE;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::fetch::{Asker, ConnectionId};
use vfield_core::identity::NodeId;
use vfield_core::node::{Input, Output};
use vfield_core::reach::Reach;
use vfield_core::tuning::{JAMMED_AFTER, OVERDUE_AFTER_AT_LEISURE, PEER_WINDOW_FIRST};
use vfield_core::wire::Priority;

/// Chunks that a peer is asked for at first.
const WINDOW: u64 = PEER_WINDOW_FIRST / ChunkSize::MIN.bytes();

#[test]
fn parked_chunks_go_out_as_soon_as_a_batch_has_room() {
    let mut company = Company::settled(&[Says::origin(1)]);
    let asked = company.prefetch(0..DATA);
    assert_eq!(chunks(&asked), (0..WINDOW).collect::<Vec<_>>());
    // A batch is an eighth of the window: a chunk of this size.
    assert_eq!(chunks(&company.arrives(asked[0], STEP)), [WINDOW]);
}

/// Parked for a peer that delivers nothing, a chunk is asked of another in the end.
#[test]
fn a_parked_chunk_is_overdue_after_a_while() {
    let mut company = Company::settled(&[Says::origin(1)]);
    let asked = company.prefetch(0..WINDOW + 1);
    company.hears(Says::origin(3));
    let mut waited = Duration::ZERO;
    let next = loop {
        waited += STEP;
        assert!(waited < 2 * OVERDUE_AFTER_AT_LEISURE, "it is parked for ever");
        company.give(Input::Progress(NodeId(1)));
        let next = company.after(STEP);
        if let Some(next) = next.first() {
            break *next;
        }
    };
    assert_eq!((next.peer, next.chunk), (3, Chunk(WINDOW)));
    assert!(waited >= OVERDUE_AFTER_AT_LEISURE && waited < OVERDUE_AFTER_AT_LEISURE + 10 * STEP, "{waited:?}");
    assert_eq!(asked.len() as u64, WINDOW);
}

/// This node may wait for those that wait for it. They are refused what it has not even asked for,
/// but not while it may still come: the node had nothing to do before.
#[test]
fn askers_are_refused_while_a_full_window_brings_nothing() {
    // Their windows are together more than this node's own.
    let mut company = Company::settled(&(10..90).map(Says::store).collect::<Vec<_>>());
    let asker = |request| Asker { connection: ConnectionId(1), request, reach: Reach::READER };
    for chunk in 0..DATA {
        let (asker, chunk, priority) = (asker(chunk), Chunk(chunk), Priority::ReadAhead);
        company.give(Input::Asked { asker, image: IMAGE, chunk, priority });
    }
    let mut asked = company.requests();
    assert!(asked.len() < DATA as usize, "all were asked for");
    let (mut refused, mut quiet) = (Vec::new(), Duration::ZERO);
    while refused.is_empty() {
        quiet += STEP;
        assert!(quiet < JAMMED_AFTER + 10 * STEP, "{} asked", asked.len());
        (10..90).for_each(|node| company.give(Input::Progress(NodeId(node))));
        if quiet == JAMMED_AFTER / 2 {
            // They answer, so they are not given up, but bring nothing.
            let one_each = (10..90).filter_map(|node| asked.iter().find(|asked| asked.peer == node).copied());
            one_each.collect::<Vec<_>>().into_iter().for_each(|one| asked.extend(company.refuse(one)));
        }
        asked.extend(company.after(STEP));
        let of = |output: &Output| if let Output::Refuse(asker, _) = output { Some(asker.request) } else { None };
        refused.extend(company.others.drain(..).filter_map(|output| of(&output)));
    }
    assert!(quiet >= JAMMED_AFTER - STEP, "{quiet:?}");
    assert!(chunks(&asked).iter().all(|chunk| !refused.contains(chunk)), "{refused:?}");
}
