//! Events of a node, for a person at a terminal.

use std::net::SocketAddr;
use std::sync::Arc;
use vfield_core::membership::Departure;

/// An event worth a line or a progress bar.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A file is being hashed; sent some times a second, and once with `done_bytes == total_bytes`.
    Hashing {
        /// Name of the image to be.
        image: String,
        /// Bytes hashed so far; holes count.
        done_bytes: u64,
        /// Length of the file.
        total_bytes: u64,
    },
    /// An image can be served.
    Published {
        /// Name of the image.
        image: String,
        /// Its id in hexadecimal.
        id: String,
        /// Length of the image in bytes.
        size_bytes: u64,
    },
    /// The file was not hashed: its hashes are those of an earlier start.
    KeptTree {
        /// Name of the image.
        image: String,
        /// The file with the hashes.
        tree: String,
    },
    /// The node accepts connections.
    Listening {
        /// The listening address.
        addr: SocketAddr,
    },
    /// A bootstrap node did not answer; the node will retry.
    BootstrapFailed {
        /// The member's address.
        addr: SocketAddr,
        /// The reason, in lower case.
        why: String,
        /// True if it is worth a line of the log. Others show what the node is waiting for.
        is_news: bool,
    },
    /// The name of a bootstrap node has an address that it did not have.
    BootstrapFound {
        /// The name as it was configured.
        name: String,
        /// One of its addresses, with the configured port.
        addr: SocketAddr,
    },
    /// The node is a member and has the image's header.
    Joined {
        /// The image's name.
        image: String,
        /// Its id in hexadecimal.
        id: String,
        /// Length of the image in bytes.
        size_bytes: u64,
        /// Bytes that this node will hold.
        capacity_bytes: u64,
        /// True if that is all of it.
        whole: bool,
    },
    /// The store of an image is smaller than it is by default, since memory is short.
    Capped {
        /// The image's name.
        image: String,
        /// Bytes that this node will hold.
        capacity_bytes: u64,
        /// Bytes that it would hold by default.
        default_bytes: u64,
    },
    /// The store of an earlier process has been checked, and counts.
    TakenOver {
        /// The image's name.
        image: String,
        /// Bytes of right chunks.
        adopted_bytes: u64,
        /// Chunks that were wrong, and were dropped.
        spoiled: u64,
    },
    /// The new version of an image shares chunks with other versions on this node; sent once its
    /// store has looked at all of them.
    Shared {
        /// The image's name.
        image: String,
        /// Bytes that lie in the memory of the other versions.
        shared_bytes: u64,
    },
    /// The store grew; sent some times a second while it fills.
    Filling {
        /// The image's name.
        image: String,
        /// Bytes in the store.
        held_bytes: u64,
        /// Bytes to be held.
        goal_bytes: u64,
    },
    /// The store is full; never sent for a store without room.
    Filled {
        /// The image's name.
        image: String,
        /// Bytes in the store.
        held_bytes: u64,
    },
    /// The stores of the field hold the whole image: the origin may leave.
    Covered {
        /// The image's name.
        image: String,
    },
    /// Some chunk is now held by no store, or the whole image only by an origin.
    Uncovered {
        /// The image's name.
        image: String,
    },
    /// A member died or left.
    NodeGone {
        /// Its id in hexadecimal.
        node: String,
        /// The member's last address.
        addr: SocketAddr,
        /// How it departed.
        how: Departure,
    },
    /// A member joined.
    NodeJoined {
        /// Its id in hexadecimal.
        node: String,
        /// The member's own address.
        addr: SocketAddr,
    },
    /// The announced address of this node changed, after a node connected to another one or could
    /// not connect to the first.
    Readdressed {
        /// The address announced before.
        from: SocketAddr,
        /// The address announced now.
        to: SocketAddr,
    },
    /// Others can connect to this node, and could not before.
    Reachable {
        /// The peer's own address.
        addr: SocketAddr,
    },
    /// The field has no image yet; it is waited for.
    NoImages,
    /// A local reader has waited for long.
    ReadWaits {
        /// The image's name.
        image: String,
        /// The chunk's number.
        chunk: u64,
        /// The seconds waited so far.
        for_s: u64,
        /// The reason in a few words.
        why: String,
        /// The last holder, if it is known.
        holder: Option<Holder>,
    },
    /// No reader of that image waits any more.
    ReadGoesOn {
        /// The image's name.
        image: String,
        /// About how long the first of them waited, in seconds.
        for_s: u64,
    },
    /// Another admission list is in force.
    Admission {
        /// Seconds since 1970, as its signer says.
        timestamp: u64,
        /// The number of allowed keys; without any, all that are not revoked are admitted.
        allowed: u64,
        /// The number of revoked keys.
        revoked: u64,
    },
    /// A tag moved, as this node knows from now on.
    Tagged {
        /// The tag's name.
        tag: String,
        /// The tag's serial, which only grows.
        serial: u64,
        /// The id of its image in hexadecimal; empty if the tag was removed.
        image: String,
    },
    /// A tag that this node follows cannot be followed now; the node goes on with its version.
    TagWaits {
        /// The tag's name.
        tag: String,
        /// The reason, for people.
        why: String,
    },
    /// The version that a tag names can be read here from now on.
    TagReady {
        /// The tag's name.
        tag: String,
        /// The serial of the version.
        serial: u64,
        /// The name of its image here.
        image: String,
        /// The id of its image in hexadecimal.
        id: String,
    },
    /// A fact that needs a person's attention: a lying peer, a changed source file.
    Warning(String),
}

/// The last holder of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its last known address.
    pub addr: SocketAddr,
    /// How it departed.
    pub how: Departure,
    /// Seconds since then.
    pub ago_s: u64,
}

/// A receiver of events; called from any thread, must not block.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;
