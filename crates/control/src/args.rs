//! The option of every command that speaks to a daemon.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// The daemon to control.
#[derive(Debug, Clone, Default, Args)]
pub struct ControlOptions {
    /// Control socket of the daemon [default: vfield/control.sock in the runtime directory]
    #[arg(long, value_name = "PATH", env = "VFIELD_CONTROL", hide_env_values = true, value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Daemon", global = true)]
    pub control: Option<PathBuf>,
}
