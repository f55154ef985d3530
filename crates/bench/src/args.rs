//! The part of the command line about measuring.

use crate::values::count;
use crate::values::nbd_uri::NbdUri;
use crate::values::rate::Rate;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;
use vfield_console::values::address::Address;
use vfield_console::values::duration::Period;
use vfield_console::values::size::Size;
use vfield_control::args::ControlOptions;

/// Below the help of `vfield bench`.
pub const EXAMPLES: &str = "\
Examples:
  vfield bench                                          the image that this machine's node exports
  vfield bench --link 1G --pattern sequential           compared with a link of 1 Gbit/s
  vfield bench viver.squash --streams 1,4,16 --seconds 5
  vfield bench --pattern write,randwrite                an image with an overlay, written to
  vfield bench --peer 192.168.1.1                       what that node sends, by number of streams

A run ends with --size or --seconds, whichever comes first. Ctrl-C prints what was measured.";

/// `vfield bench`.
#[derive(Debug, Args)]
pub struct BenchOptions {
    /// The image, by name, id, or the beginning of its id [default: the node's only one]
    #[arg(value_name = "IMAGE", conflicts_with_all = ["nbd", "peer"])]
    pub image: Option<String>,
    /// Read this NBD export instead of one that the daemon names
    #[arg(long, value_name = "URI", conflicts_with_all = ["peer", "via"])]
    pub nbd: Option<NbdUri>,
    /// Which export of the daemon is read: nbd or fuse [default: nbd if there is one]
    #[arg(long, value_name = "KIND", hide_possible_values = true, conflicts_with = "peer")]
    pub via: Option<Via>,
    /// Ask another node directly for what it has, without becoming a member of its field
    #[arg(long, value_name = "ADDR", value_hint = ValueHint::Hostname, help_heading = "Another node")]
    pub peer: Option<Address>,
    /// The key of that node's field
    #[arg(long, value_name = "FILE", requires = "peer", help_heading = "Another node")]
    pub field_key: Vec<PathBuf>,
    /// Image of that node, by name, id, or the beginning of its id [default: its only one]
    #[arg(long = "image", value_name = "NAME|ID", requires = "peer", help_heading = "Another node")]
    pub peer_image: Option<String>,
    /// What is measured, one run for each: sequential and random read; write and randwrite write
    /// over what the image has here [default: sequential,random]
    #[arg(
        long,
        value_name = "PATTERN,...",
        value_delimiter = ',',
        hide_possible_values = true,
        conflicts_with = "peer"
    )]
    pub pattern: Vec<Pattern>,
    /// Parallel streams, one run for each number [default: 4; with --peer: 1,2,4,8,12]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = count::of_streams)]
    pub streams: Vec<u64>,
    /// Requests under way in each stream [default: 4; with --peer: 1]
    #[arg(long, value_name = "N", value_parser = count::of_streams)]
    pub depth: Option<u64>,
    /// Bytes of a request [default: 256K, random and randwrite 4K; a node is always asked for chunks]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "peer")]
    pub block_size: Option<Size>,
    /// End a run after so many bytes [default: the image's length; with --peer: no limit]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub size: Option<Size>,
    /// End a run after so long [default: 10; with --peer: 5]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub seconds: Option<Period>,
    /// Rate of the link to the peers, say 1G [default: what the kernel says of the device]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub link: Option<Rate>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Which export is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The NBD server.
    Nbd,
    /// The file in the mount.
    Fuse,
}

/// In which order blocks are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Any, also several times.
    Random,
    /// One after the other, written.
    Write,
    /// Any, also several times, written.
    Randwrite,
}

impl Pattern {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::Write => "write",
            Self::Randwrite => "randwrite",
        }
    }

    /// True if blocks are written, not read.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Randwrite)
    }
}
