//! What a byte costs, beside bare sockets and nbdkit in the same run, over the loopback device.
//!
//! `cycles` measures all rows, `cycles fill --rounds 1` one of them. Prints a table of medians;
//! `--json FILE` appends each run. `scripts/cycles` runs the recorded ones. Leave the machine alone
//! meanwhile: what else it does counts as well.

use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use vfield_measure::cycles::{Bench, Row, Taken, Way, play, warm_memory};
use vfield_measure::program;
use vfield_measure::storm::plan::bytes;
use vfield_measure::storm::report::Spread;

/// Measure what moving an image costs on this machine.
#[derive(Debug, Parser)]
#[command(name = "cycles", max_term_width = 110)]
struct Options {
    /// Which [default: all]
    row: Vec<RowName>,
    /// Length of the image, in binary units
    #[arg(long, short = 's', default_value = "1G", value_parser = bytes)]
    size: u64,
    /// How many times; in each round every way has its turn
    #[arg(long, short = 'r', default_value_t = 5)]
    rounds: usize,
    /// One of the ways to move the bytes; repeatable [default: all but huge]
    #[arg(long)]
    way: Vec<WayName>,
    /// Append one JSON object for each run
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program [default: beside this one]
    #[arg(long, value_name = "PATH", env = "VFIELD_BIN")]
    vfield: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RowName {
    /// An origin and a node that fills
    Fill,
    /// An origin and two nodes that fill at once
    Pair,
    /// A client reads through a node that stores nothing
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WayName {
    /// An origin, and nodes that join it
    Vfield,
    /// The same with stores in large pages, if the kernel gives them
    Huge,
    /// Bare processes that receive into resident pages
    Bare,
    /// Bare processes that receive into fresh pages
    Fresh,
    /// nbdkit, without a node between it and the client
    Nbdkit,
}

/// One run, for the record.
#[derive(Debug, Serialize)]
struct Run {
    row: Row,
    way: Way,
    size_bytes: u64,
    #[serde(flatten)]
    taken: Taken,
}

fn main() {
    // The bare processes are this program as well.
    play();
    if let Err(error) = measure(&Options::parse()) {
        eprintln!("cycles: {error}");
        std::process::exit(2);
    }
}

fn measure(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let vfield = program::vfield(options.vfield.as_deref())?;
    let ways = options.ways();
    if ways.contains(&Way::Vfield) && !vfield.is_file() {
        return Err(format!("no program {}; build it, or name one with --vfield", vfield.display()).into());
    }
    if options.rounds == 0 || options.size == 0 {
        return Err("there is at least one round, and one byte".into());
    }
    let bench = Bench::new(&vfield, options.size)?;
    // The image, and two stores.
    warm_memory(options.size.saturating_mul(3));
    println!("{:<6}{:<8}{:>11}{:>15}{:>13}{:>8}", "", "", "busy s/GB", "processes s/GB", "sender s/GB", "GB/s");
    for row in options.rows() {
        let ways: Vec<Way> = row.ways().iter().filter(|way| ways.contains(way)).copied().collect();
        let mut taken = vec![Vec::new(); ways.len()];
        for _ in 0..options.rounds {
            for (way, runs) in ways.iter().zip(&mut taken) {
                let run = Run { row, way: *way, size_bytes: options.size, taken: bench.run(row, *way)? };
                if let Some(path) = &options.json {
                    program::append(path, &run)?;
                }
                runs.push(run.taken);
            }
        }
        let medians: Vec<[f64; 4]> = taken.iter().map(|runs| medians(runs, options.size)).collect();
        for (way, [busy, processes, sender, rate]) in ways.iter().zip(&medians) {
            println!("{:<6}{:<8}{busy:>11.3}{processes:>15.3}{sender:>13.3}{rate:>8.2}", name(&row), name(way));
        }
        for (way, other) in ways.iter().zip(&medians).skip(1).filter(|_| ways[0] == Way::Vfield) {
            let [busy, processes, sender, rate] = std::array::from_fn(|at| medians[0][at] / other[at]);
            let of = format!("/ {}", name(way));
            println!("{:<6}{of:<8}{busy:>11.2}{processes:>15.2}{sender:>13.2}{rate:>8.2}", "");
        }
    }
    Ok(())
}

impl Options {
    fn rows(&self) -> Vec<Row> {
        let row = |name: &RowName| match name {
            RowName::Fill => Row::Fill,
            RowName::Pair => Row::Pair,
            RowName::Read => Row::Read,
        };
        if self.row.is_empty() { Row::ALL.to_vec() } else { self.row.iter().map(row).collect() }
    }

    fn ways(&self) -> Vec<Way> {
        let way = |name: &WayName| match name {
            WayName::Vfield => Way::Vfield,
            WayName::Huge => Way::Huge,
            WayName::Bare => Way::Bare,
            WayName::Fresh => Way::Fresh,
            WayName::Nbdkit => Way::Nbdkit,
        };
        let all = || vec![Way::Vfield, Way::Bare, Way::Fresh, Way::Nbdkit];
        if self.way.is_empty() { all() } else { self.way.iter().map(way).collect() }
    }
}

/// Medians of the busy time, the processes' and the sender's, in s/GB, and of the rate in GB/s.
fn medians(runs: &[Taken], size_bytes: u64) -> [f64; 4] {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let gb = size_bytes as f64 / 1e9;
    let median = |value: &dyn Fn(&Taken) -> f64| Spread::of(runs.iter().map(value)).median;
    [
        median(&|taken| taken.busy_s / gb),
        median(&|taken| taken.processes_s / gb),
        median(&|taken| taken.sender_s / gb),
        median(&|taken| gb / taken.seconds),
    ]
}

/// The word under which it is recorded.
fn name(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
