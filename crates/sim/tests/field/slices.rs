//! Short reads at places that are not next to each other, as by machines that boot.

use crate::{field_of, filled_field, secs};
use std::sync::Arc;
use std::time::Duration;
use vfield_sim::dice::Dice;
use vfield_sim::field::Field;
use vfield_sim::reader::Order;

/// Chunks of the image, in an order that is the same for all readers.
fn scattered(count: usize) -> Order {
    let mut chunks: Vec<u64> = (0..600).collect();
    Dice::new(7).shuffle(&mut chunks);
    Order::Recorded(Arc::new(chunks.into_iter().take(count).map(|chunk| chunk..chunk + 1).collect()), 0)
}

/// All nodes read so many chunks, a group of each or all of it. Returns the median read, and the
/// bytes that the origin sent.
fn boot(mut field: Field, nodes: &[usize], groups: Option<u16>) -> (Duration, u64) {
    (field.keeps_times, field.groups) = (true, groups);
    let before = field.machines[0].traffic.payload_sent;
    let readers: Vec<usize> = nodes.iter().map(|node| field.read_blocks(*node, 0, scattered(60), 1)).collect();
    field.until_read(&readers, secs(30));
    let mut times: Vec<Duration> =
        readers.iter().flat_map(|reader| field.readers[*reader].times.clone().unwrap_or_default()).collect();
    times.sort_unstable();
    (times[times.len() / 2], field.machines[0].traffic.payload_sent - before)
}

/// Stores hold the image three times: each read has a holder near by, and brings a sixteenth.
#[test]
fn a_settled_room_reads_short_blocks_in_half_of_the_time() {
    let room = || filled_field(1, 20, 90);
    let ((field, nodes), (same, _)) = (room(), room());
    let (whole, _) = boot(field, &nodes, None);
    let (sliced, sent) = boot(same, &nodes, Some(1));
    assert!(sliced * 2 < whole, "{sliced:?} for a slice, {whole:?} for a chunk");
    assert_eq!(sent, 0, "the origin is spared");
}

/// All read the same while their stores fill: the origin is not asked by each of them.
#[test]
fn a_room_that_boots_costs_the_origin_no_more_with_slices() {
    for capacity in [90, 603] {
        let room = || field_of(2, 20, capacity);
        let ((field, nodes), (same, _)) = (room(), room());
        let (_, whole) = boot(field, &nodes, None);
        let (_, sliced) = boot(same, &nodes, Some(1));
        assert!(sliced * 10 <= whole * 13, "stores of {capacity}: {sliced} bytes with slices, {whole} without");
    }
}

/// Few nodes, no stores: one after the other asks the origin, and later ones are sent to get whole
/// chunks. It sends each chunk twice at most.
#[test]
fn slices_of_a_crowd_cost_the_origin_two_chunks_at_most() {
    let (field, nodes) = field_of(3, 30, 0);
    let (_, sent) = boot(field, &nodes, Some(1));
    // Sixteen slices have a chunk's bytes and their siblings; pages come on top.
    let most = 60 * (2 * (16 << 10) + 16 * 100) + (64 << 10);
    assert!(sent <= most, "{sent} bytes, {most} allowed");
}
