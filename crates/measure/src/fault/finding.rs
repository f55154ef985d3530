//! The effects of a fault on readers.

use super::deeds::Deed;
use super::kind::Fault;
use super::reader::{Reading, Stall};
use serde::Serialize;
use std::time::Duration;

/// Maximum waits in a finding.
const STALLS_MAX: usize = 20;

/// The result of one fault.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The fault's name.
    pub fault: String,
    /// Number of times the fault was caused.
    pub times: usize,
    /// Time from the first byte read to the last, in seconds.
    pub seconds: f64,
    /// Bytes that were read and compared.
    pub bytes: u64,
    /// Blocks that were not the image's.
    pub wrong: u64,
    /// Errors that readers were answered with.
    pub errors: Vec<String>,
    /// The longest time in which a reader that waited got no byte over a connection to its node
    /// that lived.
    pub longest_stall_s: f64,
    /// The same for readers of the nodes that were struck themselves.
    pub own_stall_s: f64,
    /// The longest time from a node's death until its reader got a byte from its
    /// successor.
    pub longest_restart_s: f64,
    /// The longest waits.
    pub stalls: Vec<Stall>,
    /// Each deed with its host and its time in seconds after the fault began.
    pub deeds: Vec<(f64, usize)>,
    /// Leaked resources and other violations.
    pub amiss: Vec<String>,
}

impl Finding {
    pub(super) fn of(fault: Fault, deed: Deed, readings: Vec<Reading>, took: Duration) -> Self {
        let longest = |of: fn(&Reading) -> Duration, struck: bool| {
            let some = readings.iter().filter(|reading| deed.struck.contains(&reading.host) == struck);
            some.map(of).max().unwrap_or_default().as_secs_f64()
        };
        let restart = |reading: &Reading| reading.longest_restart;
        Self {
            fault: fault.to_string(),
            times: deed.times,
            seconds: took.as_secs_f64(),
            bytes: readings.iter().map(|reading| reading.bytes).sum(),
            wrong: readings.iter().map(|reading| reading.wrong).sum(),
            longest_stall_s: longest(|reading| reading.longest_stall, false),
            own_stall_s: longest(|reading| reading.longest_stall, true),
            longest_restart_s: longest(restart, false).max(longest(restart, true)),
            stalls: stalls(&readings),
            deeds: deed.done,
            errors: readings.into_iter().flat_map(|reading| reading.errors).collect(),
            amiss: deed.amiss,
        }
    }

    /// True if every byte was right, nobody got an error, and everything was given back.
    pub fn is_clean(&self) -> bool {
        self.wrong == 0 && self.errors.is_empty() && self.amiss.is_empty() && self.bytes > 0
    }

    /// A row of a table: fault, times, seconds, gigabytes read, wrong blocks, errors, stalls, and
    /// the faults found.
    pub fn row(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
        let gigabytes = self.bytes as f64 / 1e9;
        let seconds = |value: f64| if value > 0.0 { format!("{value:.2}") } else { "–".to_owned() };
        let amiss = if self.amiss.is_empty() { "nothing".to_owned() } else { self.amiss.join("; ") };
        format!(
            "| {} | {} | {:.0} | {gigabytes:.2} | {} | {} | {} | {} | {} | {amiss} |",
            self.fault,
            self.times,
            self.seconds,
            self.wrong,
            self.errors.len(),
            seconds(self.longest_stall_s),
            seconds(self.own_stall_s),
            seconds(self.longest_restart_s),
        )
    }
}

/// The longest of all waits.
fn stalls(readings: &[Reading]) -> Vec<Stall> {
    let mut stalls: Vec<Stall> = readings.iter().flat_map(|reading| reading.stalls.iter().copied()).collect();
    stalls.sort_by(|one, other| other.for_s.total_cmp(&one.for_s));
    stalls.truncate(STALLS_MAX);
    stalls
}
