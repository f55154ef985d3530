//! The part of the command line about trust: keys, signatures, and what a daemon gives up.

use super::ControlOptions;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;
use vfield_console::values::size::Size;
use vfield_daemon::values::image::ImageName;

pub(super) const SIGN_EXAMPLES: &str = "\
Examples:
  minisign -G -p vendor.pub -s vendor.key               once
  vfield sign viver.squash --secret-key vendor.key
  minisign -Vm viver.squash.vfield -p vendor.pub        the stock tool verifies it
  vfield serve viver.squash --listen 192.168.1.1        hands the signature out
  vfield join 192.168.1.1 --trust vendor.pub            reads nothing else";

pub(super) const KEY_EXAMPLES: &str = "\
Examples:
  vfield key new /etc/vfield.key                        copy it to every machine of the field
  vfield serve viver.squash --listen 192.168.1.1 --field-key /etc/vfield.key
  vfield join 192.168.1.1 --field-key /etc/vfield.key

To change the key while the field goes on, or to shut a machine out that had it:
  1. append the new key's line to the file on every machine that stays; vfield key reload
  2. move that line to the top on each; vfield key reload
  3. take the old line out on each; vfield key reload";

/// `vfield sign`.
#[derive(Debug, Args)]
pub struct SignOptions {
    /// Image file or block device; FILE.vfield and FILE.vfield.minisig are written beside it
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Secret key, as `minisign -G` makes it; its password is asked for
    #[arg(long, short = 's', value_name = "KEY", value_hint = ValueHint::FilePath)]
    pub secret_key: Option<PathBuf>,
    /// Only write FILE.vfield, for `minisign -Sm FILE.vfield` to sign
    #[arg(long, conflicts_with = "secret_key")]
    pub statement: bool,
    /// Name under which it is served [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<ImageName>,
    /// Chunk size with which it is served
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub chunk_size: Size,
}

/// `vfield key`.
#[derive(Debug, Args)]
#[command(subcommand_required = true)]
pub struct KeyOptions {
    /// What is to be done.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// What is done with field keys.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Make a new key in a new file that only its owner can read
    New {
        /// The file
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print the names of the keys in a file, as `vfield status` shows them; they are no secret
    Id {
        /// The file
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Let the running daemon read its key files again; nodes without any of the keys are hung up on
    Reload {
        /// Which daemon.
        #[command(flatten)]
        control: ControlOptions,
    },
}
