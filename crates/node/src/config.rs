//! The settings of a node at its start: plain values, already parsed and checked by the caller.

use crate::keeper::Keeper;
use crate::limits::Rates;
use crate::links::peer_lanes::LANE_BYTES_PER_S;
use crate::object_origin::publish::ServeObject;
use crate::origin::kept_tree::KeptTree;
use crate::route;
use crate::sockets::Sockets;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::identity::Zone;
use vfield_core::image::{IdDigits, ImageId};
use vfield_core::tag::TagName;
use vfield_core::tags::SignedTag;
use vfield_core::wire::Proof;
use vfield_trust::KeyRing;
use vfield_trust::admission::Verified;
use vfield_trust::identity_file::Identity;
use vfield_trust::signature::TrustedKeys;

/// Port of a node when none is given, TCP and UDP.
pub const DEFAULT_PORT: u16 = 4440;
/// An address outside. Without a known node, the route to it is the best guess of this machine's
/// own address (TEST-NET-1, RFC 5737).
pub const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// Everything a [`crate::Node`] needs to start.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The listening address, TCP for chunks and UDP for gossip.
    pub listen: SocketAddr,
    /// True if [`NodeConfig::listen`]'s port may be replaced by a free one when it is taken.
    pub any_port: bool,
    /// The announced address. Without it, the listening address; if that is unspecified
    /// (`0.0.0.0`), the one that this machine uses towards the bootstrap nodes.
    pub advertise: Option<SocketAddr>,
    /// True if the address was configured; a guessed one may be replaced.
    pub advertised: bool,
    /// The nodes with which it shares what it holds: see [`Zone`].
    pub zone: Zone,
    /// Any members of the field; empty for its first node.
    pub bootstrap: Vec<SocketAddr>,
    /// Host names among them, with their ports. They are looked up again while others are needed.
    pub bootstrap_names: Vec<(String, u16)>,
    /// How long to retry the bootstrap nodes, and to wait for a field's first image; `None`: for
    /// ever.
    pub retry: Option<Duration>,
    /// True for a node that begins a field by itself if none of them answers.
    pub founds: bool,
    /// Files to publish.
    pub serve: Vec<ServeConfig>,
    /// Images to join; empty with bootstrap nodes: the field's only image.
    pub join: Vec<ImageSelector>,
    /// The store size for each joined image.
    pub store: StoreSize,
    /// Images that were added to an earlier process of this node: joined besides, as far as they
    /// are still there.
    pub added: Vec<AddedImage>,
    /// Files that were added to an earlier process of this node, which has left them open: served
    /// besides, as far as that goes.
    pub added_files: Vec<ServeConfig>,
    /// Most bytes in the stores of all joined images, except those kept from an earlier process;
    /// `None` if store sizes were configured.
    pub stores_max_bytes: Option<u64>,
    /// Memory that this process may have: no store in memory may take more.
    pub memory_max_bytes: u64,
    /// Share of time in which the stores fill.
    pub join_boost: JoinBoost,
    /// Limits of its traffic with other nodes, from the start on.
    pub limits: Rates,
    /// Those of single images, by any of their names.
    pub image_limits: Vec<(String, Rates)>,
    /// How long a read blocks while its chunk has no reachable holder; `None`: for ever.
    pub io_timeout: Option<Duration>,
    /// Threads for hashing at publish.
    pub hash_threads: usize,
    /// The field's keys, the first of them used for sending; none for an open field.
    pub field_keys: Option<KeyRing>,
    /// The identity of this node, the same after each start; without one it draws a key.
    pub identity: Option<Arc<Identity>>,
    /// The signers of admission lists; `None` if every node is admitted.
    pub admission_signers: Option<TrustedKeys>,
    /// The admission list at the start, signed by one of them.
    pub admission: Option<Verified>,
    /// The signers whose signatures joined images need; `None` if any image is read.
    pub trusted: Option<TrustedKeys>,
    /// Tags that this node follows: their images are joined besides.
    pub follow: Vec<TagName>,
    /// True if the first image of `join` is a version of these tags, and goes like those.
    pub joins_version: bool,
    /// Tags that an earlier process of this node knew.
    pub tags: Vec<SignedTag>,
    /// The sockets at which an earlier process of this node has listened; else they are bound.
    pub sockets: Option<Sockets>,
    /// True if the memory of stores that hold a whole image is in large pages.
    pub large_pages: bool,
    /// The memory for chunks of stores that keep them compressed, besides what an earlier process
    /// has left; `None` if they lie plain.
    pub compressed_max_bytes: Option<u64>,
    /// The disk on which the stores of joined images lie; without one they are in memory.
    pub disk: Option<DiskConfig>,
    /// The keeper of the stores' memory for the next process of this node.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// Bytes a second that its network card says its link carries; `None` if that is not known.
    pub card_bytes_per_s: Option<u64>,
    /// Bytes a second that an earlier process of it measured; `None` if that is not known.
    pub measured_bytes_per_s: Option<u64>,
    /// Switches for measurements.
    pub tuning: Tuning,
}

impl NodeConfig {
    /// True if it says which images a node is to have: those that it serves or joins. Else the node
    /// joins the field's only image.
    pub const fn names_images(&self) -> bool {
        let serves = !self.serve.is_empty() || !self.added_files.is_empty();
        serves || !self.join.is_empty() || !self.follow.is_empty() || !self.added.is_empty()
    }

    /// True for a node that listens here if its announced address was not configured.
    pub(crate) const fn guesses(&self, listening: SocketAddr) -> bool {
        !self.advertised && listening.ip().is_unspecified()
    }

    /// The announced address of a node that listens here.
    pub(crate) fn advertised_at(&self, listening: SocketAddr) -> SocketAddr {
        if let Some(addr) = self.advertise {
            return SocketAddr::new(addr.ip(), if addr.port() == 0 { listening.port() } else { addr.port() });
        }
        if !listening.ip().is_unspecified() {
            return listening;
        }
        let towards = self.bootstrap.first().copied().unwrap_or(ELSEWHERE);
        let ip = route::local_towards(towards).ok().filter(|ip| !ip.is_unspecified());
        SocketAddr::new(ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), listening.port())
    }
}

/// A directory for stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// Its path; it is made if it is not there.
    pub dir: PathBuf,
    /// Most bytes in all stores; `None`: nearly all that is free at the start.
    pub max_bytes: Option<u64>,
    /// Most bytes of chunks that are written there in a day; `None`: any number.
    pub each_day_bytes: Option<NonZeroU64>,
}

impl DiskConfig {
    /// Makes the directory, for this user alone, if it is not there.
    pub fn make_dir(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }
}

/// The chunk size of a file to publish.
#[derive(Debug, Clone, Copy)]
pub enum ChunkSizing {
    /// This size, whatever the file says.
    Of(ChunkSize),
    /// What the file's own bytes say. They are read when the file is hashed, and not before: until
    /// its disk answers, others hear that it is hashed.
    Own(fn(&Path) -> ChunkSize),
}

impl ChunkSizing {
    /// The chunk size of the file at `path`. May block.
    pub fn of(self, path: &Path) -> ChunkSize {
        match self {
            Self::Of(size) => size,
            Self::Own(says) => says(path),
        }
    }
}

/// A file or object to publish.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// A regular file or a block device; of an object, its address without secrets.
    pub path: PathBuf,
    /// The object, if it is one.
    pub object: Option<ServeObject>,
    /// The open file, if the caller opened it: then the path is only its name, and is not opened.
    pub file: Option<Arc<OwnedFd>>,
    /// The image's name; the file's name without it.
    pub name: Option<String>,
    /// Its chunk size.
    pub chunk_size: ChunkSizing,
    /// A signature of the image, for nodes that ask for one.
    pub proof: Option<Proof>,
    /// The hashes of an earlier start, or, for a path, room for those of this one.
    pub kept: Option<Arc<KeptTree>>,
}

impl ServeConfig {
    /// The name that the image gets.
    pub fn image_name(&self) -> String {
        let file_name = || self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.name.clone().or_else(file_name).unwrap_or_default()
    }
}

/// A user's way to name an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSelector {
    /// By name, or by the beginning of its id.
    Name(String),
    /// By its full id.
    Id(ImageId),
    /// By the beginning of its id, under a name of its own on this node.
    Pinned {
        /// The name on this node.
        name: String,
        /// The beginning of its id.
        id: IdDigits,
    },
}

impl ImageSelector {
    /// The requested name, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) | Self::Pinned { name, .. } => Some(name),
            Self::Id(_) => None,
        }
    }

    /// The beginning of an id that may be meant. All digits of an id are an id, and no name.
    pub fn digits(&self) -> Option<IdDigits> {
        match self {
            Self::Name(name) => IdDigits::new(name),
            Self::Pinned { id, .. } => Some(id.clone()),
            Self::Id(id) => IdDigits::new(&id.to_string()),
        }
    }

    /// True if it may mean the image `id`, of which `has_name` tells the names.
    pub fn means(&self, id: &ImageId, has_name: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Id(wanted) => wanted == id,
            Self::Pinned { id: digits, .. } => digits.matches(id),
            Self::Name(name) => has_name(name) || self.digits().is_some_and(|digits| digits.matches(id)),
        }
    }

    /// True if name and id were both said.
    pub const fn is_pin(&self) -> bool {
        matches!(self, Self::Pinned { .. })
    }

    /// The argument that selects the image `id` instead.
    pub fn pin(&self, id: ImageId) -> String {
        self.name().map_or_else(|| id.to_string(), |name| format!("{name}={}", id.short()))
    }
}

impl fmt::Display for ImageSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Id(id) => write!(f, "{id}"),
            Self::Pinned { name, id } => write!(f, "{name}={id}"),
        }
    }
}

/// An image that was added to an earlier process of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct AddedImage {
    /// Its id, mostly with its name on this node.
    pub selector: ImageSelector,
    /// The size of its store; without one, that of all joined images.
    pub store: Option<StoreSize>,
}

/// The amount of an image that a node holds in memory, or on a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoreSize {
    /// This many bytes.
    Bytes(u64),
    /// A share of the image, 0 to 100.
    Percent(f64),
    /// The whole image.
    All,
}

/// `join_boost` of the original: 0 (slow) to 9 (full speed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinBoost(u8);

impl JoinBoost {
    /// The original's default.
    pub const DEFAULT: Self = Self(7);

    /// Accepts 0 to 9.
    pub const fn new(level: u8) -> Option<Self> {
        if level <= 9 { Some(Self(level)) } else { None }
    }

    /// 0 to 9.
    pub const fn level(self) -> u8 {
        self.0
    }
}

/// Parts of the data plane that can be switched off, so that the value of each can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Keep connections to peers; without it each request opens one of its own.
    pub pool: bool,
    /// Ask several peers at once; without it one request is in flight at a time.
    pub parallel: bool,
    /// Read ahead of sequential readers.
    pub read_ahead: bool,
    /// Send chunks compressed over slow links.
    pub compression: bool,
    /// Tell others what this machine reads first, and prefetch what they read.
    pub learning: bool,
    /// Bytes a second for which a peer gets one more connection, up to one for each thread.
    pub lane_bytes_per_s: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        let lane_bytes_per_s = LANE_BYTES_PER_S;
        Self { pool: true, parallel: true, read_ahead: true, compression: true, learning: true, lane_bytes_per_s }
    }
}
