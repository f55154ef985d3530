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
  vfield bench --link 1G --pattern sequential           compare with a link of 1 Gbit/s
  vfield bench viver.squash --streams 1,4,16 --seconds 5
  vfield bench --matrix                                 delays by order, block and span
  vfield bench --pattern write,randwrite                write to an image with an overlay
  vfield bench --peer 192.168.1.1                       rate of another node, by number of streams
  vfield bench --peers                                  rates of all nodes, one after the other

A run ends at --size or --seconds, whichever comes first. Ctrl-C ends it and prints the results.";

/// Options of `vfield bench`.
#[derive(Debug, Args)]
pub struct BenchOptions {
    /// The image, by name, id, or the beginning of its id [default: the node's only image]
    #[arg(value_name = "IMAGE", conflicts_with_all = ["nbd", "peer", "peers"])]
    pub image: Option<String>,
    /// Read this NBD export instead of the daemon's
    #[arg(long, value_name = "URI", conflicts_with_all = ["peer", "peers", "via"])]
    pub nbd: Option<NbdUri>,
    /// The daemon's export to read: nbd or fuse [default: nbd if it exists]
    #[arg(long, value_name = "KIND", hide_possible_values = true, conflicts_with_all = ["peer", "peers"])]
    pub via: Option<Via>,
    /// Request chunks from another node without joining its field
    #[arg(long, value_name = "ADDR", value_hint = ValueHint::Hostname, help_heading = "Another node")]
    pub peer: Option<Address>,
    /// Measure all nodes that the daemon knows, or with --peer all that the node at ADDR knows: the
    /// rate of each, in both directions
    #[arg(long, help_heading = "Another node")]
    pub peers: bool,
    /// Key file of the field, with --peer or --peers
    #[arg(long, value_name = "FILE", help_heading = "Another node")]
    pub field_key: Vec<PathBuf>,
    /// Image of that node, by name, id, or the beginning of its id [default: its only image]
    #[arg(
        long = "image",
        value_name = "NAME|ID",
        requires = "peer",
        conflicts_with = "peers",
        help_heading = "Another node"
    )]
    pub peer_image: Option<String>,
    /// Patterns, one run for each. sequential and random read; write and randwrite overwrite the
    /// image on this machine [default: sequential,random]
    #[arg(
        long,
        value_name = "PATTERN,...",
        value_delimiter = ',',
        hide_possible_values = true,
        conflicts_with_all = ["peer", "peers"]
    )]
    pub pattern: Vec<Pattern>,
    /// Eight runs instead: random and sequential reads, in blocks of 4K and 64K, within the first
    /// 256M and 8G of the image. Each says how much of it was in this node's memory, and how
    /// much came from peers and origins meanwhile
    #[arg(long, conflicts_with_all = ["peer", "peers", "pattern", "block_size", "size"])]
    pub matrix: bool,
    /// Numbers of parallel streams, one run for each [default: 4; with --matrix: 1; with --peer:
    /// 1,2,4,8,12]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = count::of_streams, conflicts_with = "peers")]
    pub streams: Vec<u64>,
    /// Requests in flight per stream [default: 4; with --matrix or --peer: 1]
    #[arg(long, value_name = "N", value_parser = count::of_streams, conflicts_with = "peers")]
    pub depth: Option<u64>,
    /// Size of a request [default: 256K; random and randwrite: 4K; with --peer: a chunk]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with_all = ["peer", "peers"])]
    pub block_size: Option<Size>,
    /// Maximum bytes of a run [default: the image's size; with --peer or --peers: no limit]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub size: Option<Size>,
    /// Maximum time of a run [default: 10; with --matrix or --peer: 5; with --peers: 1 in each
    /// direction]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub seconds: Option<Period>,
    /// Rate of the link to the peers, such as 1G [default: the network device's rate]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub link: Option<Rate>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// An export of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The NBD server.
    Nbd,
    /// The file in the mount.
    Fuse,
}

/// The order of blocks, and whether they are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Reads in order.
    Sequential,
    /// Reads at random places.
    Random,
    /// Writes in order.
    Write,
    /// Writes at random places.
    Randwrite,
}

impl Pattern {
    /// Its name on the command line.
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
