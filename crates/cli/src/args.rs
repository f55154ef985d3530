//! The modern command line: commands, options and their help.
//!
//! Owns names, groups and help texts. Values parse themselves ([`crate::values`]); [`crate::plan`]
//! decides what they mean together. [`crate::original`] translates the original's form into this
//! one.

#[cfg(feature = "buckets")]
mod bucket;
mod doctor;
mod leaving;
#[cfg(feature = "tools")]
mod manual;
mod overlay;
mod rubbish;
mod serve;
mod tag;
mod trust;
mod upgrade;
mod watch;

#[cfg(feature = "buckets")]
pub use bucket::{BucketAction, BucketOptions};
pub use doctor::{DoctorAction, DoctorOptions};
pub use leaving::{DrainOptions, LeaveOptions};
#[cfg(feature = "tools")]
pub use manual::{CompletionOptions, ManOptions};
pub use overlay::{OverlayAction, OverlayOptions};
pub use rubbish::{GcOptions, PinOptions};
pub use serve::ServeOptions;
pub use tag::{FileSystem, MountOptions, PublishOptions, TagAction, TagNumbers, TagOptions, TagSigner};
pub use trust::{KeyAction, KeyOptions, SignOptions, SignerOptions};
pub use upgrade::UpgradeOptions;
#[cfg(feature = "tools")]
use vfield_bench::args::{self as bench, BenchOptions};
pub use watch::{
    EventsOptions, ExplainOptions, LearnedOptions, LimitCommandOptions, LimitOptions, StatusOptions, TopOptions,
    TraceOptions,
};

use crate::values::access::Access;
use crate::values::boost::Boost;
use crate::values::threads::Threads;
use crate::values::zone::ZoneChoice;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;
use vfield_console::values::address::Address;
use vfield_console::values::duration::{Retry, Timeout};
use vfield_console::values::size::Size;
use vfield_console::volume::Volume;
use vfield_control::args::ControlOptions;
use vfield_control::values::endpoint::Endpoint;
use vfield_daemon::values::device::DeviceKind;
use vfield_daemon::values::disk::Disk;
use vfield_daemon::values::http::HttpAddress;
use vfield_daemon::values::image::{ImageName, Wanted};
use vfield_daemon::values::overlay::OverlayPlace;
use vfield_daemon::values::sandbox::SandboxMode;
use vfield_daemon::values::store::Store;
use vfield_daemon::values::tag::Tagged;
use vfield_daemon::values::user::UserName;
use vfield_netboot::args::{self as netboot, BootedOptions, NetbootOptions};
use vfield_pack::args::{self as pack, PackOptions};
use vfield_pack::chunks::Chunks;

const EXAMPLES: &str = "\
Examples:
  vfield serve viver.squash --listen 192.168.1.1        share an image with the network
  vfield join 192.168.1.1 --store 30% --mount /mnt      hold 30 % of it, mount it as a file
  vfield join 192.168.1.2 --nbd unix:/run/nbd.sock      join through any member; export over NBD
  vfield status                                         coverage, and whether the origin may leave
  vfield cat viver.squash | sha256sum                   write the image to a pipe
  vfield bench                                          measure reads against the limit
  vfield overlay save changes.vfo                       save the changes made on this machine
  vfield key new field.key                              make a key for a closed field
  vfield leave                                          hand over chunks, then end the daemon

The original's command lines work too:
  vfield -file viver.squash
  vfield -bs 192.168.1.1 -store 128 -join_boost 3";

const SERVE_EXAMPLES: &str = "\
Examples:
  vfield serve viver.squash                             for this machine only
  vfield serve viver.squash --listen 192.168.1.1        for the network
  vfield serve root.img data.img --name root --name data
  vfield serve new.img --join 192.168.1.1 --listen 192.168.1.9    add an image to a field

When `vfield status` says that the origin may leave, the other nodes' stores hold every chunk.";

const JOIN_EXAMPLES: &str = "\
Examples:
  vfield join 192.168.1.1 --store 128M --nbd unix:/run/nbd.sock
  vfield join 192.168.1.2 192.168.1.3 --store 30% --mount /mnt/field
  vfield join lab-1 --image viver.squash --store all --ublk
  vfield join lab-1 --join-boost random                 when many machines start at once
  vfield join lab-1 --overlay ram --overlay-size 512M   writable on this machine only

To attach the image of --nbd or of --mount:
  nbd-client -unix /run/nbd.sock /dev/nbd0 -readonly
  mount -o loop,ro /mnt/field/viver.squash /mnt/root";

const ADD_EXAMPLES: &str = "\
Examples:
  vfield add ./viver-v2.squash                          serve a second image
  vfield add viver-v2.squash --store 30%                join it on a node that reads it
  vfield drop viver.squash                              drop the old one when it is unused

A word with a slash, or the name of an existing file, is a file. Any other word is an image.";

/// Shares a read-only disk image between many machines.
///
/// Each node holds a part of the image in memory and serves it to the others. When the stores
/// together hold every chunk, the machine with the original file may be switched off.
#[derive(Debug, Parser)]
#[command(name = "vfield", bin_name = "vfield", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_required = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Options of verbosity.
    #[command(flatten)]
    pub volume: Volume,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of vfield.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a field with image files or block devices, or add an origin to one
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Join a field through any member: hold part of its images, read all of them
    #[command(after_help = JOIN_EXAMPLES)]
    Join(Box<JoinOptions>),
    /// Show nodes, images, coverage, waiting reads, and whether the origin may leave
    Status(StatusOptions),
    /// Show nodes, rates, coverage, and the causes of waiting reads; refreshed each second
    #[command(after_help = watch::TOP_KEYS)]
    Top(TopOptions),
    /// Show what the daemon did last, and what a killed daemon did before it
    Events(EventsOptions),
    /// Say why reads wait or were slow: stage, time, and the node that is the cause
    #[command(after_help = watch::EXPLAIN_EXAMPLES)]
    Explain(ExplainOptions),
    /// Print what machines read first of an image, which others prefetch: one run a line
    Learned(LearnedOptions),
    /// Record each step of each chunk, as a file for the trace viewers of Chrome and Perfetto
    #[command(after_help = watch::TRACE_EXAMPLES)]
    Trace(TraceOptions),
    /// Show or change the limits of the daemon's traffic with other nodes
    #[command(after_help = watch::LIMIT_EXAMPLES)]
    Limit(LimitCommandOptions),
    /// Find what slows this machine down, what it costs, and what to type
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorOptions),
    /// Print the image id of a file without serving it
    Id(IdOptions),
    /// Sign an image file in minisign's format, for readers that trust the key
    #[command(after_help = trust::SIGN_EXAMPLES)]
    Sign(SignOptions),
    /// Pack a directory or a tar as an EROFS image that shares most chunks with its last version
    #[command(after_help = pack::EXAMPLES)]
    Pack(PackOptions),
    /// Serve a file with the running daemon, and move a tag to it; or put it into a bucket
    #[command(after_help = tag::PUBLISH_EXAMPLES)]
    Publish(PublishOptions),
    #[cfg(feature = "buckets")]
    /// List the versions of images in a bucket, move a tag, or remove what no tag needs
    #[command(after_help = bucket::EXAMPLES)]
    Bucket(BucketOptions),
    /// List the tags of the field, move one, or go back
    #[command(after_help = tag::TAG_EXAMPLES)]
    Tag(TagOptions),
    /// Mount the file system of the image that a tag names, and follow the tag
    #[command(after_help = tag::MOUNT_EXAMPLES)]
    Mount(MountOptions),
    /// Write an image or a part of it to stdout
    Cat(CatOptions),
    /// Make the running daemon serve another file, or join another image of its field
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddOptions),
    /// Make the running daemon drop one image
    Drop(DropOptions),
    /// Drop the images that no tag keeps and nobody needs, or list them
    #[command(after_help = rubbish::GC_EXAMPLES)]
    Gc(GcOptions),
    /// Keep an image on this node though no tag keeps it
    #[command(after_help = rubbish::PIN_EXAMPLES)]
    Pin(PinOptions),
    /// Have other nodes ask this one last, until none of them needs it: before it leaves
    #[command(after_help = leaving::DRAIN_EXAMPLES)]
    Drain(DrainOptions),
    /// End the running daemon after it has handed over the chunks that it alone holds
    Leave(LeaveOptions),
    /// Put another program in the place of the running daemon; its clients notice a short pause
    #[command(after_help = upgrade::EXAMPLES)]
    Upgrade(UpgradeOptions),
    /// Show, save or drop the changes made to an image on this machine
    #[command(after_help = overlay::EXAMPLES)]
    Overlay(OverlayOptions),
    /// Make a field key, print its name, or reload changed key files
    #[command(after_help = trust::KEY_EXAMPLES)]
    Key(KeyOptions),
    /// Boot machines over the network: boot files over HTTP, DHCP by dnsmasq
    #[command(after_help = netboot::EXAMPLES)]
    Netboot(Box<NetbootOptions>),
    /// Tell the network boot that this machine runs; the initramfs starts it
    Booted(BootedOptions),
    #[cfg(feature = "tools")]
    /// Measure reads of a local image or of another node against the limit
    #[command(after_help = bench::EXAMPLES)]
    Bench(Box<BenchOptions>),
    #[cfg(feature = "tools")]
    /// Print shell completions
    Completions(CompletionOptions),
    /// Read about a topic, such as size, trust, tags, limits or exit-codes; without one, list them
    Help(HelpOptions),
    #[cfg(feature = "tools")]
    /// Print the manual page, or write all manual pages to a directory
    Man(ManOptions),
}

/// Options of `vfield join`.
#[derive(Debug, Args)]
pub struct JoinOptions {
    /// Members of the field; one of them is enough [default port: 4440]
    #[arg(value_name = "ADDR", value_hint = ValueHint::Hostname)]
    pub join: Vec<Address>,
    /// Image to join: its name, its id or the beginning of its id. NAME=ID (12 digits or more)
    /// gives the image with this id a name on this node. May be repeated [default: the field's only
    /// image]
    #[arg(long, value_name = "NAME|ID|NAME=ID")]
    pub image: Vec<Wanted>,
    /// Join the image that this tag names, and the next one when the tag moves. Its name leads to
    /// the current version. May be repeated
    #[arg(long, value_name = "TAG", help_heading = "Signatures")]
    pub follow: Vec<Tagged>,
    /// With --follow and without --trust: follow the first signer that is heard of
    #[arg(long, requires = "follow", conflicts_with = "trust", help_heading = "Signatures")]
    pub open: bool,
    /// Memory for chunks of each image: 128M, 1GiB, 30%, all or 0 [default: 30%, at most half of
    /// the free memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub store: Option<Store>,
    /// Keep the chunks in files of this directory in place of memory: they outlive a reboot. The
    /// stores take no more than SIZE [default: nearly all of the free room]
    #[arg(long, value_name = "DIR[:SIZE]", value_hint = ValueHint::DirPath)]
    pub disk: Option<Disk>,
    /// Most bytes that the stores write to the disk in a day, such as 20G, to spare it. Beyond that
    /// they fill slowly, and reads go on [default: no limit]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub disk_writes: Option<Size>,
    /// With --store all: keep the chunks in pages of 2 MiB, which takes less processor time. The
    /// kernel has to give them to memory files that ask
    #[arg(long, conflicts_with = "disk")]
    pub huge: bool,
    /// Keep the chunks compressed in memory: programs and libraries take less than half of it. A
    /// read takes up to a tenth of a millisecond more
    #[arg(long, conflicts_with_all = ["disk", "huge"])]
    pub compress_store: bool,
    /// Speed at which the store fills: 0 (slow) to 9 (full speed), or random [default: 7]
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true)]
    pub join_boost: Option<Boost>,
    /// Accept only images and tags signed with this minisign key (a file, or the key itself). May
    /// be repeated. Other images are refused before any read
    #[arg(long, value_name = "KEY", help_heading = "Signatures")]
    pub trust: Vec<String>,
    /// With --trust: accept an image although a newer signature under its name was seen before
    #[arg(long, requires = "trust", help_heading = "Signatures")]
    pub allow_rollback: bool,
    /// Options of every daemon.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// Options of every daemon.
#[derive(Debug, Clone, Default, Args)]
pub struct DaemonOptions {
    /// Export over NBD at unix:PATH or tcp:ADDR. May be repeated
    #[arg(long, value_name = "unix:PATH|tcp:ADDR", help_heading = "Exports")]
    pub nbd: Vec<Endpoint>,
    /// Require TLS of NBD clients over TCP. DIR has server-cert.pem and server-key.pem; if it has
    /// ca-cert.pem, clients need a certificate by this authority
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "nbd", help_heading = "Exports")]
    pub nbd_tls: Option<PathBuf>,
    /// Networks from which NBD clients over TCP may use an image. May be repeated. An image without
    /// a rule is then closed to TCP clients
    #[arg(long, value_name = "[IMAGE=]NETWORK", requires = "nbd", help_heading = "Exports")]
    pub nbd_allow: Vec<Access>,
    /// Mount the images as files in this empty directory, through FUSE
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Exports")]
    pub mount: Option<PathBuf>,
    /// Attach each image as a ublk block device, from /dev/ublkb0 on (root; Linux 6.5 or later)
    #[arg(long, help_heading = "Exports", conflicts_with = "device")]
    pub ublk: bool,
    /// Attach each image as a block device. ublk: by ublk. nbd: by the kernel's NBD client, from
    /// /dev/nbd0 on. auto: by ublk if the kernel has it, else by its NBD client
    #[arg(long, value_name = "auto|ublk|nbd", hide_possible_values = true, help_heading = "Exports")]
    pub device: Option<DeviceKind>,
    /// Timeout after which a read fails with EIO if no reachable node has its data [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Exports")]
    pub io_timeout: Option<Timeout>,
    /// Make the images writable; changes stay on this machine. ram: in memory, lost with the daemon
    /// unless saved. DIR: in files
    #[arg(long, value_name = "ram|DIR", value_hint = ValueHint::DirPath, help_heading = "Overlay")]
    pub overlay: Option<OverlayPlace>,
    /// Maximum overlay size per image; further writes fail with ENOSPC [default: ram: half of the
    /// memory; DIR: the image's size]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, help_heading = "Overlay")]
    pub overlay_size: Option<Size>,
    /// Start with the changes in this file of `vfield overlay save`. Once per image
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Overlay")]
    pub overlay_from: Vec<PathBuf>,
    /// Listen address for other nodes, TCP and UDP [default: serve: 127.0.0.1:4440; join: the
    /// address that faces ADDR, port 4440 or a free port]
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub listen: Option<Address>,
    /// Address that other nodes connect to, if it differs from --listen
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub advertise: Option<Address>,
    /// Zone of this node, such as its rack. A chunk enters a zone about once; a node asks other
    /// zones only for chunks that its own zone lacks. subnet: the network of this node's address is
    /// its zone, such as 198.18.4.0/24 [default: one zone for all]
    #[arg(long, value_name = "NAME|subnet", help_heading = "Network")]
    pub zone: Option<ZoneChoice>,
    /// Key file of a closed field: only nodes with the key are members, and their traffic is
    /// encrypted. May be repeated: the node dials with the first key and accepts all [default: the
    /// systemd credential vfield-field-key if it exists, else an open field]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Network")]
    pub field_key: Vec<PathBuf>,
    /// Identity of this machine, from `vfield key identity`. The node id is then the same after
    /// each start [default: the systemd credential vfield-identity if it exists, else a new one]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Network")]
    pub identity: Option<PathBuf>,
    /// Signed list of the nodes that are admitted or revoked, from `vfield key allow` and
    /// `vfield key revoke`. A later list of any member replaces it
    #[arg(long, value_name = "LIST", value_hint = ValueHint::FilePath, help_heading = "Network")]
    pub admission: Option<PathBuf>,
    /// Public key of minisign, or its file, for signatures of admission lists. Without --admission
    /// the node takes the list from the field. May be repeated
    #[arg(long, value_name = "PUBKEY", value_hint = ValueHint::FilePath, help_heading = "Network")]
    pub admission_trust: Vec<String>,
    /// File for the members' addresses; a restarted daemon joins through them too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Network")]
    pub members: Option<PathBuf>,
    /// Time for attempts to join: 30s, or forever [default: at a terminal 5s, else forever]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Network")]
    pub retry: Option<Retry>,
    /// The limits of the traffic with other nodes.
    #[command(flatten)]
    pub limits: LimitOptions,
    /// Never compress chunks for nodes on slow links
    #[arg(long, help_heading = "Network")]
    pub no_compression: bool,
    /// Neither tell others what this machine reads first of an image, nor prefetch what they read
    #[arg(long, help_heading = "Network")]
    pub no_learning: bool,
    /// Show this node over HTTP: a page, /metrics, /status.json, /healthz and /readyz. Read-only,
    /// without a login; 9740 alone is a port of 127.0.0.1 [default: none; default port: 9740]
    #[arg(long, value_name = "ADDR|PORT", help_heading = "Dashboard")]
    pub http: Option<HttpAddress>,
    /// Host name that browsers may call this node by, besides its IP addresses, localhost and the
    /// machine's name. May be repeated
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Hostname, requires = "http", help_heading = "Dashboard")]
    pub http_name: Vec<String>,
    /// Let --http listen on all addresses: each machine that reaches this one sees the names and
    /// addresses of the field
    #[arg(long, requires = "http", help_heading = "Dashboard")]
    pub http_public: bool,
    /// The daemon's control socket.
    #[command(flatten)]
    pub control: ControlOptions,
    /// Configuration file (TOML); keys are the names of options [default: vfield.toml in
    /// ~/.config, else /etc/vfield.toml]
    #[arg(long, value_name = "FILE", env = "VFIELD_CONFIG", hide_env_values = true, value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Daemon")]
    pub config: Option<PathBuf>,
    /// Log JSON, one object per line
    #[arg(long, help_heading = "Daemon")]
    pub json: bool,
    /// Drop unneeded capabilities, files and system calls. auto: as far as kernel and exports
    /// allow; require: all, or refuse to start; off: none [default: auto]
    #[arg(long, value_name = "MODE", hide_possible_values = true, help_heading = "Daemon")]
    pub sandbox: Option<SandboxMode>,
    /// Switch to this user (name or number) without capabilities after setup. For daemons that root
    /// starts without --device and --mount
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Username, help_heading = "Daemon")]
    pub user: Option<UserName>,
    /// Start the daemon under a guard, which restarts it after a crash and keeps its mount, sockets
    /// and stores. `vfield upgrade` then puts another program in its place
    #[arg(long, conflicts_with = "root", help_heading = "Daemon")]
    pub guard: bool,
    /// Serve this machine's root file system: restart after a crash or a failed join, lock memory,
    /// and survive the shutdown's kill
    #[arg(long, help_heading = "Daemon")]
    pub root: bool,
    /// Threads that serve readers and other nodes [default: half of the cores]
    #[arg(long, value_name = "N", help_heading = "Daemon")]
    pub threads: Option<Threads>,
    /// Measurements only: one connection per request
    #[arg(long, hide = true)]
    pub no_pool: bool,
    /// Measurements only: one request in flight
    #[arg(long, hide = true)]
    pub no_parallel: bool,
    /// Measurements only: bytes a second for which a peer gets one more connection
    #[arg(long, hide = true, value_name = "BYTES")]
    pub lane_rate: Option<u64>,
    /// Measurements only: no read-ahead
    #[arg(long, hide = true)]
    pub no_read_ahead: bool,
}

/// Options of `vfield id`.
#[derive(Debug, Args)]
pub struct IdOptions {
    /// Image file or block device
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Chunk size, as for `vfield serve`; the id depends on it
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub chunk_size: Chunks,
    /// Also write the hashes to this new file. As NAME.vfh beside an object NAME, they spare its
    /// origins reading all of it
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub hashes: Option<PathBuf>,
}

/// Options of `vfield cat`.
#[derive(Debug, Args)]
pub struct CatOptions {
    /// The image, by name, id, or the beginning of its id
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Offset of the first byte
    #[arg(long, value_name = "SIZE", default_value = "0", allow_hyphen_values = true)]
    pub offset: Size,
    /// Number of bytes [default: to the end]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub length: Option<Size>,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield add`.
#[derive(Debug, Args)]
pub struct AddOptions {
    /// File or block device to serve (a word with a slash, or an existing file), or an image of the
    /// field: its name, its id, the beginning of its id, or NAME=ID
    #[arg(value_name = "FILE|IMAGE", value_hint = ValueHint::FilePath)]
    pub target: String,
    /// For a file: image name [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<ImageName>,
    /// For a file: chunk size, as for `vfield serve` [default: auto]
    #[arg(long, value_name = "SIZE")]
    pub chunk_size: Option<Chunks>,
    /// For an image: memory for its chunks [default: the daemon's --store]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with_all = ["name", "chunk_size"])]
    pub store: Option<Store>,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield drop`.
#[derive(Debug, Args)]
pub struct DropOptions {
    /// The image, by name, id, or the beginning of its id
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Drop the image even if a client has it open or chunks are lost that no other node holds
    #[arg(long)]
    pub force: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield help`.
#[derive(Debug, Args)]
pub struct HelpOptions {
    /// The topic, or a command [default: a list of the topics]
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
}
