//! Whom a node asks, from what members say and how they answer: what it knows comes before the plan
//! as it is.

use crate::company::{Asked, Company, STEP, Says, chunks, peers};
use std::time::Duration;
use vfield_block::source::ReadError;
use vfield_core::fetch::Why;
use vfield_core::identity::NodeId;
use vfield_core::misdeed::Misdeed;
use vfield_core::node::{Input, Output};
use vfield_core::speed::Speed;
use vfield_core::tuning::STALL;
use vfield_core::wire::Refusal;

const FAST: Speed = Speed(90);
const SLOW: Speed = Speed(60);

fn one(asked: &[Asked]) -> Asked {
    let [asked] = asked else { panic!("{asked:?}") };
    *asked
}

/// An origin's advice is tried, and the origin once more if that was of no use. It does not matter
/// that both have been asked before.
#[test]
fn an_origin_is_insisted_upon_once_its_advice_was_of_no_use() {
    let mut company = Company::settled(&[Says::origin(1), Says::store(3)]);
    let store = one(&company.read(5));
    assert_eq!(store.peer, 3);
    let origin = one(&company.refuse(store));
    assert_eq!((origin.peer, origin.insists), (1, false));
    company.give(Input::Redirected(origin.request, NodeId(3)));
    let store = one(&company.requests());
    assert_eq!(store.peer, 3);
    let origin = one(&company.refuse(store));
    assert_eq!((origin.peer, origin.insists), (1, true));
}

/// A node that is switched on with others: those before it may only just begin.
#[test]
fn an_upstream_that_may_only_begin_is_asked_once_more() {
    let room: Vec<Says> = (10..20).map(Says::reader).chain([Says::origin(1)]).collect();
    let mut company = Company::of(&room);
    company.after(Duration::from_millis(500));
    let upstream = one(&company.read(5));
    assert!((10..20).contains(&upstream.peer), "{upstream:?}");
    assert_eq!(company.refuse(upstream), []);
    let again = one(&company.after(2 * STEP));
    assert_eq!(again.peer, upstream.peer);
    // Later a reader does not wait for it.
    let mut company = Company::settled(&room);
    let upstream = one(&company.read(5));
    let other = one(&company.refuse(upstream));
    assert_ne!(other.peer, upstream.peer);
    // A chunk that nobody waits for yet does.
    let mut company = Company::settled(&room);
    let upstream = one(&company.prefetch(5..6));
    assert_eq!(company.refuse(upstream), []);
    assert_eq!(one(&company.after(2 * STEP)).peer, upstream.peer);
}

/// A newcomer does not know yet how many there are.
#[test]
fn a_small_room_has_no_chain_once_it_is_known_to_be_small() {
    let room = [Says::reader(10), Says::origin(1)];
    let asked = |after| {
        let mut company = Company::of(&room);
        company.after(Duration::from_millis(after));
        (0..8).map(|chunk| one(&company.read(chunk)).peer).collect::<std::collections::BTreeSet<u64>>()
    };
    assert_eq!(asked(100).into_iter().collect::<Vec<_>>(), [10]);
    assert_eq!(asked(400).into_iter().collect::<Vec<_>>(), [1, 10], "each chunk has a relay, one of the two readers");
}

#[test]
fn a_store_that_says_it_is_slow_is_not_asked() {
    for (speed, expected) in [(FAST, 3), (SLOW, 1)] {
        let mut company = Company::settled(&[Says::origin(1).at(FAST), Says::store(3).at(speed)]);
        assert_eq!(peers(&company.read(5)), [expected], "{speed:?}");
    }
}

/// The origin is asked for all that such a store owes, and for the chunks that are parked for it.
#[test]
fn what_a_slow_store_owes_is_asked_of_the_origin() {
    let mut company = Company::settled(&[Says::origin(1).at(FAST), Says::store(3).at(FAST)]);
    let owed = company.prefetch(0..40);
    assert!(owed.iter().all(|asked| asked.peer == 3) && owed.len() < 40, "{owed:?}");
    company.hears(Says::store(3).at(SLOW));
    let anew = company.after(Duration::from_millis(500));
    assert!(anew.iter().all(|asked| asked.peer == 1), "{anew:?}");
    assert_eq!(chunks(&anew), chunks(&owed));
    // Parked chunks wait for the origin's window now.
    let next: Vec<Asked> = anew.into_iter().flat_map(|asked| company.arrives(asked, STEP)).collect();
    assert!(!next.is_empty() && next.iter().all(|asked| asked.peer == 1), "{next:?}");
}

#[test]
fn what_a_stalled_peer_owes_goes_to_another_and_nothing_else_does() {
    let mut company = Company::settled(&[Says::store(3), Says::store(4)]);
    let owed = company.prefetch(0..8);
    let of = |peer: u64| owed.iter().filter(|asked| asked.peer == peer).map(|asked| asked.chunk.0).collect::<Vec<_>>();
    assert!(!of(3).is_empty() && !of(4).is_empty(), "{owed:?}");
    let mut anew = Vec::new();
    for _ in 0..(STALL.as_millis() / STEP.as_millis()) + 10 {
        company.give(Input::Progress(NodeId(4)));
        anew.extend(company.after(STEP));
    }
    assert!(anew.iter().all(|asked| asked.peer == 4), "{anew:?}");
    let mut moved = chunks(&anew);
    moved.sort_unstable();
    assert_eq!(moved, of(3));
    let cancelled = |output: &Output| matches!(output, Output::CancelRequest(_, NodeId(4)));
    assert!(!company.others.iter().any(cancelled));
}

/// The peer did nothing wrong: the page with the hash was gone, or memory was full.
#[test]
fn an_answer_that_could_not_be_used_is_asked_of_the_same_peer_again() {
    let mut company = Company::settled(&[Says::origin(1), Says::store(3)]);
    let first = one(&company.read(5));
    assert_eq!(first.peer, 3);
    company.give(Input::Unusable(first.request));
    assert_eq!(company.requests(), [], "not at once");
    assert_eq!(peers(&company.after(5 * STEP)), [3]);
}

/// One origin's file has changed, and the other one has no answer: nobody is left to wait for.
#[test]
fn a_read_fails_once_the_file_has_changed_and_no_other_has_the_chunk() {
    let mut company = Company::settled(&[Says::origin(1), Says::origin(3)]);
    let first = one(&company.read(5));
    company.give(Input::Refused(first.request, Refusal::SourceChanged));
    let second = one(&company.requests());
    let answered = |company: &Company| {
        company.others.iter().any(|output| matches!(output, Output::Answer(_, Err(ReadError::SourceChanged(_)))))
    };
    assert!(!answered(&company));
    assert_eq!(company.refuse(second), []);
    assert!(answered(&company), "{:?}", company.others);
}

/// A busy store is no liar, and neither is a relay that has nothing: what counts is an announced
/// chunk.
#[test]
fn only_refusals_of_announced_chunks_are_false_claims() {
    for (refusal, expected) in [(Refusal::Busy, 0), (Refusal::NotHeld, 1)] {
        let mut company = Company::settled(&[Says::origin(1), Says::store(3)]);
        let asked = one(&company.read(5));
        company.give(Input::Refused(asked.request, refusal));
        assert_eq!(company.node.misdeeds().of(Misdeed::FalseClaims), expected, "{refusal:?}");
    }
    let mut company = Company::of(&[Says::reader(10), Says::origin(1)]);
    let asked = one(&company.read(5));
    assert_eq!(asked.peer, 10);
    company.refuse(asked);
    assert_eq!(company.node.misdeeds().of(Misdeed::FalseClaims), 0);
}

/// The reason tells whether an origin has to be started or to be mended.
#[test]
fn a_read_in_vain_says_whether_there_is_an_origin() {
    let why = |members: &[Says]| {
        let mut company = Company::settled(members);
        let mut asked = company.read(5);
        while let Some(next) = asked.pop() {
            asked.extend(company.refuse(next));
        }
        company.node.images()[0].waiting.first().map(|waited| waited.why)
    };
    assert_eq!(why(&[Says::reader(3)]), Some(Why::NoHolder));
    assert_eq!(why(&[Says::store(3)]), Some(Why::Refused));
    assert_eq!(why(&[Says::store(3), Says::origin(1)]), Some(Why::Undelivered));
}
