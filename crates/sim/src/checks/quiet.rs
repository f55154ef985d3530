//! Nothing is left over: once nobody reads and stores are full no request is in flight, and nothing is in any queue.

use super::reads::holders;
use crate::field::Field;
use crate::machine::flights::Flight;
use std::time::Duration;

/// A request that is older than this has been forgotten by somebody.
const FORGOTTEN: Duration = Duration::from_secs(10);

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    for machine in field.there() {
        let host = &field.machines[machine];
        // Nobody is told of a machine whose power failed; what was called off there ends with TCP's patience, minutes later.
        let lasts = |flight: &Flight| field.machines[flight.to as usize].alive || !flight.cancelled;
        // What nobody has is asked for of all in turn, and they ask others on behalf of those who wait.
        let is_had = |flight: &Flight| !holders(field, flight.chunk).is_empty();
        let is_old = |flight: &Flight| field.now() - flight.sent > FORGOTTEN && lasts(flight) && is_had(flight);
        let old = host.flights.iter().find(|(_, flight)| is_old(flight));
        if let Some((request, flight)) = old {
            let what = format!("has no end of {request:?} for {} to machine {}", flight.chunk, flight.to);
            return Err((machine, what));
        }
    }
    Ok(())
}
