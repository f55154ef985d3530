//! Estimates the memory and the time of a run before it starts.
//!
//! Both come from measured runs, and are a little too high on purpose.

use super::room::Room;
use super::units::Store;
use std::time::Duration;
use vfield_core::placement::Gateways;

/// The estimated cost of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Memory at its most.
    pub memory_bytes: u64,
    /// Time on one core of 2020.
    pub time: Duration,
}

/// Longest run without confirmation.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// The simulator itself.
const BASE_BYTES: u64 = 16 << 20;
/// Bytes of a machine without peers. This and the following values were fitted to fifteen runs of
/// 200 to 100 000 machines, alone and in zones of 50 and 128, in chunks of 64 KiB to 1 MiB. The
/// largest, with 100 000 in zones of 128, took 15.4 to 15.6 GB.
const MACHINE_BYTES: u64 = 38 << 10;
/// Bytes that a machine keeps of another one in its zone: its membership, its holding, the lanes
/// between them, and messages about it while a room is switched on.
const MEMBER_BYTES: u64 = 420;
/// Bytes that a gateway keeps of another: 350, and while a field is switched on more than half as
/// many again are gateways.
const GATEWAY_BYTES: u64 = 850;
/// Gateways of a zone.
const GATEWAYS: u64 = Gateways::COUNT as u64;
/// Bytes that a machine keeps of a chunk: bits in a few tables.
const CHUNK_BYTES: u64 = 1;
/// Bytes that it keeps of a chunk under way: those read ahead, and half as many for readers and
/// stores.
const UNDER_WAY_BYTES: u64 = 200;
/// Time of a chunk that arrives at a machine in a small zone, with all messages about it. In a
/// field of a hundred machines it is a fifth of that, since their state is in the CPU's cache.
const CHUNK_TIME: Duration = Duration::from_micros(25);
/// Additional time of a chunk for each member of a larger zone.
const CHUNK_TIME_MEMBER: Duration = Duration::from_nanos(60);
/// Time to tell one member of the zone of a joining machine.
const JOIN_TIME_MEMBER: Duration = Duration::from_micros(60);

impl Estimate {
    /// The cost of a room in which each node reads this share of the image.
    pub fn of(room: &Room, read: f64) -> Self {
        let nodes = room.nodes as u64;
        let known = room.zone_size.unwrap_or(usize::MAX).min(room.nodes) as u64;
        let chunks = room.image.div_ceil(room.chunk);
        let stored = match room.store {
            Store::Share(share) => share,
            Store::Bytes(bytes) => (bytes as f64 / room.image as f64).min(1.0),
            Store::Random => 0.5,
        };
        let each = MACHINE_BYTES
            .saturating_add(known.saturating_mul(MEMBER_BYTES))
            .saturating_add(chunks.saturating_mul(CHUNK_BYTES))
            .saturating_add(chunks.min(room.config().chunks_ahead(room.chunk) / 2 * 3).saturating_mul(UNDER_WAY_BYTES));
        // Each knows all others.
        let gateways = room.zone_size.map_or(0, |size| nodes.div_ceil(size as u64) * GATEWAYS.min(size as u64));
        let backbone = gateways.saturating_mul(gateways).saturating_mul(GATEWAY_BYTES);
        let chunk_s = CHUNK_TIME.as_secs_f64() + CHUNK_TIME_MEMBER.as_secs_f64() * known as f64;
        let join_s = JOIN_TIME_MEMBER.as_secs_f64() * known as f64;
        let seconds = nodes as f64 * (chunks as f64 * read.max(stored) * chunk_s + join_s);
        Self {
            memory_bytes: BASE_BYTES.saturating_add(nodes.saturating_mul(each)).saturating_add(backbone),
            time: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
        }
    }
}

impl Room {
    /// Checks the cost against the bounds, unless they were lifted.
    ///
    /// # Errors
    /// The reason why the run does not fit, for the user.
    pub fn fits(&self, read: f64) -> Result<(), String> {
        let Estimate { memory_bytes, time } = Estimate::of(self, read);
        if self.force || (memory_bytes <= self.memory && time <= TIME_MAX) {
            return Ok(());
        }
        Err(format!(
            "this would take about {:.1} GB of memory and {:.0} minutes: fewer nodes, smaller zones (--zone-size), a smaller \
             image, larger chunks (--chunk), or --force to begin all the same",
            memory_bytes as f64 / 1e9,
            time.as_secs_f64() / 60.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::storm::Storm;
    use clap::{Args as _, Command, FromArgMatches as _};

    fn room(args: &[&str]) -> Room {
        let matches = Storm::augment_args(Command::new("storm")).no_binary_name(true).get_matches_from(args);
        Storm::from_arg_matches(&matches).expect("a storm").room
    }

    #[test]
    fn usual_runs_fit() {
        for args in [
            &["--nodes", "10000", "--image", "256M", "--zone-size", "50"][..],
            &["--nodes", "30000", "--image", "32M", "--zone-size", "50"],
            &["--nodes", "100000", "--image", "32M", "--zone-size", "128", "--chunk", "256K"],
            &["--nodes", "1000"],
        ] {
            assert_eq!(room(args).fits(1.0), Ok(()), "{args:?}");
        }
    }

    #[test]
    fn oversized_runs_are_refused_in_one_line_with_advice() {
        // Two thousand zones have six thousand gateways, which would know each other.
        let args = ["--nodes", "100000", "--image", "32M", "--chunk", "1M", "--zone-size", "50"];
        assert!(room(&args).fits(1.0).is_err());
        let args = ["--nodes", "100000", "--image", "10G"];
        let line = room(&args).fits(1.0).expect_err("it cannot fit");
        assert!(line.lines().count() == 1 && line.contains("--force"), "{line}");
        assert_eq!(room(&[&args[..], &["--force"]].concat()).fits(1.0), Ok(()));
    }
}
