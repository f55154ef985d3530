//! Options of `vfield overlay`.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;
use vfield_control::args::ControlOptions;

pub(super) const EXAMPLES: &str = "\
Examples:
  vfield join 192.168.1.1 --overlay ram --nbd unix:/run/nbd.sock
  vfield overlay status                                 bytes written, and the limit
  vfield overlay save /data/changes.vfo                 save all changes to one file
  vfield join 192.168.1.1 --overlay ram --overlay-from /data/changes.vfo
  vfield overlay reset                                  drop all changes";

/// Options of `vfield overlay`.
#[derive(Debug, Args)]
pub struct OverlayOptions {
    /// The action [default: status].
    #[command(subcommand)]
    pub action: Option<OverlayAction>,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Actions on an overlay.
#[derive(Debug, Subcommand)]
pub enum OverlayAction {
    /// Show the size of the changes and the limit
    Status {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Save all changes at this moment to a file; an older file is replaced when the new one is
    /// complete
    Save {
        /// The file, on the daemon's machine
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The image, by name, id, or the beginning of its id [default: the daemon's only image]
        #[arg(long, value_name = "NAME|ID")]
        image: Option<String>,
    },
    /// Drop all changes. Unmount file systems on the image before
    Reset {
        /// The image, by name, id, or the beginning of its id [default: the daemon's only image]
        #[arg(long, value_name = "NAME|ID")]
        image: Option<String>,
        /// Reset the overlay even while a client uses it; file systems keep stale caches
        #[arg(long)]
        force: bool,
    },
}
