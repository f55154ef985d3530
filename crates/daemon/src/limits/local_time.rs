//! The time of day of this machine (`localtime_r(3)`).
//!
//! The C library reads the time zone at the first call and keeps it, its rules for summer time
//! included. So the daemon calls [`minute_of_day`] before its sandbox closes.

#![expect(unsafe_code, reason = "no crate in use knows time zones")]

use std::mem::MaybeUninit;
use std::time::{SystemTime, UNIX_EPOCH};

/// Minutes of a day.
pub const DAY: u16 = 24 * 60;

/// Minutes since midnight, 0 to 1439; those of UTC on a machine without a time zone.
pub fn minute_of_day() -> u16 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let local = libc::time_t::try_from(seconds).ok().and_then(local);
    let utc = (seconds / 60 % u64::from(DAY)) as u16;
    local.map_or(utc, |(hour, minute)| (hour * 60 + minute).min(DAY - 1))
}

/// Hour and minute of a moment in this machine's time zone.
fn local(seconds: libc::time_t) -> Option<(u16, u16)> {
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and a `tm` of zeros is one.
    let parts = unsafe {
        if libc::localtime_r(&raw const seconds, parts.as_mut_ptr()).is_null() {
            return None;
        }
        parts.assume_init()
    };
    Some((u16::try_from(parts.tm_hour).ok()?, u16::try_from(parts.tm_min).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_later_is_an_hour_later() {
        let (hour, minute) = local(1_700_000_000).unwrap();
        assert!(hour < 24 && minute < 60);
        // No time zone changes in these days of November.
        assert_eq!(local(1_700_003_600).unwrap(), ((hour + 1) % 24, minute));
        assert!(minute_of_day() < DAY);
    }
}
