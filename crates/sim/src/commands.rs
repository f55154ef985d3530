//! The command line: what each command does, and the one table of exit codes.

pub mod storm;

use clap::{Parser, Subcommand};

/// Run many cores of V-FIELD on a modelled network and a virtual clock.
#[derive(Debug, Parser)]
#[command(name = "sim", max_term_width = 110, after_help = EXIT_CODES)]
pub struct Options {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 all is well; 1 the run failed for another reason, or readers did not come to their end; 2 options that \
make no sense";

/// See [`Options`].
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Everybody reads one image at once
    Storm(storm::Options),
}

/// How a run ended.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Readers did not come to their end.
    #[error("{0}")]
    Unfinished(String),
    /// Options that make no sense.
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// The process's exit code.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Unfinished(_) => 1,
            Self::Usage(_) => 2,
        }
    }
}

/// Does what was asked for.
///
/// # Errors
/// See [`Failure`].
pub fn run(options: &Options) -> Result<(), Failure> {
    match &options.command {
        Command::Storm(options) => storm::run(options),
    }
}
