//! `boot`: machines boot from the image at once, with small reads all over it in a recorded order.

use super::Failure;
use crate::dice::Dice;
use crate::field::Reads;
use crate::network::takes;
use crate::reader::Order;
use crate::report::{BootReport, Report as _, peak_rss_bytes};
use crate::scenario::room::Room;
use crate::scenario::units;
use clap::Args;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfield_core::prefetch::Recorder;
use vfield_core::slice::GROUP_BYTES;

/// `boot` and its options.
#[derive(Debug, Args)]
pub struct Options {
    /// The machines and their network
    #[command(flatten)]
    pub room: Room,
    /// Share of the image that is read, in percent
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100), value_name = "PERCENT")]
    pub percent: u64,
    /// Bytes of each read, in blocks of 4 KiB [default: a whole chunk]
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    pub block: Option<u64>,
    /// Nodes have joined and filled their stores before the start [default: they are started at the
    /// start]
    #[arg(long)]
    pub warm: bool,
    /// A machine of the day before has booted, and all prefetch along its list
    #[arg(long)]
    pub learned: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Machines that are switched on together do not start in one instant: within this.
const START_WITHIN: Duration = Duration::from_millis(50);

/// Boots all, and says how long their reads took.
///
/// # Errors
/// Options that make no sense; readers that do not finish.
pub fn run(options: &Options) -> Result<(), Failure> {
    let room = &options.room;
    room.check(0).map_err(Failure::Usage)?;
    room.fits(options.percent as f64 / 100.0).map_err(Failure::Usage)?;
    let began = Instant::now();
    let (mut field, mut dice) = (room.field(), Dice::new(room.seed ^ 0xB0_07));
    field.keeps_times = true;
    let groups = options.block.map(|block| u16::try_from(block.div_ceil(GROUP_BYTES)));
    field.groups = groups.transpose().map_err(|_| Failure::Usage("--block: at most 256M".to_owned()))?;
    let list = recorded(room, options.percent, &mut dice);
    if options.learned {
        let mut recorder = Recorder::new(room.image.div_ceil(room.chunk), room.chunk);
        let length = options.block.unwrap_or(room.chunk).min(room.chunk);
        let bytes = list.iter().map(|read| read.start * room.chunk..read.start * room.chunk + length);
        bytes.for_each(|bytes| recorder.note(bytes, field.now()));
        field.learned = Some(recorder.list());
    }
    let reads = || Reads { image: 0, order: Order::Recorded(Arc::clone(&list), 0), depth: 1 };
    let nodes = if options.warm { room.warm_up(&mut field, &mut dice)? } else { Vec::new() };
    let sent = field.machines[0].traffic.payload_sent;
    for node in 0..room.nodes {
        let wait = Duration::from_nanos(dice.roll() % START_WITHIN.as_nanos() as u64);
        match nodes.get(node) {
            Some(&machine) => field.read_later(wait, machine, reads()),
            None => _ = room.switch_on(&mut field, &mut dice, wait, Some(reads())),
        }
    }
    let start = field.now();
    let done = |field: &crate::field::Field| {
        field.readers.len() == room.nodes && field.readers.iter().all(crate::reader::Reader::is_done)
    };
    let took = field.try_until(room.limit, done);
    room.has_kept_within_memory(&field)?;
    let mut times: Vec<f64> =
        field.readers.iter().flat_map(|reader| reader.times.iter().flatten()).map(Duration::as_secs_f64).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    let delay = (room.delay * 2 + field.links.jitter).as_secs_f64();
    let chunk = takes(field.links.on_the_wire(room.chunk), room.usual_link()).as_secs_f64();
    let report = BootReport {
        nodes: room.nodes,
        zone_size: room.zone_size,
        warm: options.warm,
        reads: list.len(),
        median_round_trips: at(0.5) / (delay + chunk),
        median_s: at(0.5),
        p99_s: at(0.99),
        most_s: times.last().copied().unwrap_or(f64::NAN),
        round_trip_s: delay + chunk,
        finish_s: took.map_or(f64::NAN, |took| took.as_secs_f64()),
        origin_copies: (field.machines[0].traffic.payload_sent - sent) as f64 / (list.len() as u64 * room.chunk) as f64,
        seed: room.seed,
        trace: field.trace().to_hex().to_string(),
        wall_s: began.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
    };
    report.print(options.json);
    match took {
        Some(_) => Ok(()),
        None => Err(Failure::Unfinished(format!("readers did not finish since {start:?}"))),
    }
}

/// Chunks at random places, each once: what a machine reads when it boots, and every other like it.
fn recorded(room: &Room, percent: u64, dice: &mut Dice) -> Arc<Vec<std::ops::Range<u64>>> {
    let mut chunks: Vec<u64> = (0..room.image.div_ceil(room.chunk)).collect();
    dice.shuffle(&mut chunks);
    chunks.truncate((chunks.len() as u64 * percent).div_ceil(100) as usize);
    Arc::new(chunks.into_iter().map(|chunk| chunk..chunk + 1).collect())
}
