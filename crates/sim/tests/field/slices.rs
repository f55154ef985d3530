//! Short reads at places that are not next to each other, as by machines that boot.

use crate::{field_of, filled_field, secs};
use std::sync::Arc;
use std::time::Duration;
use vfield_core::prefetch::Recorder;
use vfield_sim::dice::Dice;
use vfield_sim::field::Field;
use vfield_sim::reader::Order;

/// Chunks of the image, in an order that is the same for all readers.
fn scattered(count: usize) -> Order {
    let mut chunks: Vec<u64> = (0..600).collect();
    Dice::new(7).shuffle(&mut chunks);
    Order::Recorded(Arc::new(chunks.into_iter().take(count).map(|chunk| chunk..chunk + 1).collect()), 0)
}

/// How a room booted.
struct Booted {
    /// The median read.
    median: Duration,
    /// Bytes that came to all nodes, and those that the origin sent.
    came: u64,
    origin_sent: u64,
    /// Until the last reader was done.
    took: Duration,
}

/// All nodes read so many chunks, a group of each or all of it.
fn boot(mut field: Field, nodes: &[usize], groups: Option<u16>) -> Booted {
    (field.keeps_times, field.groups) = (true, groups);
    let came = |field: &Field| nodes.iter().map(|node| field.machines[*node].traffic.payload_came).sum::<u64>();
    let before = (came(&field), field.machines[0].traffic.payload_sent);
    let readers: Vec<usize> = nodes.iter().map(|node| field.read_blocks(*node, 0, scattered(60), 1)).collect();
    let start = field.now();
    field.until_read(&readers, secs(30));
    let took = field.now() - start;
    let mut times: Vec<Duration> =
        readers.iter().flat_map(|reader| field.readers[*reader].times.clone().unwrap_or_default()).collect();
    times.sort_unstable();
    let origin_sent = field.machines[0].traffic.payload_sent - before.1;
    Booted { median: times[times.len() / 2], came: came(&field) - before.0, origin_sent, took }
}

/// Stores hold the image three times: each read has a holder near by, and brings less than a chunk.
#[test]
fn a_settled_room_reads_short_blocks_sooner_and_with_fewer_bytes() {
    let room = || filled_field(1, 20, 90);
    let ((field, nodes), (same, _)) = (room(), room());
    let (whole, sliced) = (boot(field, &nodes, None), boot(same, &nodes, Some(1)));
    assert!(sliced.median < whole.median, "{:?} for a slice, {:?} for a chunk", sliced.median, whole.median);
    assert!(sliced.came * 3 < whole.came * 2, "{} bytes with slices, {} without", sliced.came, whole.came);
    assert_eq!(sliced.origin_sent, 0, "the origin is spared");
}

/// Ten machines boot behind links that a hundred chunks fill for a second, while each has a store
/// of a sixth to fill.
#[test]
fn a_room_that_boots_does_not_wait_behind_its_stores() {
    let took = |capacity| {
        let (mut field, nodes) = field_of(4, 10, capacity);
        field.links.rate = 100 * field.images[0].geometry.chunk_bytes();
        boot(field, &nodes, None).took
    };
    let (beside, alone) = (took(100), took(0));
    assert!(beside < alone * 2, "{beside:?} beside fills, {alone:?} without stores");
}

/// The same room on the next day: a machine of the day before has told what it reads first.
#[test]
fn a_room_that_boots_again_is_led() {
    let took = |learned: bool| {
        let (mut field, nodes) = field_of(4, 10, 100);
        let chunk_bytes = field.images[0].geometry.chunk_bytes();
        (field.links.rate, field.links.delay) = (100 * chunk_bytes, Duration::from_millis(10));
        let mut recorder = Recorder::new(600, chunk_bytes);
        let Order::Recorded(reads, _) = scattered(60) else { unreachable!("it is one") };
        let bytes = reads.iter().map(|read| read.start * chunk_bytes..read.end * chunk_bytes);
        bytes.for_each(|bytes| recorder.note(bytes, field.now()));
        field.learned = learned.then(|| recorder.list());
        boot(field, &nodes, None).took
    };
    let (led, alone) = (took(true), took(false));
    assert!(led * 10 < alone * 7, "{led:?} along a list, {alone:?} without one");
}

/// All read the same while their stores fill: the origin is not asked by each of them.
#[test]
fn a_room_that_boots_costs_the_origin_no_more_with_slices() {
    for capacity in [90, 603] {
        let room = || field_of(2, 20, capacity);
        let ((field, nodes), (same, _)) = (room(), room());
        let whole = boot(field, &nodes, None).origin_sent;
        let sliced = boot(same, &nodes, Some(1)).origin_sent;
        assert!(sliced * 10 <= whole * 13, "stores of {capacity}: {sliced} bytes with slices, {whole} without");
    }
}

/// Few nodes, no stores: one after the other asks the origin, and later ones are sent to get whole
/// chunks. It sends each chunk twice at most.
#[test]
fn slices_for_many_cost_the_origin_two_chunks_at_most() {
    let (field, nodes) = field_of(3, 30, 0);
    let sent = boot(field, &nodes, Some(1)).origin_sent;
    // Sixteen slices have a chunk's bytes and their siblings; pages come on top.
    let most = 60 * (2 * (16 << 10) + 16 * 100) + (64 << 10);
    assert!(sent <= most, "{sent} bytes, {most} allowed");
}
