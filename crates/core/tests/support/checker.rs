//! What has to hold after every event, whatever happens.

use super::host::Host;
use super::original::Original;
use std::collections::BTreeMap;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::{Config, HEDGE_AFTER};
use vfield_core::time::Time;

/// Looking at a whole inventory at every event would cost more than all else.
const FULL_CHECK_EVERY: u64 = 64;

/// Checks one machine after it has handled an event and its outputs were taken.
pub fn check(host: &Host, images: &[Original], config: &Config, now: Time) {
    let mut outstanding = 0;
    let mut by_chunk: BTreeMap<_, Vec<Time>> = BTreeMap::new();
    for flight in host.flights.values().filter(|flight| !flight.cancelled) {
        outstanding += flight.bytes;
        by_chunk.entry((flight.image, flight.chunk)).or_default().push(flight.sent);
    }
    let mut hedges = 0;
    for ((image, chunk), mut sent) in by_chunk {
        sent.sort_unstable();
        assert!(sent.len() <= 2, "{} requests for {chunk} of image {image}", sent.len());
        if let [first, second] = sent[..] {
            assert!(second - first >= HEDGE_AFTER, "a second request for {chunk} after {:?}", second - first);
            hedges += 1;
        }
    }
    let chunk = ChunkSize::MIN.bytes();
    let bound = config.window_bytes + chunk * (hedges + 1);
    assert!(outstanding <= bound, "{outstanding} bytes outstanding, {bound} allowed");
    if host.events.is_multiple_of(FULL_CHECK_EVERY) {
        check_inventory(host, images, config, now);
    }
}

fn check_inventory(host: &Host, images: &[Original], config: &Config, now: Time) {
    for view in host.node.images() {
        let image = images.iter().position(|image| image.id == view.id).expect("a known image");
        assert!(view.stored <= view.capacity, "{} stored, capacity {}", view.stored, view.capacity);
        let held = host.shelf.get(&image).map_or(0, |shelf| shelf.len() as u64);
        assert_eq!(held, view.stored + view.transient, "the shell and the core disagree");
        let transient_max = (config.transient_bytes / ChunkSize::MIN.bytes()).max(4);
        assert!(view.transient <= transient_max, "{} transient, {transient_max} allowed", view.transient);
        assert!((0.0..=1.0).contains(&view.coverage.share));
        for waited in view.waiting {
            assert!(waited.wait <= now - Time::ZERO + Duration::ZERO);
        }
    }
}
