//! What happens in a node that a person at a terminal wants to know of.

use std::net::SocketAddr;
use std::sync::Arc;
use vfield_core::membership::Departure;

/// Something worth a line or a progress bar.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A file is being hashed; sent some times a second, and once with `done_bytes == total_bytes`.
    Hashing {
        /// Name of the image to be.
        image: String,
        /// Bytes looked at so far; holes count.
        done_bytes: u64,
        /// Length of the file.
        total_bytes: u64,
    },
    /// An image can be served.
    Published {
        /// Its name.
        image: String,
        /// Its id in hexadecimal.
        id: String,
        /// Its length.
        size_bytes: u64,
    },
    /// The node accepts connections.
    Listening {
        /// Where.
        addr: SocketAddr,
    },
    /// A bootstrap node did not answer; it will be tried again.
    BootstrapFailed {
        /// Which.
        addr: SocketAddr,
        /// Why, in lower case.
        why: String,
    },
    /// The node is a member and has the image's header.
    Joined {
        /// The image's name.
        image: String,
        /// Its id in hexadecimal.
        id: String,
        /// Its length.
        size_bytes: u64,
        /// What this node will hold.
        capacity_bytes: u64,
    },
    /// The store of an image is smaller than it is by default, since memory is short.
    Capped {
        /// The image's name.
        image: String,
        /// What this node will hold.
        capacity_bytes: u64,
        /// What it would hold.
        default_bytes: u64,
    },
    /// What an earlier process held was looked at, and counts.
    TakenOver {
        /// The image's name.
        image: String,
        /// Bytes that were right.
        adopted_bytes: u64,
        /// Chunks that were not, and were dropped.
        spoiled: u64,
    },
    /// The store grew; sent some times a second while it fills.
    Filling {
        /// The image's name.
        image: String,
        /// Bytes held.
        held_bytes: u64,
        /// Bytes to be held.
        goal_bytes: u64,
    },
    /// The store holds all it is to hold.
    Filled {
        /// The image's name.
        image: String,
        /// Bytes held.
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
    /// A member was found dead or said goodbye.
    NodeGone {
        /// Its id in hexadecimal.
        node: String,
        /// Its address.
        addr: SocketAddr,
        /// How it went.
        how: Departure,
    },
    /// A member joined.
    NodeJoined {
        /// Its id in hexadecimal.
        node: String,
        /// Its address.
        addr: SocketAddr,
    },
    /// Others are told another address of this node from now on, since somebody came by it, or could not come by the first.
    Readdressed {
        /// What they were told before.
        from: SocketAddr,
        /// What they are told now.
        to: SocketAddr,
    },
    /// Others can connect to this node, and could not before.
    Reachable {
        /// Where.
        addr: SocketAddr,
    },
    /// The field has no image yet; it is waited for.
    NoImages,
    /// A reader of this machine has waited for long, for a chunk that nobody can be asked for.
    ReadWaits {
        /// The image's name.
        image: String,
        /// The chunk's number.
        chunk: u64,
        /// For how long.
        for_s: u64,
        /// Why, in a few words.
        why: String,
        /// Who had it last, if that is known.
        holder: Option<Holder>,
    },
    /// No reader of that image waits any more.
    ReadGoesOn {
        /// The image's name.
        image: String,
        /// For how long the first of them has waited, about.
        for_s: u64,
    },
    /// Something a person should look at: a lying peer, a changed source file.
    Warning(String),
}

/// Who had a chunk last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Where it was.
    pub addr: SocketAddr,
    /// How it went.
    pub how: Departure,
    /// Seconds since then.
    pub ago_s: u64,
}

/// Takes events; called from any thread, must not block.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;
