//! The options of `vfield doctor`.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;
use vfield_control::args::ControlOptions;

pub(super) const EXAMPLES: &str = "\
Examples:
  vfield doctor                                         look at this machine and its daemon
  vfield doctor --fix                                   also write the settings that are safe, as root
  vfield doctor bundle report.tar                       all that a report needs, without keys

It needs neither root nor a daemon, and says what it could not look at. The exit code is 1 if a
finding costs speed or fails reads.";

/// Options of `vfield doctor`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DoctorOptions {
    /// Put the findings into a file with the status, the events and the configuration.
    #[command(subcommand)]
    pub action: Option<DoctorAction>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write the settings of the kernel that are safe to change while a daemon runs. They last
    /// until the machine restarts
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,
    /// The daemon to look at.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// The commands of `vfield doctor`.
#[derive(Debug, Subcommand)]
pub enum DoctorAction {
    /// Write findings, status, events and configuration to one tar file, without keys
    Bundle {
        /// The new file
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Configuration file of the daemon [default: as for `vfield join`]
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>,
        /// The daemon to look at.
        #[command(flatten)]
        control: ControlOptions,
    },
}
