//! The command line: the commands, and the one table of exit codes.

pub mod boot;
pub mod chaos;
pub mod evidence;
pub mod idle;
pub mod replay;
pub mod storm;
pub mod typed;

use clap::{Parser, Subcommand};
pub use typed::parse;

/// Run many cores of V-FIELD on a modelled network and a virtual clock.
#[derive(Debug, Parser)]
#[command(name = "sim", bin_name = "cargo sim --", max_term_width = 110, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true)]
pub struct Options {
    /// Run chaos with new seeds for this many hours
    #[arg(long, value_name = "H")]
    pub hours: Option<f64>,
    /// The command to run
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str = "\
@FILE stands for the options in a file, an option and its value on each line.

Exit codes: 0 all is well; 1 readers did not finish; 2 options or files that make no sense, or a run that \
does not fit; 3 a wrong or unverified byte, or a lost request (reads, requests, unverified, blame, expelled, framed, impersonated); 4 a bound was exceeded \
(flights, inventory, livelock, load, bounds, copies); 5 defects remain after all faults were mended (views, reads-end, coverage, covered, quiet); \
6 a core panicked; 7 a trace of another version, or one that this build does not repeat";

/// The commands; see [`Options`].
#[derive(Debug, Subcommand)]
pub enum Command {
    /// All machines read one image at once
    Storm(storm::Options),
    /// All machines boot from one image at once: small reads in a recorded order
    Boot(boot::Options),
    /// Traffic between nodes while no machine reads
    Idle(idle::Options),
    /// Small fields with all kinds of faults, drawn from seeds
    Chaos(chaos::Options),
    /// Repeat the run of a trace file
    Replay(replay::Options),
}

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Readers did not finish.
    #[error("{0}")]
    Unfinished(String),
    /// Options or files that make no sense.
    #[error("{0}")]
    Usage(String),
    /// More memory than a run may take, in bytes.
    #[error(
        "this took more than {:.1} GB of memory and has been stopped: fewer nodes, smaller zones (--zone-size), a smaller image, \
         larger chunks (--chunk), or a higher bound (--memory)",
        *.0 as f64 / 1e9
    )]
    Full(u64),
    /// A checker found something; which, and what.
    #[error("{1}")]
    Violation(&'static str, String),
    /// A trace that this build does not repeat.
    #[error("{0}")]
    Strange(String),
}

impl Failure {
    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Unfinished(_) => 1,
            Self::Usage(_) | Self::Full(_) => 2,
            Self::Violation("flights" | "inventory" | "livelock" | "load" | "bounds" | "copies", _) => 4,
            Self::Violation("views" | "reads-end" | "coverage" | "covered" | "quiet", _) => 5,
            Self::Violation("panic", _) => 6,
            Self::Violation(..) => 3,
            Self::Strange(_) => 7,
        }
    }
}

/// Runs a command.
///
/// # Errors
/// The variants of [`Failure`].
pub fn run(options: &Options) -> Result<(), Failure> {
    match (&options.command, options.hours) {
        (Some(_), Some(_)) => Err(Failure::Usage("--hours soaks with chaos: without a command".to_owned())),
        (None, Some(hours)) => chaos::soak(hours),
        (None, None) => Err(Failure::Usage("nothing to do: see --help".to_owned())),
        (Some(Command::Storm(options)), None) => storm::run(options),
        (Some(Command::Boot(options)), None) => boot::run(options),
        (Some(Command::Idle(options)), None) => idle::run(options),
        (Some(Command::Chaos(options)), None) => chaos::run(options),
        (Some(Command::Replay(options)), None) => replay::run(options),
    }
}
