//! Options of `vfield drain` and `vfield leave`.

use clap::Args;
use vfield_console::values::duration::Period;
use vfield_control::args::ControlOptions;

pub(super) const DRAIN_EXAMPLES: &str = "\
Examples:
  vfield drain && vfield leave                          no reader of the field notices
  vfield drain --timeout 10m                            a slow link, or much to hand over
  vfield drain --undo                                   the machine stays after all

A drained node serves what others ask for, and goes on reading. It is drained until --undo, or until
a restart. Clients of its own exports stay connected: the command names them.";

/// Options of `vfield drain`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// Maximum time to wait until no reader waits for the node, and other stores hold its chunks
    #[arg(long, value_name = "DURATION", default_value = "60s", allow_hyphen_values = true)]
    pub timeout: Period,
    /// Take part again as before
    #[arg(long, conflicts_with = "timeout")]
    pub undo: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield leave`.
#[derive(Debug, Args)]
pub struct LeaveOptions {
    /// Maximum time to hand over
    #[arg(long, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true)]
    pub timeout: Period,
    /// End even if chunks are lost that no other node holds
    #[arg(long)]
    pub force: bool,
    /// Only print the chunks that would be lost; exit code 1 if there are any
    #[arg(long, conflicts_with_all = ["force", "timeout"])]
    pub dry_run: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}
