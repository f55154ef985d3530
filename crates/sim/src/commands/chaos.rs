//! `chaos`: many seeds, each a small field with its faults.

use super::Failure;
use super::evidence::Evidence;
use crate::scenario::chaos::{Chaos, Malicious};
use crate::trial::{self, Outcome};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// `chaos` and its options.
#[derive(Debug, Args)]
pub struct Options {
    /// Seeds, the last one not included
    #[arg(long, default_value = "0..100", value_parser = seeds, value_name = "A..B")]
    pub seeds: Range<u64>,
    /// The malicious members: as the seed draws them, none, or all with one attack
    #[arg(long, default_value = "drawn", value_parser = attacks(), value_name = "NAME")]
    pub attack: Malicious,
    /// Go on after a violation
    #[arg(long)]
    pub keep_going: bool,
    /// Seeds run at once [default: one for each processor]
    #[arg(long, value_name = "COUNT")]
    pub jobs: Option<usize>,
    /// Print the field and the faults of each seed
    #[arg(long)]
    pub verbose: bool,
    /// File for the trace of a violation [default: target/sim/chaos-SEED.json]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn attacks() -> impl TypedValueParser<Value = Malicious> {
    PossibleValuesParser::new(Malicious::names()).try_map(|name| name.parse::<Malicious>())
}

/// A range of seeds as one types it: `0..100`.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is no range of seeds such as 0..100");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    if from < to { Ok(from..to) } else { Err(wrong()) }
}

/// The result of many trials.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Trials that came to their end.
    pub runs: u64,
    /// Number of trials with a violation.
    pub violations: usize,
    /// Number of violations by checker.
    pub by_checker: BTreeMap<&'static str, usize>,
    /// Seed and finding of each violation.
    pub found: Vec<(u64, String)>,
    /// A hash of all that happened in all trials; the same for the same seeds and the same core.
    pub trace: String,
    /// Simulated seconds of all.
    pub simulated_s: f64,
    /// Time that they took, in seconds.
    pub wall_s: f64,
}

/// Runs the chaos of all seeds.
///
/// # Errors
/// The first violation.
pub fn run(options: &Options) -> Result<(), Failure> {
    let deadline = None;
    let (found, first) = hunt(options, options.seeds.clone(), deadline);
    if options.json {
        println!("{}", serde_json::to_string(&found).unwrap_or_default());
    } else {
        println!(
            "{} runs, {} violations, {:.0} simulated seconds in {:.1} s",
            found.runs, found.violations, found.simulated_s, found.wall_s
        );
    }
    first.map_or(Ok(()), Err)
}

/// Trials of seeds one after the other until there is no time left.
///
/// # Errors
/// The first violation.
pub fn soak(hours: f64) -> Result<(), Failure> {
    let time = Duration::try_from_secs_f64(hours * 3600.0).ok().filter(|time| !time.is_zero());
    let time = time.ok_or_else(|| Failure::Usage("--hours: a number of hours above 0".to_owned()))?;
    let from =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()) << 20;
    println!("seeds from {from} on, for {hours} hours");
    let options = Options {
        seeds: from..u64::MAX,
        attack: Malicious::Drawn,
        keep_going: false,
        jobs: None,
        verbose: false,
        trace: None,
        json: false,
    };
    let (found, first) = hunt(&options, options.seeds.clone(), Some(Instant::now() + time));
    println!("{} runs, {} violations, {:.0} simulated seconds", found.runs, found.violations, found.simulated_s);
    first.map_or(Ok(()), Err)
}

/// One trial: the seed, its trace, the simulated seconds, the failure, its words, and the checker.
type Tried = (u64, String, f64, Option<Failure>, String, &'static str);

fn hunt(options: &Options, seeds: Range<u64>, deadline: Option<Instant>) -> (Found, Option<Failure>) {
    trial::note_panics();
    let began = Instant::now();
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let results: Mutex<Vec<Tried>> = Mutex::default();
    let jobs = options.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1);
    let work = || {
        while !stop.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                break;
            }
            let chaos = Chaos::drawn_from(seed, options.attack);
            if options.verbose {
                let drawn = chaos.in_words();
                eprintln!("seed {seed}: {}\n  {}", drawn.field, drawn.faults.join("\n  "));
            }
            let outcome = trial::run(&chaos);
            let failure = outcome.violation.as_ref().map(|violation| {
                stop.store(!options.keep_going, Ordering::Relaxed);
                let kept = Evidence::of_chaos(&chaos, &outcome).keep(options.trace.as_deref());
                eprintln!(
                    "seed {seed}: {violation}\n  {kept}; repeat it: cargo sim -- chaos --seeds {seed}..{}{} --verbose",
                    seed + 1,
                    options.attack.option()
                );
                Failure::Violation(violation.checker, format!("seed {seed}: {violation}"))
            });
            let Outcome { trace, steps, simulated_s, violation, .. } = outcome;
            if options.verbose {
                eprintln!("seed {seed}: {steps} steps, trace {trace}");
            }
            let (what, checker) =
                violation.map_or((String::new(), ""), |violation| (violation.to_string(), violation.checker));
            let result = (seed, trace, simulated_s, failure, what, checker);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|result| result.0);
    let mut found = Found {
        runs: results.len() as u64,
        violations: 0,
        by_checker: BTreeMap::new(),
        found: Vec::new(),
        trace: String::new(),
        simulated_s: results.iter().map(|result| result.2).sum(),
        wall_s: began.elapsed().as_secs_f64(),
    };
    let (mut first, mut traces) = (None, blake3::Hasher::new());
    for (seed, trace, _, failure, what, checker) in results {
        traces.update(trace.as_bytes());
        if let Some(failure) = failure {
            found.violations += 1;
            *found.by_checker.entry(checker).or_default() += 1;
            found.found.push((seed, what));
            first.get_or_insert(failure);
        }
    }
    found.trace = traces.finalize().to_hex().to_string();
    (found, first)
}
