//! Zones: chunks enter each about once, and its nodes find them as if there were no other zones.

use crate::secs;
use vfield_core::config::Config;
use vfield_sim::field::Field;
use vfield_sim::machine::Fault;
use vfield_sim::original::Original;

/// 50 Mbit/s, in bytes per second.
const RATE: u64 = 6_250_000;
const CHUNKS: u64 = 512;

/// Zones of `size` nodes each that are switched on together; the origin is one of the first.
fn field(seed: u64, zones: usize, size: usize, capacity: u64) -> (Field, Vec<usize>) {
    let mut field = Field::new(seed, vec![Original::usual(1, CHUNKS)]);
    field.config = Config { join_boost: 9, ..Config::default() };
    field.links.rate = RATE;
    field.links.zone_size = size;
    field.origin(None, &[0]);
    let start = |_| {
        field.run(crate::ms(5));
        field.join(0, &[(0, capacity)])
    };
    let nodes = (1..zones * size).map(start).collect();
    (field, nodes)
}

/// Nodes have filled part of their stores by then.
#[test]
fn a_chunk_comes_into_a_zone_about_once() {
    for (zones, size, longest) in [(3, 4, 0.8), (4, 12, 1.0)] {
        let (mut field, nodes) = field(1, zones, size, 2 * CHUNKS);
        field.run(secs(3));
        let readers = field.read_all(&nodes, 0);
        let took = field.until_read(&readers, secs(400)).as_secs_f64();
        let image = (CHUNKS * (64 << 10)) as f64;
        let came = field.zones.iter().map(|zone| zone.payload_came as f64 / image).collect::<Vec<_>>();
        let origin = field.machines[0].sent_of(0) as f64 / CHUNKS as f64;
        assert!(came[1..].iter().all(|images| (0.9..1.2).contains(images)), "{came:?} images came into the zones");
        assert!(origin <= 1.1, "the origin sent {origin} images");
        let took = took * RATE as f64 / image;
        assert!(took <= longest, "{zones} zones of {size} took {took} of what a link needs");
    }
}

/// 1.0 is the limit. No gateway has more to send than others, or its downstream would be slower.
#[test]
fn cold_zones_come_near_the_limit() {
    let (mut field, nodes) = field(1, 2, 20, 2 * CHUNKS);
    let began = field.now();
    let readers = field.read_all(&nodes, 0);
    field.until_read(&readers, secs(100));
    let link = (CHUNKS * (64 << 10)) as f64 / RATE as f64;
    let times: Vec<f64> =
        readers.iter().map(|reader| (field.readers[*reader].since - began).as_secs_f64() / link).collect();
    assert!(times.iter().all(|time| *time <= 1.2), "{times:?} of what a link needs");
}

#[test]
fn the_origin_may_go_once_a_zone_has_it_all() {
    let (mut field, nodes) = field(2, 3, 4, CHUNKS * 2 / 3);
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
    // The eldest of the second zone.
    let (gateways, left): (Vec<usize>, Vec<usize>) = nodes.into_iter().partition(|node| (8..12).contains(node));
    for gateway in gateways {
        field.kill(gateway, true);
    }
    let readers = field.read_all(&left, 0);
    field.until_read(&readers, secs(400));
}

/// Three zones. The gateways of the second one refuse whatever they are asked for; its other nodes.
fn refused_zone(seed: u64) -> (Field, Vec<usize>) {
    let (mut field, nodes) = field(seed, 3, 8, 0);
    field.run(secs(3));
    let near = field.machines[15].node.zones().near;
    let zone = nodes.into_iter().filter(|node| (8..16).contains(node));
    let (gateways, others): (Vec<usize>, Vec<usize>) =
        zone.partition(|node| near.contains(&field.machines[*node].identity.node));
    assert_eq!(gateways.len(), 3);
    gateways.into_iter().for_each(|gateway| field.set_fault(gateway, Fault::Boasting));
    (field, others)
}

#[test]
fn a_zone_whose_gateways_refuse_everything_reads_all_the_same() {
    let (mut field, others) = refused_zone(5);
    let readers = field.read_all(&others, 0);
    field.until_read(&readers, secs(60));
    let longest = field.longest_wait(&readers);
    assert!(longest <= secs(1), "a reader waited for {longest:?}");
}

/// No node has the image for a minute, so all gateways refuse. Zones are as they were once it is
/// back.
#[test]
fn gateways_that_have_nothing_to_give_stay_gateways() {
    let (mut field, nodes) = field(6, 3, 8, 0);
    field.run(secs(3));
    field.kill(0, true);
    let readers = field.read_all(&nodes, 0);
    field.run(secs(60));
    field.serve_again(0, &[0]);
    field.until_read(&readers, secs(60));
    let image = (CHUNKS * (64 << 10)) as f64;
    let came = field.zones.iter().map(|zone| zone.payload_came as f64 / image).collect::<Vec<_>>();
    assert!(came[1..].iter().all(|images| *images < 2.0), "{came:?} images came into the zones");
}
