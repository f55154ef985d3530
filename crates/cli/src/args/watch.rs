//! The options of the commands that watch and steer a running daemon: `status`, `top`, `events`,
//! `explain`, `trace`, `limit`.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use vfield_console::values::duration::Period;
use vfield_console::values::size::Size;
use vfield_control::args::ControlOptions;
use vfield_control::values::until::Until;
use vfield_daemon::values::image_limit::ImageLimit;
use vfield_daemon::values::limit::Limit;

pub(super) const LIMIT_EXAMPLES: &str = "\
Examples:
  vfield limit                                          show all limits
  vfield limit --up 50M                                 send 50 MiB a second at most
  vfield limit --up 500M,08:00-18:00=50M --down none
  vfield limit --image viver.squash --up 20M            of this image alone

The change lasts until a restart; --limit-up, --image-limit-up and so on are for each start.";

pub(super) const TOP_KEYS: &str = "\
Keys:
  q, Ctrl-C             end
  o                     order the nodes by traffic, held bytes or address
  arrows, j, k, pages   scroll

A node knows the traffic between itself and others. So start it on the machine that is slow.";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  vfield explain                                        chunks that readers wait for now
  vfield explain 1G                                     the chunk at this offset of the only image
  vfield explain viver.squash 1G                        the same of one image among others
  vfield explain --slow                                 the slowest reads of the last hour";

pub(super) const TRACE_EXAMPLES: &str = "\
Examples:
  vfield trace 5s                                       write vfield-trace.json
  vfield trace 500ms --out /tmp/slow.json               while a slow reader runs

Open the file in Perfetto's viewer, https://ui.perfetto.dev. Reads that find their chunks in memory
are not in it.";

/// Options of `vfield learned`.
#[derive(Debug, Args)]
pub struct LearnedOptions {
    /// The image, by name, id, or the beginning of its id [default: the daemon's only image]
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield trace`.
#[derive(Debug, Args)]
pub struct TraceOptions {
    /// For how long, 60s at most
    #[arg(value_name = "DURATION", allow_hyphen_values = true)]
    pub duration: Period,
    /// File to write; it takes the place of one from before once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "vfield-trace.json")]
    pub out: PathBuf,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield explain`.
#[derive(Debug, Args)]
pub struct ExplainOptions {
    /// The image, by name, id, or the beginning of its id [default: the daemon's only image]
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,
    /// Offset in the image [default: all that readers wait for, in all images]
    #[arg(value_name = "OFFSET")]
    pub offset: Option<Size>,
    /// Show the slowest reads of the last hour instead, 64 at most
    #[arg(long, conflicts_with = "image")]
    pub slow: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Limits of a daemon's traffic.
#[derive(Debug, Clone, Default, Args)]
pub struct LimitOptions {
    /// Most bytes a second to other nodes, all together: 500M, or 500M,08:00-18:00=50M with other
    /// rates at local times of the day. Bytes to readers of this machine do not count [default:
    /// none]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Network")]
    pub limit_up: Option<Limit>,
    /// Most bytes a second from other nodes, all together; apart from --limit-up [default: none]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Network")]
    pub limit_down: Option<Limit>,
    /// Most bytes a second of one image to other nodes, within --limit-up: viver.squash=50M; may be
    /// given for each image
    #[arg(long, value_name = "NAME=RATE", allow_hyphen_values = true, help_heading = "Network")]
    pub image_limit_up: Vec<ImageLimit>,
    /// Most bytes a second of one image from other nodes, within --limit-down; may be given for
    /// each image. A chunk that comes compressed counts with its full length
    #[arg(long, value_name = "NAME=RATE", allow_hyphen_values = true, help_heading = "Network")]
    pub image_limit_down: Vec<ImageLimit>,
}

/// Options of `vfield top`.
#[derive(Debug, Args)]
pub struct TopOptions {
    /// Print one picture and end; for scripts, and without a terminal
    #[arg(long)]
    pub once: bool,
    /// Time between two pictures, 100ms or more
    #[arg(long, value_name = "DURATION", default_value = "1s", allow_hyphen_values = true, conflicts_with = "once")]
    pub every: Period,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield limit`.
#[derive(Debug, Args)]
pub struct LimitCommandOptions {
    /// New limit of bytes a second to other nodes, or none; without it that limit stays
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub up: Option<Limit>,
    /// New limit of bytes a second from other nodes, or none; without it that limit stays
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub down: Option<Limit>,
    /// Change the limits of this image, in place of those of the whole node
    #[arg(long, value_name = "NAME|ID", allow_hyphen_values = true)]
    pub image: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield status`.
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print only the block device of this image (name or id)
    #[arg(long, value_name = "NAME|ID", conflicts_with_all = ["json", "wait"])]
    pub device: Option<String>,
    /// Return when the condition holds. ready: the images can be read. filled: the daemon's stores
    /// are full. covered: the field's stores hold every image of the daemon, and the origin may
    /// leave. covered=N: they hold each chunk N times, so N - 1 nodes may die
    #[arg(long, value_name = "CONDITION")]
    pub wait: Option<Until>,
    /// Timeout of --wait; its exit code is 1 [default: never]
    #[arg(long, value_name = "DURATION", requires = "wait", allow_hyphen_values = true)]
    pub timeout: Option<Period>,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield events`.
#[derive(Debug, Args)]
pub struct EventsOptions {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Go on with later events until the daemon ends
    #[arg(long, short)]
    pub follow: bool,
    /// Number of events; 0 for all that are remembered, 4096 at most
    #[arg(long, value_name = "N", default_value = "50")]
    pub last: usize,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}
