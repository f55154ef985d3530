//! The clock of an emulated machine, which is to be right however busy this machine is.
//!
//! The emulator shows its machine this machine's own ticks. A kernel finds out their rate while it
//! starts, by a timer. That timer is late when the emulator waits for a processor. Beside many
//! others the rate was wrong by up to ten times, and nothing that was timed worked as it should.
//! So the kernel is told.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "no crate in use reads the tick counter"))]

use std::time::{Duration, Instant};

/// Ticks are counted for this long. Their rate is then right to a few parts in ten thousand.
const COUNTED: Duration = Duration::from_millis(100);
/// Ticks and time are read within this much of each other.
const TOGETHER: Duration = Duration::from_micros(20);

/// What a kernel has to be told on its command line.
pub(super) fn word() -> String {
    match ticks_khz() {
        Some(khz) => format!("tsc_early_khz={khz}"),
        // A timer of the emulator's, which is slow to read.
        None => "clocksource=hpet".to_owned(),
    }
}

/// The rate of this machine's ticks in kHz; `None` if an emulator's machine would see others.
fn ticks_khz() -> Option<u64> {
    let (start, first) = moment()?;
    std::thread::sleep(COUNTED);
    let (end, last) = moment()?;
    let ticks = u128::from(last.checked_sub(first)?);
    u64::try_from(ticks * 1_000_000 / (end - start).as_nanos()).ok()
}

/// A time, and the ticks then.
fn moment() -> Option<(Instant, u64)> {
    loop {
        let time = Instant::now();
        let ticks = ticks()?;
        if time.elapsed() < TOGETHER {
            return Some((time, ticks));
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> Option<u64> {
    // SAFETY: every processor of this architecture has the instruction, and nobody forbids it.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_same_each_time() {
        let [first, second] = [(); 2].map(|()| ticks_khz().unwrap());
        assert!(first.abs_diff(second) < first / 100, "{first} and {second}");
        assert_eq!(word().split('=').next(), Some("tsc_early_khz"));
    }
}
