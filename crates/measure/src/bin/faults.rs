//! Faults from the command line: something goes wrong, again and again, while readers on all hosts
//! read everything.
//!
//! `faults kills --nodes 20 --seconds 600`, or several names, or none for all of them. Prints a row
//! of a table for each; `--json FILE` appends all that was noticed. `scripts/faults` runs the
//! recorded ones. Needs root, and nothing of it is left behind.

use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;
use vfield_measure::fault::{Fault, Plan, run};
use vfield_measure::program;
use vfield_measure::storm::plan::bytes;

/// Bring faults about in a field of shaped hosts on this machine.
#[derive(Debug, Parser)]
#[command(name = "faults", max_term_width = 110)]
struct Options {
    /// Which [default: all]
    fault: Vec<Fault>,
    /// Nodes besides the origin, each with a reader
    #[arg(long, short = 'n', default_value_t = 6)]
    nodes: usize,
    /// Rate of each host's link, each way on its own
    #[arg(long, short = 'b', default_value_t = 50)]
    mbit: u64,
    /// Length of the image, in binary units
    #[arg(long, short = 's', default_value = "64M", value_parser = bytes)]
    size: u64,
    /// What each node holds
    #[arg(long, default_value = "40%")]
    store: String,
    /// Bytes that each reader asks for in a second at most [default: all that it can get]
    #[arg(long, value_parser = bytes)]
    rate: Option<u64>,
    /// For how long each fault is brought about
    #[arg(long, default_value_t = 15.0)]
    seconds: f64,
    /// The same seed strikes the same hosts in the same order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many times, with seeds that follow each other
    #[arg(long, short = 'r', default_value_t = 1)]
    repeat: u64,
    /// Append one JSON object for each
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program [default: beside this one]
    #[arg(long, value_name = "PATH", env = "VFIELD_BIN")]
    vfield: Option<PathBuf>,
}

fn main() {
    match all(&Options::parse()) {
        Ok(true) => (),
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("faults: {error}");
            std::process::exit(2);
        }
    }
}

/// Brings all about; true if nobody noticed anything but stalls.
fn all(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let vfield = program::vfield(options.vfield.as_deref())?;
    let faults = if options.fault.is_empty() { Fault::ALL.to_vec() } else { options.fault.clone() };
    let mut clean = true;
    for seed in options.seed..options.seed + options.repeat {
        for &fault in &faults {
            let plan = Plan {
                nodes: options.nodes,
                mbit: options.mbit,
                size_bytes: options.size,
                store: options.store.clone(),
                reader_bytes_per_s: options.rate,
                lasts: Duration::try_from_secs_f64(options.seconds)?,
                seed,
                vfield: vfield.clone(),
            };
            let finding = run(fault, &plan)?;
            println!("{}", finding.row());
            finding.errors.iter().take(5).for_each(|error| println!("    {error}"));
            clean &= finding.is_clean();
            if let Some(path) = &options.json {
                program::append(path, &finding)?;
            }
        }
    }
    Ok(clean)
}
