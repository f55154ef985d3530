//! The options of every command that say how much is said.

use clap::{ArgAction, Args};

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Volume {
    /// Say more: once for what happens, twice for every detail.
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "quiet", display_order = 900)]
    pub verbose: u8,
    /// Say nothing but errors.
    #[arg(short, long, global = true, display_order = 901)]
    pub quiet: bool,
}
