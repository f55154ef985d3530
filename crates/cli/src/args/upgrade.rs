//! Options of `vfield upgrade`.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use vfield_control::args::ControlOptions;

pub(super) const EXAMPLES: &str = "\
Examples:
  vfield join 192.168.1.1 --mount /mnt --guard          a daemon that can be upgraded
  make install && vfield upgrade                        the new program goes on
  vfield upgrade --program ./vfield-next                another program, for a try

The new program starts beside the daemon. If it cannot take over, the daemon serves on.";

/// Options of `vfield upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeOptions {
    /// The new program [default: the one that lies now where the daemon's own came from]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub program: Option<PathBuf>,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}
