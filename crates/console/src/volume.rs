//! The verbosity options of every command.

use clap::{ArgAction, Args};

/// Verbosity on stderr.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Volume {
    /// Log more: -v logs events, -vv logs every detail.
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "quiet", display_order = 900)]
    pub verbose: u8,
    /// Print errors only.
    #[arg(short, long, global = true, display_order = 901)]
    pub quiet: bool,
}
