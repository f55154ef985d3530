//! Fetches: a fetch is the goal of getting one chunk, with any number of requests to any number of
//! peers.
//!
//! A [`Fetch`] is the single flight of its chunk: readers, peers and the store's own fill that want
//! the same chunk share it. It stays in the table ([`Fetches`]) until the chunk is here or
//! unwanted, and only the table moves it from stage to stage. A [`Request`] is one ask to one peer
//! for it. [`crate::node`] decides about both.

mod table;
mod trail;

pub use table::{Fetches, Goal, Move};
pub use trail::{STAGES, Trail};

use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::node::TimerKey;
use crate::reach::Reach;
use crate::slice::Slice;
use crate::small_list::SmallList;
use crate::time::Time;
use crate::wire::Priority;

/// The shell's number for a waiting reader of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The shell's number for a peer's connection to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Core's number for a request of this node; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An image by its number among those of this node. Requests carry it in place of the much longer
/// [`crate::image::ImageId`], since thousands are under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageNumber(pub u32);

/// A peer whose request waits for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The connection that gets the answer.
    pub connection: ConnectionId,
    /// The asker's number for it.
    pub request: u64,
    /// The reach of its request: how far it may still be passed on.
    pub reach: Reach,
}

/// The state of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The page with its hash has to come first.
    NeedsParent,
    /// Queued for the window.
    Queued,
    /// It is parked until the window of this peer has room.
    Parked(NodeId),
    /// At least one request is under way.
    Requested,
    /// It pauses before a retry, because the last answer could not be used.
    Paused,
    /// No peer can be asked.
    Waiting,
}

/// The reason of a wait for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No live node that this one can reach has it.
    NoHolder,
    /// Every node that should have the chunk refused it.
    Refused,
    /// There is an origin, and it has all of the image. But it was asked in vain, or too often:
    /// its disk or object store does not deliver, or the way to it is too bad.
    Undelivered,
    /// The file of each remaining origin has changed.
    SourceChanged,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoHolder => "no live node holds it",
            Self::Refused => "no live node has it, those that are to hold it were asked",
            Self::Undelivered => "an origin has it, but did not deliver it",
            Self::SourceChanged => "the origin's file has changed",
        })
    }
}

/// For whom a chunk is fetched; nearer beneficiaries come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beneficiary {
    /// Peers only: this node needs it no more once they are gone.
    Peers,
    /// This machine's store, or its read-ahead.
    Store,
    /// A reader of this machine, which waits.
    Reader,
}

/// Classes of fetches, in the order in which they get room for one more request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// A reader of this machine waits. Requests of peers never go before it, however many there
    /// are.
    Reader,
    /// A reader of another machine waits.
    Demand,
    /// Read-ahead, on this machine or another.
    ReadAhead,
    /// The fill of a store.
    Fill,
}

impl Turn {
    /// All classes, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Reader, Self::Demand, Self::ReadAhead, Self::Fill];

    /// The priority of its requests.
    pub const fn priority(self) -> Priority {
        match self {
            Self::Reader | Self::Demand => Priority::Demand,
            Self::ReadAhead => Priority::ReadAhead,
            Self::Fill => Priority::Fill,
        }
    }
}

/// The single flight of one chunk.
#[derive(Debug)]
pub struct Fetch {
    /// The current state.
    stage: Stage,
    /// The nearest beneficiary, past ones included.
    beneficiary: Beneficiary,
    /// The highest priority among its beneficiaries.
    priority: Priority,
    /// Readers of this machine that wait for it.
    pub waiters: SmallList<Token>,
    /// Peers that wait for it, and since when.
    pub askers: SmallList<(Asker, Time)>,
    /// Fetches that need this page: the chunks whose hash is in it.
    pub children: Vec<Chunk>,
    /// Requests under way.
    requests: SmallList<RequestId>,
    /// Peers that failed this time round.
    pub tried: SmallList<NodeId>,
    /// The most reach that a request for it may have: less than that of any asker.
    pub reach: Reach,
    /// The reach of the request under way; `None` if it went to a certain holder. Only askers with
    /// more reach may wait.
    pub rank: Option<Reach>,
    /// Since when, and why, no peer can be asked; it stays during retries.
    pub waiting: Option<(Time, Why)>,
    /// The node that an origin advised to ask instead. It is tried once.
    pub advice: Option<NodeId>,
    /// An origin has given advice: the next time it is to send the chunk itself.
    pub insist: bool,
    /// An origin has given advice again, as it cannot send the chunk at once. It is followed even
    /// if the advised node is slower.
    pub firm: bool,
    /// An origin said that its file has changed.
    pub source_changed: bool,
    /// Answers in a row that could not be used.
    setbacks: u32,
    /// Rounds in which all who were asked refused, and until when the last one keeps it waiting.
    pub rounds: (u32, Time),
    /// True if the store's fill wants it.
    pub fill: bool,
    /// True if it is fetched ahead of a reader that goes through the image in order.
    pub stream: bool,
    /// True if the fetch has been parked for so long that others than the best peer may be asked.
    overdue: bool,
    /// The timer of its parking or its pause: when it is due, and its number.
    timer: Option<TimerKey>,
    /// Its place in the line of a turn, while it is queued.
    place: Option<(Turn, i64)>,
    /// Where its time went.
    pub trail: Trail,
}

impl Fetch {
    /// A new fetch, queued.
    pub const fn new(priority: Priority, beneficiary: Beneficiary, now: Time) -> Self {
        Self {
            stage: Stage::Queued,
            beneficiary,
            priority,
            waiters: SmallList::None,
            askers: SmallList::None,
            children: Vec::new(),
            requests: SmallList::None,
            tried: SmallList::None,
            reach: Reach::READER,
            rank: None,
            waiting: None,
            advice: None,
            insist: false,
            firm: false,
            source_changed: false,
            setbacks: 0,
            rounds: (0, Time::ZERO),
            fill: false,
            stream: false,
            overdue: false,
            timer: None,
            place: None,
            trail: Trail::new(now),
        }
    }

    /// Moves on to another stage.
    fn enter(&mut self, stage: Stage, now: Time) {
        if self.stage != stage {
            self.trail.left(self.stage, now);
            self.stage = stage;
        }
    }

    /// The current state.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// The highest priority among its beneficiaries.
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// The nearest beneficiary, past ones included.
    pub const fn beneficiary(&self) -> Beneficiary {
        self.beneficiary
    }

    /// Requests under way.
    pub fn requests(&self) -> &[RequestId] {
        &self.requests
    }

    /// True if the fetch has been parked for so long that others than the best peer may be asked.
    pub const fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// The timer of its parking or its pause, if one is set.
    pub(crate) const fn timer(&self) -> Option<TimerKey> {
        self.timer
    }

    /// The class that decides when this fetch gets a request.
    pub fn turn(&self) -> Turn {
        match (self.priority, self.beneficiary) {
            (Priority::Demand, Beneficiary::Reader) => Turn::Reader,
            (Priority::Demand, _) => Turn::Demand,
            (Priority::ReadAhead, _) => Turn::ReadAhead,
            (Priority::Fill, _) => Turn::Fill,
        }
    }

    /// True if no request is under way and no beneficiary waits: it need not be requested.
    pub fn is_unwanted(&self) -> bool {
        let waited_for = !(self.waiters.is_empty() && self.askers.is_empty() && self.children.is_empty());
        let idle = match self.stage {
            Stage::Waiting => true,
            // Chunks that the store or a read-ahead queued are wanted without a waiting reader.
            Stage::NeedsParent | Stage::Paused => self.beneficiary != Beneficiary::Store,
            Stage::Queued | Stage::Parked(_) => self.beneficiary == Beneficiary::Peers,
            Stage::Requested => false,
        };
        idle && !self.fill && !waited_for
    }

    /// True if a peer whose request has this reach may wait for this fetch.
    pub fn may_join(&self, reach: Reach) -> bool {
        match self.stage {
            Stage::Requested => self.rank.is_none_or(|rank| reach > rank),
            Stage::NeedsParent | Stage::Queued | Stage::Parked(_) | Stage::Paused => reach > Reach::HOLDER,
            Stage::Waiting => false,
        }
    }

    /// Begins a new round: all may be asked again.
    pub fn begin_round(&mut self) {
        self.tried.clear();
        (self.advice, self.source_changed) = (None, false);
    }

    /// Removes the askers with the least reach, if others wait who may go further: those that had
    /// more reach, or this machine. Empty if none of them holds it up.
    pub fn refuse_the_nearest(&mut self) -> Vec<Asker> {
        let least = self.askers.iter().map(|(asker, _)| asker.reach).min();
        let others =
            self.beneficiary > Beneficiary::Peers || self.askers.iter().any(|(asker, _)| Some(asker.reach) > least);
        least.filter(|_| others).map_or_else(Vec::new, |least| self.refuse_out_of_reach(least))
    }

    /// Removes the askers that may not wait for a request of this rank. They joined before its
    /// target was known, and see another position in the chain. If the fetch kept to their reach,
    /// no upstream could join it to the fetch under way there.
    pub fn refuse_out_of_reach(&mut self, rank: Reach) -> Vec<Asker> {
        let may_not = |(asker, _): &(Asker, Time)| asker.reach <= rank;
        let refused: Vec<Asker> = self.askers.iter().filter(|entry| may_not(entry)).map(|(asker, _)| *asker).collect();
        if !refused.is_empty() {
            self.askers.retain(|entry| !may_not(entry));
            self.reach = self.askers.iter().map(|(asker, _)| asker.reach.less()).fold(Reach::READER, Reach::min);
        }
        refused
    }
}

/// One ask to one peer.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The asked peer.
    pub peer: NodeId,
    /// The image it is for.
    pub image: ImageNumber,
    /// For what of it.
    pub chunk: Chunk,
    /// Length of the answer.
    pub bytes: u64,
    /// The priority, as sent.
    pub priority: Priority,
    /// The reach, as sent: how far the peer may pass the request on.
    pub reach: Reach,
    /// When it was sent.
    pub sent: Time,
    /// Bytes that the peer owed us with it.
    pub owed: u64,
    /// True for a hedge: another peer was asked for the same chunk before.
    pub hedge: bool,
    /// True if its answer is no longer wanted; it still counts as outstanding.
    pub orphan: bool,
    /// True for a spot check: the chunk is only verified, and belongs to no fetch.
    pub check: bool,
    /// The part of the chunk that it is for; `None` for all of it. A slice belongs to no fetch.
    pub slice: Option<Slice>,
}
