//! Single flight: one request for a chunk, two if the first is late. The window bounds the bytes
//! that are requested. Spot checks and probes are requests besides, with a bound of their own.

use crate::field::Field;
use vfield_core::tuning::HEDGE_AFTER;

/// Most spot checks of one image at a time, and most bytes of a probe before its last chunk. There
/// is one probe at a time.
const CHECKS_MAX: u64 = 16;
const PROBE_BYTES_MAX: u64 = 512 << 10;

pub(super) fn check(field: &Field, machine: usize) -> Result<(), String> {
    let host = &field.machines[machine];
    let mut flights: Vec<_> = host.flights.iter().filter(|(_, flight)| !flight.cancelled).collect();
    flights.sort_unstable_by_key(|(_, flight)| (flight.check, flight.image, flight.chunk, flight.sent));
    let (mut outstanding, mut checked, mut hedges, mut longest) = (0, 0, 0, 0);
    for (at, (_, flight)) in flights.iter().enumerate() {
        let bytes = field.images[usize::from(flight.image)].geometry.length(flight.chunk);
        *(if flight.check { &mut checked } else { &mut outstanding }) += bytes;
        longest = longest.max(bytes);
        let same = |other: usize| {
            let before = flights.get(at.checked_sub(other)?)?.1;
            let same = (before.image, before.chunk) == (flight.image, flight.chunk);
            (same && !flight.check).then_some(before)
        };
        if same(2).is_some() {
            return Err(format!("has three requests for {} of image {}", flight.chunk, flight.image));
        }
        if let Some(first) = same(1) {
            let gap = flight.sent - first.sent;
            if gap < HEDGE_AFTER && host.ahead.is_zero() {
                return Err(format!("asks for {} a second time after {gap:?}", flight.chunk));
            }
            hedges += 1;
        }
    }
    let window =
        field.images.iter().map(|image| field.config.window_for(image.geometry.chunk_bytes())).max().unwrap_or(0);
    let bound = window + longest * (hedges + 1);
    if outstanding > bound {
        return Err(format!("has {outstanding} bytes outstanding, {bound} allowed"));
    }
    let images = host.shelves.iter().flatten().count() as u64;
    let bound = PROBE_BYTES_MAX + longest * (CHECKS_MAX * images + 1);
    if checked > bound { Err(format!("has {checked} bytes of checks outstanding, {bound} allowed")) } else { Ok(()) }
}
