//! The processes of a storm's hosts, and what they say to the one that runs the race.
//!
//! A role is given in an environment variable, as the program may be a test, whose arguments are
//! taken. What a role says are lines with a mark in front, since such a program may print other
//! things as well. All processes of a machine share the monotonic clock, so one line names the
//! moment at which all of them start.

use super::{reader, relay};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable with the role.
pub const VARIABLE: &str = "VFIELD_STORM_ROLE";
/// In front of each line that is meant for the race.
const MARK: &str = "storm: ";

/// The programs of a storm.
#[derive(Debug, Clone)]
pub struct Programs {
    /// A program that begins with [`play_role`], and its arguments.
    pub helper: (PathBuf, Vec<String>),
    /// The program under test.
    pub vfield: PathBuf,
    /// For [`super::Plan::fronted`]: is told where to listen, and where the node does.
    pub front: Option<PathBuf>,
}

/// What a process of a host does.
#[derive(Debug, Serialize, Deserialize)]
pub enum Role {
    /// Reads an export, perhaps of a node that it starts itself.
    Reader(reader::Order),
    /// Passes a stream of bytes on.
    Relay(relay::Order),
}

/// What it says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// It waits for the start.
    Ready,
    /// It has started a node.
    Node {
        /// The node's process.
        pid: u32,
    },
    /// It is done, well or not; it stays until its standard input ends.
    Done(Outcome),
}

/// What became of a reader.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes that were read and found right.
    pub bytes: u64,
    /// From its start to its end.
    pub seconds: f64,
    /// From its start until its export could be opened.
    pub attach_s: f64,
    /// The longest time that a single request took, or with a relay [`Outcome::longest_gap_s`].
    pub slowest_read_s: f64,
    /// The longest time in which no byte came.
    pub longest_gap_s: f64,
    /// Random reads: what each took.
    pub latencies_us: Vec<u32>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Plays the role that the environment gives, and ends the process; returns if there is none.
pub fn play_role() {
    let Some(role) = std::env::var_os(VARIABLE) else { return };
    let played = serde_json::from_slice(role.as_encoded_bytes()).map_err(io::Error::from).and_then(Role::play);
    let code = match played {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    };
    std::process::exit(code);
}

impl Role {
    fn play(self) -> io::Result<()> {
        match self {
            Self::Reader(order) => reader::play(&order),
            Self::Relay(order) => relay::play(&order),
        }
    }
}

impl Word {
    /// Says it to the race.
    pub(super) fn say(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{MARK}{}", serde_json::to_string(self)?)?;
        out.flush()
    }

    /// What a line says; `None` if it is not for the race.
    pub(super) fn hear(line: &str) -> Option<Self> {
        // A test harness may not have ended its own line.
        let at = line.find(MARK)?;
        serde_json::from_str(&line[at + MARK.len()..]).ok()
    }
}

/// Nanoseconds of the clock that all processes of this machine share.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// Seconds since a moment of that clock.
pub(super) fn seconds_since(start_ns: u64) -> f64 {
    Duration::from_nanos(now_ns().saturating_sub(start_ns)).as_secs_f64()
}

/// The line that lets a role start at a moment.
pub(super) fn go(start_ns: u64) -> String {
    format!("go {start_ns}\n")
}

/// Says that all is prepared, and returns at the moment that the race names.
pub(super) fn await_go() -> io::Result<u64> {
    Word::Ready.say()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let start_ns = line.strip_prefix("go ").and_then(|at| at.trim().parse::<u64>().ok());
    let start_ns = start_ns.ok_or_else(|| io::Error::other("the race was called off"))?;
    std::thread::sleep(Duration::from_nanos(start_ns.saturating_sub(now_ns())));
    Ok(start_ns)
}

/// Waits until the race is over: others may still need what runs on this host.
pub(super) fn await_end() -> io::Result<()> {
    io::stdin().lock().read_to_end(&mut Vec::new()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_heard_among_other_lines() {
        let said = format!("test reader ... {MARK}{}", serde_json::to_string(&Word::Node { pid: 7 }).unwrap());
        assert!(matches!(Word::hear(&said), Some(Word::Node { pid: 7 })));
        assert!(Word::hear("running 1 test").is_none());
        assert!(Word::hear("storm: {").is_none());
    }
}
