//! What the reply to a request for the status carries.

use crate::limits::LimitsStatus;
use crate::offer::{ExportStatus, MemoryStatus};
use serde::{Deserialize, Serialize};
use vfield_node::status::Status;

/// The format of what `vfield status --json` prints, in its field `format`: raised when a field is
/// renamed, goes, or changes its meaning, not when one is added. 1: exports were text.
pub const STATUS_FORMAT: u32 = 3;

/// A node's status, and what the daemon around it offers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Version of the format, [`STATUS_FORMAT`].
    pub format: u32,
    /// The node's view.
    #[serde(flatten)]
    pub node: Status,
    /// Where the images can be attached.
    pub exports: Vec<ExportStatus>,
    /// How much memory it takes, and may.
    #[serde(default)]
    pub memory: MemoryStatus,
    /// The limits of the traffic with other nodes.
    #[serde(default)]
    pub limits: LimitsStatus,
    /// Changes of the images here.
    #[serde(default)]
    pub overlays: Vec<OverlayStatus>,
    /// The tags that this node follows.
    #[serde(default)]
    pub following: Vec<FollowingStatus>,
    /// What the daemon has given up, a part each; `not` begins what it could not.
    #[serde(default)]
    pub sandbox: Vec<String>,
    /// The control socket.
    pub control: String,
    /// The daemon's process id.
    pub pid: u32,
}

/// A tag that a daemon follows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowingStatus {
    /// Name of the tag.
    pub tag: String,
    /// Serial of the version to which the tag leads here; 0 before the first.
    pub serial: u64,
    /// Name of that version's image here; empty before the first.
    pub image: String,
    /// The image id, 64 hexadecimal digits; empty before the first.
    pub id: String,
    /// `ready`, `filling` the next version, or `waiting`.
    pub state: String,
    /// The reason to wait, in words; else empty.
    pub why: String,
}

/// The overlay of one image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayStatus {
    /// Name of the image.
    pub image: String,
    /// The image id, 64 hexadecimal digits.
    pub id: String,
    /// `ram`, or the directory.
    pub place: String,
    /// What takes up room, in whole granules of 4 KiB.
    pub held_bytes: u64,
    /// Bytes that were made zeros and take up none.
    pub zero_bytes: u64,
    /// How much may be held.
    pub max_bytes: u64,
    /// Bytes whose last change was refused; until they are written again or given up, no flush
    /// succeeds. The largest number if they lie in too many places to be known.
    #[serde(default)]
    pub refused_bytes: u64,
}
