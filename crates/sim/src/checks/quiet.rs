//! Nothing is left over: once nobody reads and stores are full no request is in flight, and nothing is in any queue.

use crate::field::Field;
use std::time::Duration;

/// A request that is older than this has been forgotten by somebody.
const FORGOTTEN: Duration = Duration::from_secs(10);

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    for machine in field.there() {
        let host = &field.machines[machine];
        let old = host.flights.iter().find(|(_, flight)| field.now() - flight.sent > FORGOTTEN);
        if let Some((request, flight)) = old {
            let what = format!("has no end of {request:?} for {} to machine {}", flight.chunk, flight.to);
            return Err((machine, what));
        }
    }
    Ok(())
}
