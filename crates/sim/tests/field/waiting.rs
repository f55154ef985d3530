//! Reads without a holder: they wait, are listed, and go on when it comes back.

use crate::{field_of, filled_field, ms, one_image, secs};
use vfield_block::source::ReadError;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::Why;
use vfield_core::node::HeldUp;
use vfield_sim::field::Field;
use vfield_sim::machine::Fault;

#[test]
fn a_read_without_a_holder_waits_and_goes_on_when_one_comes_back() {
    let mut field = one_image(1);
    let node = field.join(0, &[(0, 50)]);
    let first = field.read(node, 0, 0..4);
    field.until_read(&[first], secs(2));
    field.kill(0, true);
    field.run(secs(3));
    let chunk = (0..600).find(|chunk| !field.machines[node].has(0, Chunk(*chunk))).expect("a chunk that is not here");
    let reader = field.read(node, 0, chunk..chunk + 1);
    field.run(secs(5));
    assert!(!field.readers[reader].is_done());
    let waiting = field.machines[node].node.images()[0].waiting.clone();
    assert!(!waiting.is_empty(), "nobody says what is waited for");
    assert_eq!(waiting[0].why, Why::NoHolder);
    assert!(waiting[0].wait >= secs(4) && waiting[0].wait <= secs(6), "{:?}", waiting[0]);

    field.origin(Some(node), &[0]);
    let took = field.until_read(&[reader], secs(2));
    assert!(took < secs(2));
    field.run(secs(1));
    assert!(field.machines[node].node.images()[0].waiting.is_empty());
}

/// Without the hash of a chunk no peer can be asked for it: the reader waits for the page, and that
/// wait is listed too.
#[test]
fn a_read_that_waits_for_hashes_is_told_of() {
    let mut field = one_image(6);
    let node = field.join(0, &[(0, 0)]);
    field.run(ms(100));
    field.kill(0, true);
    field.run(secs(3));
    let reader = field.read(node, 0, 7..8);
    field.run(secs(5));
    assert!(!field.readers[reader].is_done());
    let waits = field.machines[node].node.longest_waits(ms(0));
    assert_eq!(waits.len(), 1, "nobody says that a read waits");
    assert!(waits[0].wait >= secs(4), "{:?}", waits[0]);
}

/// A holder that is asked again and again, and never answers, is as bad for a reader as none.
#[test]
fn a_read_of_a_holder_that_says_nothing_is_told_of() {
    let mut field = one_image(2);
    let node = field.join(0, &[(0, 0)]);
    field.run(ms(100));
    field.set_fault(0, Fault::Stalled);
    let reader = field.read(node, 0, 0..20);
    field.run(ms(500));
    let waits = field.machines[node].node.longest_waits(ms(0));
    let [wait] = &waits[..] else { panic!("{waits:?}") };
    assert_eq!(wait.held_up, HeldUp::Answers(vec![field.machines[0].node.me().addr]));
    // It is asked again and again, and between that nobody can be asked.
    for second in 1..=12 {
        field.run(secs(1));
        let waits = field.machines[node].node.longest_waits(ms(0));
        assert!(waits[0].wait >= secs(second), "{waits:?}");
    }
    assert!(!field.readers[reader].is_done());
}

/// The only holder is cut off for a while, but nobody declares it dead: connections fail and come
/// back.
#[test]
fn a_holder_that_comes_back_by_itself_is_used_within_two_seconds() {
    let mut field = one_image(2);
    let node = field.join(0, &[(0, 0)]);
    field.run(ms(100));
    field.set_fault(0, Fault::Stalled);
    let reader = field.read(node, 0, 0..20);
    field.run(secs(8));
    assert!(!field.readers[reader].is_done());
    field.set_fault(0, Fault::None);
    field.until_read(&[reader], secs(2));
}

#[test]
fn the_timeout_makes_an_error_of_a_wait() {
    let mut field = one_image(3);
    field.config.io_timeout = Some(secs(2));
    let node = field.join(0, &[(0, 0)]);
    field.run(ms(100));
    field.kill(0, true);
    let reader = field.read(node, 0, 7..8);
    let took = field.until("the read failed", secs(3), |field| field.readers[reader].is_done());
    assert!(took >= secs(2), "failed after {took:?}");
    assert!(matches!(field.readers[reader].failed, Some(ReadError::TimedOut(_))));
    field.run(secs(1));
    assert!(field.machines[node].node.images()[0].waiting.is_empty(), "nobody waits any more");
}

/// The origin's file has changed: its chunks fail with that error, what others hold is read from
/// them.
#[test]
fn a_changed_source_is_told_apart() {
    let (mut field, nodes) = filled_field(4, 2, 150);
    field.set_fault(0, Fault::Changed);
    let chunk_with = |held: bool| {
        let has = |chunk: &u64| nodes.iter().any(|&node| field.machines[node].has(0, Chunk(*chunk)));
        (0..600).find(|chunk| has(chunk) == held).expect("such a chunk")
    };
    let (held, bare) = (chunk_with(true), chunk_with(false));
    let good = nodes.iter().map(|&node| field.read(node, 0, held..held + 1)).collect::<Vec<_>>();
    field.until_read(&good, secs(1));
    let bad = field.read(nodes[0], 0, bare..bare + 1);
    field.until("the read failed", secs(2), |field| field.readers[bad].is_done());
    assert!(matches!(field.readers[bad].failed, Some(ReadError::SourceChanged(_))), "{:?}", field.readers[bad].failed);
}

/// A field whose origin's file has changed, a reader, and a holder that has just been paused, with
/// a chunk that it alone has.
fn changed_beside_a_paused_holder() -> (Field, usize, usize, u64) {
    let (mut field, nodes) = filled_field(7, 2, 150);
    let [reader, holder] = nodes[..] else { panic!("two nodes") };
    let has = |field: &Field, node: usize, chunk| field.machines[node].has(0, Chunk(chunk));
    let only = (0..600).find(|chunk| has(&field, holder, *chunk) && !has(&field, reader, *chunk));
    let only = only.expect("a chunk of the holder alone");
    field.set_fault(0, Fault::Changed);
    field.set_fault(holder, Fault::Paused);
    (field, reader, holder, only)
}

/// A file that has changed is no reason to fail a read while a holder that seems dead may be back.
#[test]
fn a_changed_source_fails_no_read_whose_holder_died_a_moment_ago() {
    for comes_back in [true, false] {
        let (mut field, reader, holder, only) = changed_beside_a_paused_holder();
        let is_dead = |field: &Field| field.machines[reader].node.members().len() == 2;
        field.until("the holder is taken for dead", secs(5), is_dead);
        let read = field.read(reader, 0, only..only + 1);
        field.run(secs(2));
        assert!(!field.readers[read].is_done(), "{:?}", field.readers[read].failed);
        if comes_back {
            field.set_fault(holder, Fault::None);
            field.until_read(&[read], secs(4));
        } else {
            field.until("the read failed", secs(12), |field| field.readers[read].is_done());
            assert!(matches!(field.readers[read].failed, Some(ReadError::SourceChanged(_))));
        }
    }
}

/// Nor is it one while a live holder is busy, or stands still for a moment.
#[test]
fn a_changed_source_fails_no_read_whose_holder_stands_still() {
    let (mut field, reader, holder, only) = changed_beside_a_paused_holder();
    let read = field.read(reader, 0, only..only + 1);
    field.run(ms(1000));
    assert!(!field.readers[read].is_done(), "{:?}", field.readers[read].failed);
    field.set_fault(holder, Fault::None);
    field.until_read(&[read], secs(4));
}

/// A node whose store lacks unavailable chunks goes on with the available ones.
#[test]
fn chunks_that_nobody_has_do_not_hold_up_a_fill() {
    let (mut field, nodes) = field_of(5, 2, 200);
    field.until("stores filled", secs(10), |field| field.filled(&nodes));
    field.kill(0, true);
    field.run(secs(3));
    let late = field.join(nodes[0], &[(0, 603)]);
    let held = 603 - field.bare(0);
    field.until("all that is left is copied", secs(10), |field| field.machines[late].node.images()[0].stored == held);
    let origin = field.origin(Some(nodes[1]), &[0]);
    field.until("the rest too", secs(10), |field| field.filled(&[late]));
    assert!(field.machines[origin].sent_of(0) > 0);
}
