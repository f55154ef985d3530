//! Zones: chunks come into each about once, and its nodes are as fast as if there were no others.

use crate::support::field::Field;
use crate::support::original::Original;
use crate::{ms, secs};
use vfield_core::identity::Zone;

/// 50 Mbit/s.
const RATE: u64 = 6_250_000;
const CHUNKS: u64 = 512;

fn zone(number: usize) -> Zone {
    Zone::named(&format!("zone-{number}")).expect("a name")
}

/// An origin in a zone of its own, and zones of `count` nodes each that are switched on together.
fn field(seed: u64, zones: usize, count: usize, capacity: u64) -> (Field, Vec<usize>) {
    let mut field = Field::new(seed, vec![Original::usual(1, CHUNKS)]);
    field.config = vfield_core::config::Config { join_boost: 9, ..Default::default() };
    field.rate = RATE;
    field.zone = zone(0);
    field.origin(None, &[0]);
    let start = |number| {
        field.run(ms(5));
        field.zone = zone(1 + number % zones);
        field.join(0, &[(0, capacity)])
    };
    let nodes = (0..zones * count).map(start).collect();
    (field, nodes)
}

/// The chunks that came into each zone of readers, as images.
fn crossings(field: &Field) -> Vec<f64> {
    let images = |(_, chunks): (&Zone, &u64)| *chunks as f64 / field.images[0].chunks() as f64;
    field.crossed.iter().map(images).collect()
}

#[test]
fn a_chunk_comes_into_a_zone_about_once() {
    for (zones, count) in [(3, 4), (3, 12), (8, 20)] {
        let (mut field, nodes) = field(1, zones, count, 2 * CHUNKS);
        field.run(secs(3));
        let readers = field.read_all(&nodes, 0);
        let took = field.until_read(&readers, secs(400)).as_secs_f64();
        let limit = (CHUNKS * (64 << 10)) as f64 / RATE as f64;
        let crossed = crossings(&field);
        let origin = field.hosts[0].sent_of(0) as f64 / CHUNKS as f64;
        println!("{zones} x {count}: {:.2} of the limit, origin {origin:.2}, into zones {crossed:.2?}", took / limit);
        assert_eq!(crossed.len(), zones);
        assert!(crossed.iter().all(|images| *images <= 1.2), "{crossed:?}");
        assert!(origin <= 1.1, "{origin}");
        assert!(took / limit <= 1.6, "{}", took / limit);
    }
}

#[test]
fn the_origin_may_go_once_a_zone_has_it_all() {
    let (mut field, nodes) = field(2, 3, 4, 2 * CHUNKS / 3);
    field.until("stores are full", secs(120), |field| field.filled(&nodes) && field.covered(&nodes));
    field.kill(0, true);
    let readers = field.read_all(&nodes, 0);
    field.until_read(&readers, secs(120));
}

#[test]
fn zones_that_are_each_too_small_help_each_other_out() {
    let (mut field, nodes) = field(3, 3, 4, CHUNKS / 8);
    field.until("stores are full", secs(120), |field| field.filled(&nodes));
    let readers = field.read_all(&nodes, 0);
    field.until_read(&readers, secs(400));
}

#[test]
fn a_zone_that_loses_all_its_gateways_finds_the_others_again() {
    let (mut field, nodes) = field(4, 3, 8, 0);
    field.run(secs(12));
    let oldest: Vec<usize> =
        nodes.iter().copied().filter(|node| field.hosts[*node].identity.zone == zone(1)).take(4).collect();
    for gateway in &oldest {
        field.kill(*gateway, true);
    }
    let left: Vec<usize> = nodes.into_iter().filter(|node| !oldest.contains(node)).collect();
    let readers = field.read_all(&left, 0);
    field.until_read(&readers, secs(400));
}
