//! Load: every table and queue of a core is bounded, by the work under way and by the field's
//! chunks and zones.

use crate::field::Field;
use crate::malicious::Malice;

/// Timers without a chunk: a few for each purpose of a node, and of its images.
const TIMERS: usize = 64;
/// Remembered nodes of another zone.
const CONTACTS: usize = 3;

pub(super) fn check(field: &Field, machine: usize) -> Result<(), String> {
    let host = &field.machines[machine];
    let load = host.node.load();
    let open = host.readers.iter().map(|reader| field.readers[*reader as usize].open.len()).sum();
    // As many entries as there are chunks may be out of date: of departed nodes, or of unwanted
    // chunks.
    let stale = field.images.iter().map(|image| image.chunks() as usize).sum::<usize>();
    // The search for askers scans all machines, which takes long in a large field, so it runs only
    // on demand.
    let asked = || {
        let flights = field.machines.iter().filter(|other| other.alive).flat_map(|other| other.flights.iter());
        flights.filter(|(_, flight)| flight.to as usize == machine).count()
    };
    let askers_max = if load.askers > stale { asked() + stale } else { stale };
    let invented = if field.has_known_malice() { Malice::ZONES } else { 0 };
    let zones = field.zones.len() + invented;
    let bounds = [
        ("outputs not taken", load.outputs, 0),
        ("requests", load.requests, host.flights.len()),
        ("fetches", load.fetches, stale),
        ("readers", load.readers, open),
        ("peers that wait", load.askers, askers_max),
        ("chunks in line", load.lines, load.fetches),
        // Entries of chunks that wait no more, or for another, go when their peer is next looked
        // at.
        ("chunks that wait for a peer", load.parked, load.fetches + 2 * stale),
        ("timers", load.timers, TIMERS + load.fetches),
        ("contacts", load.contacts, CONTACTS * zones),
    ];
    match bounds.into_iter().find(|(_, count, most)| count > most) {
        Some((what, count, most)) => Err(format!("has {count} {what}, {most} allowed")),
        None => Ok(()),
    }
}
