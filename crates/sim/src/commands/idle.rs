//! `idle`: the traffic between nodes while no machine reads.

use super::Failure;
use crate::dice::Dice;
use crate::report::{IdleReport, Report as _, Spread, peak_rss_bytes};
use crate::scenario::room::Room;
use crate::scenario::units;
use clap::Args;
use std::time::{Duration, Instant};

/// Time after which nothing is news any more. In a large room the last records of stores go round
/// for a minute.
const QUIET_AFTER: Duration = Duration::from_secs(60);

/// `idle` and its options.
#[derive(Debug, Args)]
pub struct Options {
    /// The machines and their network
    #[command(flatten)]
    pub room: Room,
    /// Time of the measurement, a minute after all stores are full
    #[arg(long = "for", default_value = "60s", value_parser = units::time, value_name = "TIME")]
    pub watched: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Fills all stores, lets a minute pass, then watches.
///
/// # Errors
/// Options that make no sense; stores that do not fill.
pub fn run(options: &Options) -> Result<(), Failure> {
    let room = &options.room;
    room.check(0).map_err(Failure::Usage)?;
    if options.watched < Duration::from_secs(1) {
        return Err(Failure::Usage("--for: at least a second".to_owned()));
    }
    room.fits(0.0).map_err(Failure::Usage)?;
    let began = Instant::now();
    let (mut field, mut dice) = (room.field(), Dice::new(room.seed ^ 0x1D_1E));
    room.warm_up(&mut field, &mut dice)?;
    field.run(QUIET_AFTER);
    let sent = |field: &crate::field::Field| -> Vec<u64> {
        field.machines.iter().map(|machine| machine.traffic.control_sent).collect()
    };
    let before = sent(&field);
    field.run(options.watched);
    room.has_kept_within_memory(&field)?;
    let seconds = options.watched.as_secs_f64();
    let rates = sent(&field).into_iter().zip(before).map(|(after, before)| (after - before) as f64 / seconds);
    let rates: Vec<f64> = rates.collect();
    let known =
        |machine: &crate::machine::Machine| (machine.node.members().len() + machine.node.backbone().len()) as f64;
    let report = IdleReport {
        nodes: room.nodes,
        zone_size: room.zone_size,
        control_bytes_per_s: Spread::of(rates.iter().copied()),
        control_bytes_per_s_mean: rates.iter().sum::<f64>() / rates.len() as f64,
        known: Spread::of(field.machines.iter().map(known)),
        watched_s: seconds,
        seed: room.seed,
        trace: field.trace().to_hex().to_string(),
        wall_s: began.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
    };
    report.print(options.json);
    Ok(())
}
