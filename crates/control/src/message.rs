//! The control protocol's lines.
//!
//! A request is one JSON object on one line, with the protocol's version in `vfield` and the order
//! in `op`: `{"vfield":1,"op":"status"}`. Replies are lines too, told apart by `reply`; a `data`
//! line is followed by so many raw bytes. Input is hostile until [`Request::parse`]
//! returned it.

mod status;

pub use status::{DaemonStatus, FollowingStatus, OverlayStatus, STATUS_FORMAT};

use super::events::EventStatus;
use super::limits::LimitsStatus;
use crate::values::until::Until;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vfield_core::tags::SignedTag;
use vfield_core::wire::Proof;
use vfield_node::explained::Explained;
use vfield_node::status::Sole;
use vfield_node::trace::Recorded;

/// Raised when a line changes its meaning.
pub const VERSION: u32 = 1;
/// Longest request: a path of 4096 bytes and a signature fit, and each control character of a name
/// takes six.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Longest reply line: the status of some 100 000 nodes.
pub const REPLY_BYTES_MAX: usize = 64 << 20;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The daemon's view; answered by [`Reply::Status`].
    Status,
    /// What the daemon did last, and what those did whose memory it took over; answered by
    /// [`Reply::Events`], again and again if it is followed.
    Events {
        /// Only events with higher numbers.
        #[serde(default)]
        after: u64,
        /// At most so many; the last ones.
        most: usize,
        /// Go on with later ones as they come.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        follow: bool,
    },
    /// Answered by [`Reply::Reached`] once `until` holds, or by [`Reply::TimedOut`].
    Wait {
        /// The awaited condition.
        until: Until,
        /// For how long at most; without it for ever.
        timeout_ms: Option<u64>,
    },
    /// Hand over and end; answered by [`Reply::Left`] when all is done, or refused if chunks would
    /// be lost.
    Leave {
        /// How long handing over may take.
        timeout_ms: u64,
        /// Go though chunks would be lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
        /// Only say what would be lost; answered by [`Reply::WouldLose`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
    },
    /// Have peers ask this node last, so that it can leave; answered by [`Reply::Drained`].
    Drain {
        /// How long to wait until nothing hangs on it.
        timeout_ms: u64,
    },
    /// Take part again as before; answered by [`Reply::Done`].
    Undrain,
    /// Save an overlay in the new and empty file that is handed over with the request, since a
    /// daemon opens no files that others name; answered by [`Reply::Saved`].
    OverlaySave {
        /// Name, id, or the beginning of an id; without it the only one.
        image: Option<String>,
    },
    /// Drop the changes in an overlay; answered by [`Reply::Done`].
    OverlayReset {
        /// As in [`Request::OverlaySave`].
        image: Option<String>,
        /// Also while it is in use.
        #[serde(default)]
        force: bool,
    },
    /// Take part in one more image of the field; answered by [`Reply::Added`].
    Add {
        /// Name, id, the beginning of an id, or `NAME=ID`.
        image: String,
        /// How much of it to hold, as `--store` has it; without it as the daemon was started with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        store: Option<String>,
    },
    /// Serve the file that is handed over with the request, open for reading; answered by
    /// [`Reply::Added`].
    Serve(Serve),
    /// Take part in an image no more; answered by [`Reply::Done`], or refused if it is used here,
    /// or chunks would be lost.
    Drop {
        /// Name, id, or the beginning of an id.
        image: String,
        /// All the same.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Keep an image though no tag keeps it; answered by [`Reply::Done`].
    Pin {
        /// Name, id, or the beginning of an id.
        image: String,
        /// Not any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release: bool,
    },
    /// Take away the images that nobody needs, without their grace; answered by
    /// [`Reply::Collected`].
    Collect,
    /// Say what machines read first of an image; answered by [`Reply::Learned`].
    Learned {
        /// Name, id, or the beginning of an id; the only image without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image: Option<String>,
    },
    /// Say why the chunk at an offset of an image is not here. Without both: why readers wait, and
    /// which reads were slow. Answered by [`Reply::Explained`].
    Explain {
        /// Name, id, or the beginning of an id; the only image without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image: Option<String>,
        /// Offset in bytes; 0 without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        /// Ask other nodes for whom they wait in turn; that takes some seconds.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        follow: bool,
    },
    /// Record what the node does for each chunk; answered by [`Reply::Recorded`], the first one at
    /// once, and a [`Reply::Done`] when the time is over.
    Trace {
        /// For how long, [`crate::recording::LONGEST`] at most.
        duration_ms: u64,
    },
    /// Set the limits of an image that are given, and show all; answered by [`Reply::Limits`].
    LimitImage {
        /// Its name or its id.
        image: String,
        /// To other nodes, as `--limit-up` has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up: Option<String>,
        /// From other nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        down: Option<String>,
    },
    /// Set the limits of the node that are given, and show all; answered by [`Reply::Limits`].
    Limit {
        /// To other nodes, as `--limit-up` has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up: Option<String>,
        /// From other nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        down: Option<String>,
    },
    /// Hand over to a process of another program; answered by [`Reply::HandingOver`], or the daemon
    /// ends before its answer. A socket may be handed over with the request, over which the client
    /// names the program.
    Upgrade,
    /// Read the files of the field keys and of the admission list again; answered by
    /// [`Reply::Keys`].
    ReloadKeys,
    /// Tell the field of a tag; answered by [`Reply::Done`], or refused with the reason.
    Tag(SignedTag),
    /// What an image shares with another one; answered by [`Reply::Shared`], or refused unless the
    /// node serves both from files or objects.
    Compare {
        /// The image: name, id, or the beginning of an id.
        image: String,
        /// The other one.
        with: String,
    },
    /// Bytes of an image; answered by [`Reply::Data`] lines and a [`Reply::Done`].
    Cat {
        /// Name, id, or the beginning of an id.
        image: String,
        /// Offset of the first byte.
        offset: u64,
        /// How many; without it all to the end.
        length: Option<u64>,
    },
}

/// Properties of a file that is handed over to be served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// Its path, absolute: its name in `status`, and the path that is checked to see whether it was
    /// moved away.
    pub path: String,
    /// Name of the image.
    pub name: String,
    /// Chunk size in bytes.
    pub chunk_bytes: u64,
    /// Its signature, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

#[derive(Serialize)]
struct Outgoing<'a> {
    vfield: u32,
    #[serde(flatten)]
    request: &'a Request,
}

impl Request {
    /// The line that says it, with its newline.
    pub fn line(&self) -> Vec<u8> {
        encode(&Outgoing { vfield: VERSION, request: self })
    }

    /// The inverse of [`Request::line`]; for anything else, the refusal to send.
    pub fn parse(line: &[u8]) -> Result<Self, Reply> {
        let refuse = |fact: String| Reply::refused(fact, "use the vfield program of the daemon's version");
        let mut object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(line).map_err(|error| refuse(format!("not a control request: {error}")))?;
        match object.remove("vfield").and_then(|version| version.as_u64()) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(refuse(format!("the client speaks control version {version}, the daemon {VERSION}")));
            }
            None => return Err(refuse("not a control request: no version".to_owned())),
        }
        Self::deserialize(serde_json::Value::Object(object))
            .map_err(|error| refuse(format!("not a control request: {error}")))
    }
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The answer to [`Request::Status`].
    Status {
        /// The daemon's view.
        status: Box<DaemonStatus>,
    },
    /// Events, the oldest first.
    Events {
        /// Each of them.
        events: Vec<EventStatus>,
    },
    /// The condition holds.
    Reached,
    /// It did not hold in time.
    TimedOut,
    /// The node has left; the daemon ends now.
    Left {
        /// Chunks that only it held and others have taken over.
        handed_over: u64,
        /// Chunks that nobody took.
        lost: u64,
    },
    /// The node is drained, as far as it got in time.
    Drained {
        /// What still hangs on it.
        left: DrainLeft,
    },
    /// What would be lost if the node left now.
    WouldLose {
        /// True if it is the last one, with which the field ends.
        alone: bool,
        /// Of which images what.
        images: Vec<Sole>,
        /// Addresses of nodes that have no way to stores with the rest of an image.
        #[serde(default)]
        dependents: Vec<String>,
    },
    /// An image is here from now on.
    Added {
        /// Its names here.
        names: Vec<String>,
        /// The image id, 64 hexadecimal digits.
        id: String,
    },
    /// These images have gone.
    Collected {
        /// Each of them.
        freed: Vec<Freed>,
    },
    /// What an image has in common with another one.
    Shared {
        /// Its chunks with data.
        with_data: u64,
        /// Those that the other one has at the same place.
        same: u64,
    },
    /// An overlay is saved.
    Saved {
        /// Length of its file.
        bytes: u64,
    },
    /// These field keys are in force.
    Keys {
        /// Their names, the spoken one first.
        ids: Vec<String>,
        /// The admission list in force, in words, if it was read again too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        admission: Option<String>,
    },
    /// The successor is ready, and the daemon ends now.
    HandingOver,
    /// Why chunks are not here.
    Explained {
        /// Chunks and slow reads.
        explained: Explained,
    },
    /// What machines read first of an image.
    Learned {
        /// The name of the image.
        image: String,
        /// Its length in bytes.
        image_bytes: u64,
        /// The machines that told, this one among them.
        machines: u64,
        /// What at least half of them read: offset and length in bytes, in order.
        runs: Vec<(u64, u64)>,
    },
    /// What the node did.
    Recorded(Recorded),
    /// These limits are set.
    Limits {
        /// With the rates in force, in bytes a second.
        limits: LimitsStatus,
    },
    /// So many raw bytes follow this line.
    Data {
        /// How many, above 0.
        bytes: u64,
    },
    /// All was sent, or done.
    Done,
    /// The daemon is up and its node not yet.
    Starting {
        /// What it does.
        doing: String,
    },
    /// It cannot be done.
    Refused {
        /// The reason in words.
        fact: String,
        /// What to do.
        hint: String,
    },
}

impl Reply {
    /// A refusal with its hint.
    pub fn refused(fact: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { fact: fact.into(), hint: hint.into() }
    }

    /// The line that says it, with its newline.
    pub fn line(&self) -> Vec<u8> {
        encode(self)
    }

    /// The inverse of [`Reply::line`].
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

/// An image that has gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    /// Its name here.
    pub image: String,
    /// The image id, 64 hexadecimal digits.
    pub id: String,
    /// Bytes of memory that only it took.
    pub bytes: u64,
}

/// JSON on one line: serde_json escapes newlines within strings.
fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("plain data becomes JSON");
    line.push(b'\n');
    line
}

/// What still hangs on a drained node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainLeft {
    /// Data that no other node was seen to hold.
    pub images: Vec<Sole>,
    /// Addresses of nodes that have no way to stores with the rest of an image.
    #[serde(default)]
    pub dependents: Vec<String>,
    /// True if peers ask the node, or did so a moment ago.
    pub is_asked: bool,
    /// Reads of this machine that wait.
    pub reads: u64,
    /// Who uses its images on this machine, in words. They lose them when the node leaves.
    pub clients: Vec<String>,
}

impl DrainLeft {
    /// True if the node may leave, apart from clients of its own machine.
    pub fn is_none(&self) -> bool {
        self.images.is_empty() && self.dependents.is_empty() && !self.is_asked && self.reads == 0
    }
}

/// Milliseconds, as far as 64 bits go.
pub fn millis(period: Duration) -> u64 {
    u64::try_from(period.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
