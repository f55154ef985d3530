//! The events of the outermost machine: [`Input`]s go in, [`Output`]s come out.
//!
//! Values without behaviour. [`super::Node::handle`] takes each input and [`super::Node::poll`]
//! gives the outputs; the shell and the simulator match on them. No event holds bytes of a chunk.

use super::Commitment;
use crate::admission::Admission;
use crate::chunk::Chunk;
use crate::fetch::{Asker, ConnectionId, RequestId, Token};
use crate::identity::{Identity, NodeId};
use crate::image::ImageId;
use crate::inquiry::Purpose;
use crate::membership::{Departed, Member, Rival};
use crate::pursuit::Account;
use crate::reach::Reach;
use crate::rubbish::Uses;
use crate::slice::{Groups, Slice};
use crate::snapshot::Snapshot;
use crate::speed::{LinkBounds, Speed, Transit};
use crate::tags::{Known, Refused, SignedTag};
use crate::wire::{Priority, Refusal};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc as Shared;
use std::time::Duration;
use vfield_block::source::ReadError;

/// An event outside of the core.
#[derive(Debug)]
pub enum Input {
    /// The requested wake-up; it costs nothing if none was requested.
    Wake,
    /// A gossip datagram arrived from this address.
    Datagram(SocketAddr, Vec<u8>),
    /// The same over the connection of this node, which proved its identity there.
    Gossip(NodeId, Vec<u8>),
    /// A node greeted us, or answered our greeting: it proved that it has its key, and said this of
    /// itself.
    Met(Member),
    /// The latest generation that is known to the member through which this node joins. It comes
    /// before the first snapshot is sent.
    Arrive(u64),
    /// A node was called at an address, and greeted: [`Output::Call`], or the first call of all.
    Answered {
        /// The address that was called.
        addr: SocketAddr,
        /// What the node that answered there says of itself.
        member: Member,
    },
    /// Others can connect to this node at its announced address, or cannot: then its stores serve
    /// nobody. The default is true.
    Reachable(bool),
    /// A new address of this node, to be announced from now on.
    Readdress(SocketAddr),
    /// The bootstrap addresses: those at which the node was configured to find its field.
    Bootstrap(Vec<SocketAddr>),
    /// The snapshot of another node.
    Learned {
        /// The node that sent it, as it proved on its connection.
        from: NodeId,
        /// What it sent.
        snapshot: Snapshot,
    },
    /// A reader of this machine wants data chunks and waits for the first of them.
    Read {
        /// The reader's number, answered with [`Output::Answer`].
        token: Token,
        /// The image. If it is not here, the read fails.
        image: ImageId,
        /// Data chunks, not empty.
        chunks: Range<u64>,
    },
    /// A reader of this machine wants a part of a chunk of data, much less than all of it. If its
    /// slice comes it is the shell's to keep; [`Output::Answer`] may come with the whole chunk.
    ReadSlice {
        /// The reader's number, answered with [`Output::Answer`].
        token: Token,
        /// The image. If it is not here, the read fails.
        image: ImageId,
        /// The chunk of data.
        chunk: Chunk,
        /// The groups that it has in that chunk.
        groups: Groups,
    },
    /// A reader no longer waits.
    CancelRead(Token),
    /// Data chunks, or hash pages of them, will probably be read.
    Prefetch {
        /// The image to prefetch from.
        image: ImageId,
        /// Any range of chunks.
        chunks: Range<u64>,
        /// [`Priority::Demand`] if a client said so, [`Priority::ReadAhead`] if it is a guess.
        priority: Priority,
    },
    /// A peer requested a chunk that is not in the shell's store.
    Asked {
        /// The peer's connection and request.
        asker: Asker,
        /// For which image.
        image: ImageId,
        /// For what of it.
        chunk: Chunk,
        /// The priority of the request.
        priority: Priority,
    },
    /// A peer asks why a chunk has not come to this node.
    AskedWhy {
        /// The peer's connection and request.
        asker: Asker,
        /// The peer, as it proved on its connection.
        node: NodeId,
        /// The image it is about.
        image: ImageId,
        /// The asked number, which may be beyond the image.
        chunk: Chunk,
    },
    /// A peer cancelled a request.
    CancelAsked(ConnectionId, u64),
    /// A peer's connection to us has ended.
    AskerGone(ConnectionId),
    /// A peer says at which speed this node's answers come to it.
    Delivers(NodeId, Speed),
    /// A node has these chunks of data. Said by an origin: those of them that this node is to store
    /// will soon be gone there.
    Here {
        /// The node, as it proved on its connection.
        from: NodeId,
        /// The image they belong to.
        image: ImageId,
        /// The chunks, in any order; some may not exist.
        chunks: Vec<Chunk>,
    },
    /// What this node's link may carry from now on. Requests and the announced speed follow it.
    Bounds(LinkBounds),
    /// What this node's link may carry of one image from now on, within those of the link. Requests
    /// of the image and the speed that is announced with it follow. If the image is not here, it
    /// has no effect.
    BoundsOf(ImageId, LinkBounds),
    /// The answer to a request has come, has been verified, and is in the shell's store; a slice is
    /// where its readers find it.
    Arrived {
        /// The answered request.
        request: RequestId,
        /// How long the peer itself waited for the chunk, by its own account.
        waited: Duration,
        /// How the answer came over this node's link.
        transit: Transit,
        /// For a hash page: the runs of its children that are all zeros.
        zeros: Vec<Range<u64>>,
    },
    /// Chunks found in the shell's store and verified, without a request: an earlier process left
    /// them.
    Found {
        /// The image they belong to.
        image: ImageId,
        /// The chunks found, in any order.
        chunks: Vec<Chunk>,
        /// For the hash pages among them: the runs of their children that are all zeros.
        zeros: Vec<Range<u64>>,
    },
    /// The survey of an image is complete: all chunks that an earlier process left have been
    /// checked.
    Surveyed(ImageId),
    /// Chunks of data that the shell's store has lost: its disk gave back other bytes. They are
    /// fetched again.
    Spoiled {
        /// The image they belong to.
        image: ImageId,
        /// The lost chunks, in any order.
        chunks: Vec<Chunk>,
    },
    /// Stored chunks of data that the shell's disk does not deliver for now. They count as stored,
    /// and readers get them from others.
    Withheld {
        /// The image they belong to.
        image: ImageId,
        /// The chunks, in any order.
        chunks: Vec<Chunk>,
    },
    /// The disk delivers these chunks again.
    Released {
        /// The image they belong to.
        image: ImageId,
        /// The chunks, in any order.
        chunks: Vec<Chunk>,
    },
    /// The shell's store of an image takes no more chunks: its disk is full. From now on its
    /// capacity is the number of chunks in it.
    Full(ImageId),
    /// A store that was full has room again, and its capacity is that of before.
    Roomy(ImageId),
    /// The answer did not match its hash.
    Corrupt(RequestId),
    /// The answer came, but could not be verified or stored: the page with its hash was dropped
    /// meanwhile, or memory was full. The chunk is requested again after a pause that doubles each
    /// time.
    Unusable(RequestId),
    /// The peer refused.
    Refused(RequestId, Refusal),
    /// The peer, an origin, said to ask another node.
    Redirected(RequestId, NodeId),
    /// The connection broke before the answer came.
    Lost(RequestId),
    /// A part of an answer came from this peer.
    Progress(NodeId),
    /// This peer is unreachable, or its connection broke.
    Broken(NodeId),
    /// This peer broke the protocol on a connection that this node opened. On incoming connections
    /// the identity is unproven, so misconduct there is never reported here.
    Misbehaved(NodeId),
    /// This admission list is in force from now on.
    Admission(Shared<Admission>),
    /// The operator of this machine, or an earlier process of this node, has this tag.
    Tag(SignedTag),
    /// How an image is used on this machine has changed.
    Used {
        /// The image that it is about.
        image: ImageId,
        /// All of its uses.
        uses: Uses,
    },
    /// The images that nobody needs now are to go without the grace.
    Collect,
    /// This node leaves an image; from now on the shell has nothing of it.
    Drop(ImageId),
    /// Somebody asks how well the stores hold this node's images: it checks them for a minute.
    Inquire {
        /// The wanted number of holders of each chunk.
        times: u64,
        /// What hangs on the answer.
        purpose: Purpose,
    },
    /// The node is about to leave: others are to take over chunks that only it holds.
    Leave,
    /// This node stays after all.
    Stay,
    /// Peers are to ask this node last, and its store fetches no more; or as before, if false.
    Drain(bool),
    /// The node leaves now.
    Gone,
}

/// An action outside of the core.
#[derive(Debug)]
pub enum Output {
    /// Send a gossip datagram.
    Datagram(SocketAddr, Vec<u8>),
    /// Send the same over a connection, to be made if there is none: no datagram reaches the node.
    Gossip(Identity, Vec<u8>),
    /// This node had to deny a statement about itself: others may have stopped accepting its
    /// messages. From now on its datagrams need a new seal. It comes before the denial.
    Denied,
    /// Exchange [`Snapshot`]s with this node: ours is [`super::Node::snapshot`] for it, its answer
    /// [`Input::Learned`].
    Sync(Identity),
    /// Tell this node that there is another admission list. It asks for the list if its own is
    /// older.
    Offer(Identity),
    /// Greet the node at this address, and exchange [`Snapshot`]s with it: [`Input::Answered`],
    /// [`Input::Learned`].
    Call(SocketAddr),
    /// Ask this node for a chunk; exactly one of the inputs with a [`RequestId`] has to follow.
    Request {
        /// The id of the request.
        request: RequestId,
        /// The peer to ask.
        peer: Identity,
        /// The image it is for.
        image: ImageId,
        /// For what of it.
        chunk: Chunk,
        /// The priority it is sent with.
        priority: Priority,
        /// The reach: how far the peer may pass the request on.
        reach: Reach,
        /// True if the origin's advice to ask another did not help.
        insists: bool,
        /// True if that node is an origin of the image.
        origin: bool,
        /// What becomes of the chunk.
        keep: Keep,
    },
    /// Ask this node for a slice of a chunk, for a reader; exactly one of the inputs with a
    /// [`RequestId`] has to follow. If the node speaks a version without slices, it is
    /// [`Refusal::Whole`].
    RequestSlice {
        /// The id of the request.
        request: RequestId,
        /// The peer to ask.
        peer: Identity,
        /// The image it is for.
        image: ImageId,
        /// The chunk of data.
        chunk: Chunk,
        /// The part of it, and the pages above.
        slice: Slice,
        /// True if that node is an origin of the image.
        origin: bool,
    },
    /// Tell a peer the speed at which its answers come.
    TellSpeed(NodeId, Speed),
    /// Tell an origin that these chunks are stored here.
    Here(NodeId, ImageId, Vec<Chunk>),
    /// Cancel a request; its answer may still come.
    CancelRequest(RequestId, NodeId),
    /// Send a stored chunk to a peer that requested it.
    Serve(Serve),
    /// Refuse a peer's request.
    Refuse(Asker, Refusal),
    /// Answer a peer's question why a chunk has not come.
    Account(Asker, Account),
    /// Tell a reader to go on: the first chunk it waits for is here, or never will be.
    Answer(Token, Result<(), ReadError>),
    /// A chunk that is here counts as stored from now on, however it was requested.
    Stored(ImageId, Chunk),
    /// Drop a chunk from the store.
    Evict(ImageId, Chunk),
    /// The store's share of this image changed. [`super::ImageConfig::kept`] of the next process is
    /// to be this value.
    Committed(ImageId, Commitment),
    /// An event for logs and status.
    Notice(Notice),
}

/// What becomes of a requested chunk once it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It is verified and forgotten: a spot check.
    Not,
    /// It is passed on or read, and probably dropped soon.
    Passing,
    /// It belongs into the store.
    Stored,
}

/// A stored chunk for a peer; see [`Output::Serve`].
#[derive(Debug, Clone, Copy)]
pub struct Serve {
    /// The peer's connection and request.
    pub asker: Asker,
    /// The image it belongs to.
    pub image: ImageId,
    /// The chunk, data or page.
    pub chunk: Chunk,
    /// As it asked.
    pub priority: Priority,
    /// How long the request waited for the chunk to arrive; the peer is told.
    pub waited: Duration,
}

/// Events for logs and status; see [`Output::Notice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A member is new, or back.
    Up(Identity),
    /// A member has another address: connections to the one before lead nowhere.
    Moved(Identity),
    /// A member died or left.
    Down(Departed),
    /// Another process uses this node's key.
    Rival(Rival),
    /// A member announced that nobody should count on it, or takes that back. Meanwhile no node is
    /// sent there.
    Available(NodeId, bool),
    /// For a while no datagrams have come through between this node and this member, and perhaps
    /// others ([`super::Node::without_datagrams`]); messages go over connections. Said once.
    NoDatagrams(Identity),
    /// For a while this node has had no way to this member, and perhaps others
    /// ([`super::Node::without_a_way`]); messages go through a third. Said once.
    NoWay(Identity),
    /// A peer sent wrong bytes, or broke the protocol, and is banned for this time.
    Blamed(NodeId, Duration),
    /// The stores hold all of this image from now on, or no longer do.
    Coverage(ImageId, bool),
    /// The fill of this node's store is complete.
    Filled(ImageId),
    /// A fill waits, since the day's budget of the disk is spent; said once.
    Spent,
    /// Nobody needs this image, and nothing is lost with it: the shell is to take it away, unless a
    /// reader has come. Said again while it is here.
    Discard(ImageId),
    /// This tag counts from now on.
    Tagged(Shared<Known>),
    /// A tag was not taken up, and where it came from if not from this machine.
    TagRefused(Refused, Option<SocketAddr>),
}
