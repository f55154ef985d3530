//! Bounds: what others say fills no table of a core beyond its stated constant, and makes no
//! machine send more to strangers than it may.

use crate::field::Field;
use vfield_core::membership::Sizes;
use vfield_core::node::Load;
use vfield_core::node::hearsay::DIALS_A_SECOND;

/// Nodes dialled within a second besides those that others named: members with which snapshots are
/// exchanged, and those that asked this one and know others.
const DIALS_BESIDES: u32 = 40;
/// Datagrams of gossip to one partner within a second: four of news at once, every 50 ms, and some
/// probes and answers.
const TO_PARTNER: u32 = 4 * 20 + 10;
/// Datagrams within a second to members that are held for dead, whom others say to be alive: eight
/// every 50 ms.
const TO_DOUBTFUL: u32 = 8 * 20;
/// Datagrams to foreign addresses within a second. A node has six partners in its zone and six in
/// the backbone, each of which may have been made up, as may be those held for dead. Besides, 32
/// answers and as many questions go to strangers.
const ABROAD: u32 = 64 + 2 * (6 * TO_PARTNER + TO_DOUBTFUL);

pub(super) fn check(field: &Field, machine: usize) -> Result<(), String> {
    let host = &field.machines[machine];
    let load = host.node.load();
    for (of, sizes) in [("zone", load.zone), ("backbone", load.backbone)] {
        for ((what, count), (_, most)) in sizes.named().into_iter().zip(Sizes::MOST.named()) {
            within(&format!("{what} in its {of}"), count, most)?;
        }
    }
    within("statements of other zones", load.outside, Load::OUTSIDE_MAX)?;
    within("dials a second", host.abroad.dials as usize, (DIALS_A_SECOND + DIALS_BESIDES) as usize)?;
    within("datagrams a second to foreign addresses", host.abroad.datagrams as usize, ABROAD as usize)
}

fn within(what: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most { Ok(()) } else { Err(format!("has {count} {what}, {most} allowed")) }
}
