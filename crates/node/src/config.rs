//! What a node is told at start: plain values, already parsed and checked by whoever read them.

use crate::keeper::Keeper;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::identity::Zone;
use vfield_core::image::{IdDigits, ImageId};
use vfield_core::wire::Proof;
use vfield_trust::KeyRing;
use vfield_trust::signature::TrustedKeys;

/// Port of a node when none is given, TCP and UDP.
pub const DEFAULT_PORT: u16 = 4440;

/// Everything a [`crate::Node`] needs to start.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Where to listen, TCP for chunks and UDP for gossip.
    pub listen: SocketAddr,
    /// True if [`NodeConfig::listen`]'s port may be replaced by a free one when it is taken.
    pub any_port: bool,
    /// The address that others are told; without it the listening address, or, where that is
    /// unspecified (`0.0.0.0`), the one this machine uses towards the bootstrap nodes.
    pub advertise: Option<SocketAddr>,
    /// True if a person said so; what is only a guess may be replaced.
    pub advertised: bool,
    /// The nodes with which it shares what it holds: see [`Zone`].
    pub zone: Zone,
    /// Any members of the field; empty for its first node.
    pub bootstrap: Vec<SocketAddr>,
    /// How long its bootstrap nodes are waited for, and a field's first image; `None`: for ever.
    pub retry: Option<Duration>,
    /// True for a node that begins a field by itself if none of them answers.
    pub founds: bool,
    /// Files to publish.
    pub serve: Vec<ServeConfig>,
    /// Images to join; empty with bootstrap nodes: the field's only image.
    pub join: Vec<ImageSelector>,
    /// How much of each joined image to hold.
    pub store: StoreSize,
    /// Most bytes that the stores of all joined images have together, but for those that an earlier process left; none
    /// where a person has said how much.
    pub stores_max_bytes: Option<u64>,
    /// How eagerly a joining node fills its store.
    pub join_boost: JoinBoost,
    /// How long a read waits for a chunk without a live holder; `None`: for ever.
    pub io_timeout: Option<Duration>,
    /// Threads for hashing at publish.
    pub hash_threads: usize,
    /// The field's keys, the first of them spoken; none for an open field.
    pub field_keys: Option<KeyRing>,
    /// Whose signatures the joined images must have; none if any image is read.
    pub trusted: Option<TrustedKeys>,
    /// Who keeps the stores' memory for the next process of this node.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// What measurements may switch off.
    pub tuning: Tuning,
}

/// One file to publish.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// A regular file or a block device.
    pub path: PathBuf,
    /// The same, if it was opened by somebody else: then the path is what it is called, and is not opened.
    pub file: Option<Arc<OwnedFd>>,
    /// The image's name; the file's name without it.
    pub name: Option<String>,
    /// Its chunk size.
    pub chunk_size: ChunkSize,
    /// A signature of it, for those who want to see one.
    pub proof: Option<Proof>,
}

/// How a user names an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSelector {
    /// By name, or by the beginning of its id.
    Name(String),
    /// By its full id.
    Id(ImageId),
    /// By the beginning of its id, and it is called so here, whatever others are.
    Pinned {
        /// What it is called.
        name: String,
        /// How its id begins.
        id: IdDigits,
    },
}

impl ImageSelector {
    /// What it is to be called, if that was said.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) | Self::Pinned { name, .. } => Some(name),
            Self::Id(_) => None,
        }
    }

    /// How an id begins that may be meant. All digits of an id are an id, and no name.
    pub fn digits(&self) -> Option<IdDigits> {
        match self {
            Self::Name(name) => IdDigits::new(name),
            Self::Pinned { id, .. } => Some(id.clone()),
            Self::Id(id) => IdDigits::new(&id.to_string()),
        }
    }

    /// True if name and id were both said.
    pub const fn is_pin(&self) -> bool {
        matches!(self, Self::Pinned { .. })
    }

    /// What to say to have the image `id` instead.
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

/// How much of an image a node holds in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoreSize {
    /// So many bytes.
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
    /// Take turns among holders; without it the first holder is asked for everything.
    pub round_robin: bool,
    /// Read ahead of sequential readers.
    pub read_ahead: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { pool: true, parallel: true, round_robin: true, read_ahead: true }
    }
}
