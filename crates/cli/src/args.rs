//! The modern command line: what can be typed, and the help that explains it.
//!
//! Owns names, groups and help texts. Values parse themselves ([`crate::values`]); what they mean together
//! is [`crate::plan`]'s. The original's form is turned into this one by [`crate::original`].

mod trust;

pub use trust::{KeyAction, KeyOptions, SignOptions};
use vfield_bench::args::{self as bench, BenchOptions};

use crate::values::access::Access;
use crate::values::boost::Boost;
use crate::values::endpoint::Endpoint;
use crate::values::threads::Threads;
use crate::values::zone::ZoneChoice;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;
use vfield_console::values::address::Address;
use vfield_console::values::duration::{Period, Retry, Timeout};
use vfield_console::values::size::Size;
use vfield_console::volume::Volume;
use vfield_control::args::ControlOptions;
use vfield_control::values::until::Until;
use vfield_daemon::values::device::DeviceKind;
use vfield_daemon::values::image::{ImageName, Wanted};
use vfield_daemon::values::overlay::OverlayPlace;
use vfield_daemon::values::sandbox::SandboxMode;
use vfield_daemon::values::store::Store;
use vfield_daemon::values::user::UserName;
use vfield_netboot::args::{self as netboot, NetbootOptions};

const EXAMPLES: &str = "\
Examples:
  vfield serve viver.squash --listen 192.168.1.1        share an image with the network
  vfield join 192.168.1.1 --store 30% --mount /mnt      hold 30 % of it, see it as a file
  vfield join 192.168.1.2 --nbd unix:/run/nbd.sock      any member will do; attach with NBD
  vfield status                                         is it covered, may the origin leave?
  vfield cat viver.squash | sha256sum                   read it through a pipe
  vfield bench                                          how fast is it, how near the limit?
  vfield overlay save changes.vfo                       keep what was written to it here
  vfield key new field.key                              a key that closes a field
  vfield leave                                          hand over, then go

The original's command lines work as well:
  vfield -file viver.squash
  vfield -bs 192.168.1.1 -store 128 -join_boost 3";

const SERVE_EXAMPLES: &str = "\
Examples:
  vfield serve viver.squash                             for this machine only
  vfield serve viver.squash --listen 192.168.1.1        for the network
  vfield serve root.img data.img --name root --name data
  vfield serve new.img --join 192.168.1.1 --listen 192.168.1.9    one more image in a field

The origin may leave, or die, as soon as `vfield status` says so: the stores of the others then
hold every chunk.";

const JOIN_EXAMPLES: &str = "\
Examples:
  vfield join 192.168.1.1 --store 128M --nbd unix:/run/nbd.sock
  vfield join 192.168.1.2 192.168.1.3 --store 30% --mount /mnt/field
  vfield join lab-1 --image viver.squash --store all --ublk
  vfield join lab-1 --join-boost random                 when a whole room starts at once
  vfield join lab-1 --overlay ram --overlay-size 512M   writable, for this machine alone

Attach what --nbd offers with, for example:
  nbd-client -unix /run/nbd.sock /dev/nbd0 -readonly
  mount -o loop,ro /mnt/field/viver.squash /mnt/root    (out of --mount)";

const ADD_EXAMPLES: &str = "\
Examples:
  vfield add ./viver-v2.squash                          serve it beside what is served already
  vfield add viver-v2.squash --store 30%                on a node that is to read it
  vfield drop viver.squash                              when nobody reads the old one any more

What has a slash, or is a file here, is a file; anything else is an image of the field.";

const OVERLAY_EXAMPLES: &str = "\
Examples:
  vfield join 192.168.1.1 --overlay ram --nbd unix:/run/nbd.sock
  vfield overlay status                                 how much was written, how much may be
  vfield overlay save /data/changes.vfo                 all of this moment, in one file
  vfield join 192.168.1.1 --overlay ram --overlay-from /data/changes.vfo
  vfield overlay reset                                  as if nothing had ever been written";

/// Shares a read-only disk image between many machines.
///
/// Every node holds as much of the image in memory as it likes and serves that to the others. As soon as
/// the stores add up to the image, the machine it came from may be switched off.
#[derive(Debug, Parser)]
#[command(name = "vfield", bin_name = "vfield", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_required = true, disable_help_subcommand = true)]
pub struct Cli {
    /// How much is said.
    #[command(flatten)]
    pub volume: Volume,
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// What vfield can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Share image files or block devices: the field's first node, or one more origin
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Join a field through any of its members, hold part of its images, read all of them
    #[command(after_help = JOIN_EXAMPLES)]
    Join(Box<JoinOptions>),
    /// Show nodes, images, coverage, whether the origin may leave, and what is waited for
    Status(StatusOptions),
    /// Print the id that a file would have as an image, without serving it
    Id(IdOptions),
    /// Sign a file as the image that it is, for readers who trust the key, in minisign's format
    #[command(after_help = trust::SIGN_EXAMPLES)]
    Sign(SignOptions),
    /// Write an image, or a part of it, to stdout
    Cat(CatOptions),
    /// Let the running daemon serve one more file, or join one more image of its field
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddOptions),
    /// Let the running daemon give up an image, and go on with the others
    Drop(DropOptions),
    /// Let the running daemon hand over what only it holds, and end
    Leave(LeaveOptions),
    /// Show, save or drop what was written to an image on this machine
    #[command(after_help = OVERLAY_EXAMPLES)]
    Overlay(OverlayOptions),
    /// Make a key that closes a field to all who do not have it, or take up keys that were changed
    #[command(after_help = trust::KEY_EXAMPLES)]
    Key(KeyOptions),
    /// Let machines start over the network: kernel, initramfs and script over HTTP, DHCP by dnsmasq
    #[command(after_help = netboot::EXAMPLES)]
    Netboot(Box<NetbootOptions>),
    /// Measure how near the limit reads are, of an image here or of a node over there
    #[command(after_help = bench::EXAMPLES)]
    Bench(Box<BenchOptions>),
    /// Print completions for a shell
    Completions(CompletionOptions),
    /// Print the manual page, or write all of them into a directory
    Man(ManOptions),
}

/// `vfield serve`.
#[derive(Debug, Args)]
pub struct ServeOptions {
    /// Image files or block devices
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Vec<PathBuf>,
    /// Name of the image; the file's name without it. Once for each FILE
    #[arg(long, value_name = "NAME")]
    pub name: Vec<ImageName>,
    /// Unit of verification and transfer: a power of two from 16K to 1M [default: 64K]
    #[arg(long, value_name = "SIZE")]
    pub chunk_size: Option<Size>,
    /// Enter an existing field through these members instead of starting one
    #[arg(long, value_name = "ADDR", value_hint = ValueHint::Hostname)]
    pub join: Vec<Address>,
    /// What every daemon takes.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// `vfield join`.
#[derive(Debug, Args)]
pub struct JoinOptions {
    /// Any members of the field; port 4440 where none is given
    #[arg(value_name = "ADDR", value_hint = ValueHint::Hostname)]
    pub join: Vec<Address>,
    /// Image to join, by name, id, or the beginning of its id; NAME=ID (12 digits at least) is that image,
    /// called so here, whatever others call so; may be repeated [default: the field's only one]
    #[arg(long, value_name = "NAME|ID|NAME=ID")]
    pub image: Vec<Wanted>,
    /// How much of each image to hold in memory: 128M, 1GiB, 30%, all or 0 [default: 30%, and no
    /// more than half of the memory that is free]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub store: Option<Store>,
    /// How eagerly the store is filled: 0 (slow) to 9 (full speed), or random [default: 7]
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true)]
    pub join_boost: Option<Boost>,
    /// Read only images that were signed with this minisign key, a file or the key itself; may be
    /// repeated. Everything else is refused before any of it is read
    #[arg(long, value_name = "KEY", help_heading = "Signatures")]
    pub trust: Vec<String>,
    /// With --trust: read an image even if one that was signed later was read under its name before
    #[arg(long, requires = "trust", help_heading = "Signatures")]
    pub allow_rollback: bool,
    /// What every daemon takes.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// What every daemon takes.
#[derive(Debug, Clone, Default, Args)]
pub struct DaemonOptions {
    /// Export over NBD at unix:PATH or tcp:ADDR; may be repeated
    #[arg(long, value_name = "unix:PATH|tcp:ADDR", help_heading = "Exports")]
    pub nbd: Vec<Endpoint>,
    /// Let NBD clients over TCP in only if they start TLS: a directory with server-cert.pem and
    /// server-key.pem; with a ca-cert.pem only those who have a certificate by it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "nbd", help_heading = "Exports")]
    pub nbd_tls: Option<PathBuf>,
    /// Let NBD clients over TCP read an image only from these networks; may be repeated. An image
    /// without a rule is then closed to all of them
    #[arg(long, value_name = "[IMAGE=]NETWORK", requires = "nbd", help_heading = "Exports")]
    pub nbd_allow: Vec<Access>,
    /// Show the images as files in this empty directory, through FUSE
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Exports")]
    pub mount: Option<PathBuf>,
    /// Make each image a block device, /dev/ublkb0 and so on (root; Linux 6.5 or later)
    #[arg(long, help_heading = "Exports", conflicts_with = "device")]
    pub ublk: bool,
    /// Make each image a block device by ublk, by the kernel's NBD client (nbd: /dev/nbd0 and so on),
    /// or by the better one that the kernel has (auto)
    #[arg(long, value_name = "auto|ublk|nbd", hide_possible_values = true, help_heading = "Exports")]
    pub device: Option<DeviceKind>,
    /// Fail a read that no live node could answer for so long [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Exports")]
    pub io_timeout: Option<Timeout>,
    /// Let the images be written through their exports, and keep what is written on this machine: in
    /// memory (ram), where it ends with the daemon unless it is saved, or in files of DIR
    #[arg(long, value_name = "ram|DIR", value_hint = ValueHint::DirPath, help_heading = "Overlay")]
    pub overlay: Option<OverlayPlace>,
    /// Refuse writes (no space) beyond so much for each image [default: ram: half of the memory; DIR:
    /// as much as the image has]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, help_heading = "Overlay")]
    pub overlay_size: Option<Size>,
    /// Begin with what `vfield overlay save` put into this file; once for each image
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Overlay")]
    pub overlay_from: Vec<PathBuf>,
    /// Where to listen for other nodes, TCP and UDP [default: serve: 127.0.0.1:4440; join: the
    /// address that faces ADDR, port 4440 or a free one]
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub listen: Option<Address>,
    /// The address that other nodes are told, where it is not the one listened on
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub advertise: Option<Address>,
    /// The zone of this node, such as its rack: chunks come into a zone about once, and nodes of
    /// other zones are asked only for what none of its own has. `subnet`: named after the network of
    /// this node's address, such as 198.18.4.0/24 [default: one zone for all]
    #[arg(long, value_name = "NAME|subnet", help_heading = "Network")]
    pub zone: Option<ZoneChoice>,
    /// Close the field: only nodes that have this key can be in it, and all they say is encrypted. May
    /// be repeated: the first key is spoken, all are understood [default: the systemd credential
    /// vfield-field-key if there is one; without any the field is open]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Network")]
    pub field_key: Vec<PathBuf>,
    /// Remember the members in this file, and join through them as well when the daemon starts again
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Network")]
    pub members: Option<PathBuf>,
    /// Try for so long to join, 30s or forever: who does not answer may be about to start [default: at a
    /// terminal 5s, else forever]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Network")]
    pub retry: Option<Retry>,
    /// The daemon's control socket
    #[command(flatten)]
    pub control: ControlOptions,
    /// Configuration file (TOML) with the same names [default: /etc/vfield.toml if it exists]
    #[arg(long, value_name = "FILE", env = "VFIELD_CONFIG", hide_env_values = true, value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Daemon")]
    pub config: Option<PathBuf>,
    /// Log in JSON, one object a line
    #[arg(long, help_heading = "Daemon")]
    pub json: bool,
    /// Give up what is not needed: capabilities, files and system calls; as far as this kernel and the
    /// exports let it (auto), all of it or do not start (require), or nothing (off) [default: auto]
    #[arg(long, value_name = "MODE", hide_possible_values = true, help_heading = "Daemon")]
    pub sandbox: Option<SandboxMode>,
    /// Become this user (a name or a number), without capabilities, when everything is set up; for daemons
    /// that root starts, without --device and --mount
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Username, help_heading = "Daemon")]
    pub user: Option<UserName>,
    /// Carry this machine's root file system: start again after a death or a failure to join, lock
    /// memory, and be left alone by the shutdown
    #[arg(long, help_heading = "Daemon")]
    pub root: bool,
    /// Threads that serve readers and other nodes [default: half as many as there are cores]
    #[arg(long, value_name = "N", help_heading = "Daemon")]
    pub threads: Option<Threads>,
    /// Open a connection for each request (for measurements)
    #[arg(long, hide = true)]
    pub no_pool: bool,
    /// Have one request in flight at a time (for measurements)
    #[arg(long, hide = true)]
    pub no_parallel: bool,
    /// Ask the first holder for everything (for measurements)
    #[arg(long, hide = true)]
    pub no_round_robin: bool,
    /// Do not read ahead (for measurements)
    #[arg(long, hide = true)]
    pub no_read_ahead: bool,
    /// Threads that hash at publish [default: one for each core]
    #[arg(long, value_name = "N", hide = true)]
    pub publish_threads: Option<Threads>,
}

/// `vfield status`.
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the block device of this image, by name or id, and nothing else
    #[arg(long, value_name = "NAME|ID", conflicts_with_all = ["json", "wait"])]
    pub device: Option<String>,
    /// Return once this holds: ready (the images can be read), filled (the daemon's stores hold all
    /// they are to hold), covered (the stores of the field hold every image of the daemon, and the
    /// origin may leave) or covered=N (they hold each chunk N times: N - 1 of them may die)
    #[arg(long, value_name = "CONDITION")]
    pub wait: Option<Until>,
    /// Give up waiting after so long, with exit code 1 [default: never]
    #[arg(long, value_name = "DURATION", requires = "wait", allow_hyphen_values = true)]
    pub timeout: Option<Period>,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// `vfield id`.
#[derive(Debug, Args)]
pub struct IdOptions {
    /// Image file or block device
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Chunk size, which is part of what the id stands for
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub chunk_size: Size,
}

/// `vfield cat`.
#[derive(Debug, Args)]
pub struct CatOptions {
    /// The image, by name, id, or the beginning of its id
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// First byte
    #[arg(long, value_name = "SIZE", default_value = "0", allow_hyphen_values = true)]
    pub offset: Size,
    /// How many bytes [default: all to the end]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub length: Option<Size>,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// `vfield add`.
#[derive(Debug, Args)]
pub struct AddOptions {
    /// A file or block device to serve (with a slash, or a file that is here), or an image of the field: its
    /// name, its id, the beginning of its id, or NAME=ID
    #[arg(value_name = "FILE|IMAGE", value_hint = ValueHint::FilePath)]
    pub target: String,
    /// Of a file: the name of the image; the file's name without it
    #[arg(long, value_name = "NAME")]
    pub name: Option<ImageName>,
    /// Of a file: unit of verification and transfer: a power of two from 16K to 1M [default: 64K]
    #[arg(long, value_name = "SIZE")]
    pub chunk_size: Option<Size>,
    /// Of an image: how much of it to hold in memory [default: as the daemon was started with]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with_all = ["name", "chunk_size"])]
    pub store: Option<Store>,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// `vfield drop`.
#[derive(Debug, Args)]
pub struct DropOptions {
    /// The image, by name, id, or the beginning of its id
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Also if somebody has it open on this machine, or chunks are lost that no other node holds
    #[arg(long)]
    pub force: bool,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// `vfield leave`.
#[derive(Debug, Args)]
pub struct LeaveOptions {
    /// How long handing over may take
    #[arg(long, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true)]
    pub timeout: Period,
    /// Go also if chunks are lost with it that no other node holds
    #[arg(long)]
    pub force: bool,
    /// Only say what would be lost; exit code 1 if anything would
    #[arg(long, conflicts_with_all = ["force", "timeout"])]
    pub dry_run: bool,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// `vfield overlay`.
#[derive(Debug, Args)]
pub struct OverlayOptions {
    /// What is to be done [default: status]
    #[command(subcommand)]
    pub action: Option<OverlayAction>,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// What is done with an overlay.
#[derive(Debug, Subcommand)]
pub enum OverlayAction {
    /// Say how much was written, and how much may be
    Status {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Put all changes of this moment into a file, which replaces an older one when it is complete
    Save {
        /// The file, on the daemon's machine
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The image, by name, id, or the beginning of its id [default: the daemon's only one]
        #[arg(long, value_name = "NAME|ID")]
        image: Option<String>,
    },
    /// Drop all changes. Unmount file systems on the image first
    Reset {
        /// The image, by name, id, or the beginning of its id [default: the daemon's only one]
        #[arg(long, value_name = "NAME|ID")]
        image: Option<String>,
        /// Also while somebody uses it: file systems are not told, and go on with what they have in their caches
        #[arg(long)]
        force: bool,
    },
}

/// `vfield completions`.
#[derive(Debug, Args)]
pub struct CompletionOptions {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    pub shell: clap_complete::Shell,
}

/// `vfield man`.
#[derive(Debug, Args)]
pub struct ManOptions {
    /// Write vfield.1, vfield-serve.1 and so on into this directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}
