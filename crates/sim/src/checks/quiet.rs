//! Quiet: once no machine reads and stores are full, no request is in flight, and all queues are
//! empty.

use super::reads::holders;
use crate::field::Field;
use crate::machine::flights::Flight;
use std::time::Duration;

/// Age from which a request counts as forgotten, over links with the field's rate.
const FORGOTTEN: Duration = Duration::from_secs(10);

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    for machine in field.honest() {
        let host = &field.machines[machine];
        // No peer hears of a power loss; cancelled requests to that machine end with TCP's
        // patience, minutes later.
        // Nor does a member that answers nothing answer those.
        let answers = |machine: usize| {
            let host = &field.machines[machine];
            host.alive && host.malice.as_ref().is_none_or(|malice| !malice.ignores())
        };
        let lasts = |flight: &Flight| answers(flight.to as usize) || !flight.cancelled;
        // A chunk without a holder is requested of all in turn, and they ask others for the waiting
        // askers.
        let is_had = |flight: &Flight| !holders(field, usize::from(flight.image), flight.chunk).is_empty();
        let forgotten = |flight: &Flight| FORGOTTEN * slowness(field, [machine, flight.to as usize]);
        let is_old = |flight: &Flight| field.now() - flight.sent > forgotten(flight) && lasts(flight) && is_had(flight);
        let old = host.flights.iter().find(|(_, flight)| is_old(flight));
        if let Some((request, flight)) = old {
            let what = format!("has no end of {request:?} for {} to machine {}", flight.chunk, flight.to);
            return Err((machine, what));
        }
    }
    Ok(())
}

/// How many times slower the slowest own link of these machines is than the field's rate.
fn slowness(field: &Field, machines: [usize; 2]) -> u32 {
    let own = machines.map(|machine| field.links.rates(field.machines[machine].place));
    let slowest = own.iter().map(|own| own.up.min(own.down)).min().unwrap_or(field.links.rate);
    (field.links.rate / slowest.max(1)).max(1) as u32
}
