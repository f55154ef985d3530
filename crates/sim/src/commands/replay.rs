//! `replay`: repeats the run of a trace file.

use super::Failure;
use super::evidence::Kept;
use crate::scenario::chaos::Chaos;
use crate::trial;
use clap::Args;
use std::path::PathBuf;

/// `replay` and its options.
#[derive(Debug, Args)]
pub struct Options {
    /// The trace that a violation left
    pub file: PathBuf,
}

/// Repeats the run of a trace file.
///
/// # Errors
/// The violation, as it was; no valid trace, or one of another version; a run that differs.
pub fn run(options: &Options) -> Result<(), Failure> {
    let name = options.file.display();
    let text = std::fs::read_to_string(&options.file).map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    let kept: Kept =
        serde_json::from_str(&text).map_err(|error| Failure::Usage(format!("{name} is no trace: {error}")))?;
    let head = kept.vfield_sim_trace;
    if let Some(why) = head.stranger() {
        return Err(Failure::Strange(format!("{name} is {why}")));
    }
    let chaos = Chaos::drawn_from(head.seed, head.attack);
    let drawn = chaos.in_words();
    eprintln!("seed {}: {}\n  {}", drawn.seed, drawn.field, drawn.faults.join("\n  "));
    trial::note_panics();
    let outcome = trial::run(&chaos);
    for line in &outcome.last {
        println!("{line}");
    }
    println!("{}", outcome.view);
    if (outcome.steps, &outcome.trace) != (head.steps, &head.hash) {
        let what = format!("{name}: this build does something else: {} steps instead of {}", outcome.steps, head.steps);
        return Err(Failure::Strange(what));
    }
    match outcome.violation {
        Some(violation) => Err(Failure::Violation(violation.checker, format!("repeated: {violation}"))),
        None => Ok(()),
    }
}
