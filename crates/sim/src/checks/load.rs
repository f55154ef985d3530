//! Every table and every queue of a core is bounded, by what is under way and by what the field has of chunks and zones.

use crate::field::Field;

/// So many timers belong to no chunk: one or a few for each purpose of a node, and of its images.
const TIMERS: usize = 64;
/// So many nodes of another zone are remembered.
const CONTACTS: usize = 3;

pub(super) fn check(field: &Field, machine: usize) -> Result<(), String> {
    let host = &field.machines[machine];
    let load = host.node.load();
    let open = host.readers.iter().map(|reader| field.readers[*reader as usize].open.len()).sum();
    // As many as there are chunks may be out of date: of whom is no more, or of a chunk that is not wanted any more.
    let stale = field.images.iter().map(|image| image.chunks() as usize).sum::<usize>();
    // Whoever asks is looked for among all machines, which takes long where there are many, so only if it matters.
    let asked = || {
        let flights = field.machines.iter().filter(|other| other.alive).flat_map(|other| other.flights.iter());
        flights.filter(|(_, flight)| flight.to as usize == machine).count()
    };
    let askers_max = if load.askers > stale { asked() + stale } else { stale };
    let bounds = [
        ("outputs that nobody took", load.outputs, 0),
        ("requests", load.requests, host.flights.len()),
        ("fetches", load.fetches, stale),
        ("readers", load.readers, open),
        ("peers that wait", load.askers, askers_max),
        ("chunks in line", load.lines, load.fetches + stale),
        // Entries of chunks that wait no more, or for another, go when their peer is next looked at.
        ("chunks that wait for a peer", load.parked, load.fetches + 2 * stale),
        ("timers", load.timers, TIMERS + load.fetches),
        ("contacts", load.contacts, CONTACTS * field.zones.len()),
    ];
    match bounds.into_iter().find(|(_, count, most)| count > most) {
        Some((what, count, most)) => Err(format!("has {count} {what}, {most} allowed")),
        None => Ok(()),
    }
}
