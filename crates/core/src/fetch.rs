//! Fetches: the goal of getting one chunk, however many requests to however many peers it takes.
//!
//! A [`Fetch`] is the single flight of its chunk: readers, peers and the store's own fill that want the
//! same chunk meet in it. It lives in the table of its image until the chunk is here or nobody wants it
//! any more. [`Request`] is one ask to one peer on its behalf. Plain data; [`crate::node`] moves it along.

use crate::chunk::Chunk;
use crate::few::Few;
use crate::identity::NodeId;
use crate::node::TimerKey;
use crate::reach::Reach;
use crate::time::Time;
use crate::wire::Priority;

/// A reader of this machine that waits, as the shell numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A peer's connection to us, as the shell numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A request of ours, numbered by core; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An image by its number among those of this node: thousands of requests are noted at once, and an [`crate::image::ImageId`]
/// is half as long as all the rest of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageNumber(pub u32);

/// A peer that waits for a chunk it asked us for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Where to send it.
    pub connection: ConnectionId,
    /// The asker's number for it.
    pub request: u64,
    /// How far its request may still be passed on.
    pub reach: Reach,
}

/// Where a fetch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The page with its hash has to come first.
    NeedsParent,
    /// In line for the window.
    Queued,
    /// Until the peer that is to be asked can take more.
    Parked(NodeId),
    /// At least one request is under way.
    Requested,
    /// An answer could not be used; it is asked for again after a while.
    Paused,
    /// Nobody to ask.
    Waiting,
}

/// Why a chunk is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No live node that this one can reach has it.
    NoHolder,
    /// All that should have it said that they do not.
    Refused,
    /// The only origins left have another file behind the image by now.
    SourceChanged,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoHolder => "no live node holds it",
            Self::Refused => "no live node has it, those that are to hold it were asked",
            Self::SourceChanged => "the origin's file has changed",
        })
    }
}

/// For whom a chunk is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beneficiary {
    /// Peers only: nobody here needs it once they are gone.
    Peers,
    /// This machine's store, or its read-ahead.
    Store,
    /// A reader of this machine, which waits.
    Reader,
}

/// Whose turn it is when there is room for one more request: the first of these that has something in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// What a reader of this machine waits for: peers' wishes, however many, do not go before it.
    Reader,
    /// What somebody else waits for.
    Demand,
    /// What somebody will probably wait for.
    ReadAhead,
    /// What is to be stored.
    Fill,
}

impl Turn {
    /// All, the first first.
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
    /// Where it stands.
    pub stage: Stage,
    /// The nearest of those who want it, or did.
    pub beneficiary: Beneficiary,
    /// The most urgent of those who want it.
    pub priority: Priority,
    /// Readers of this machine that wait for it.
    pub waiters: Few<Token>,
    /// Peers that wait for it, and since when.
    pub askers: Few<(Asker, Time)>,
    /// Chunks whose hash is in it.
    pub children: Vec<Chunk>,
    /// Requests under way.
    pub requests: Few<RequestId>,
    /// Peers that failed this time round.
    pub tried: Few<NodeId>,
    /// The most that a request of ours may reach: less than what any asker gave us.
    pub reach: Reach,
    /// The reach of the request under way, `None` if it went to one that has the chunk for sure: only
    /// askers with more may wait.
    pub rank: Option<Reach>,
    /// Since when, and why, there is nobody to ask; it stays while asking is tried again.
    pub waiting: Option<(Time, Why)>,
    /// Whom an origin said to ask instead; tried once.
    pub advice: Option<NodeId>,
    /// An origin has given advice: the next time it is to send the chunk itself.
    pub insist: bool,
    /// An origin said that its file has changed.
    pub source_changed: bool,
    /// How many answers in a row could not be used.
    pub setbacks: u32,
    /// True if the store's fill wants it.
    pub fill: bool,
    /// True if it is fetched ahead of a reader that goes through the image in order.
    pub stream: bool,
    /// True if it has been parked for so long that others than the best may be asked.
    pub overdue: bool,
    /// The timer with which it may become so: when it is due, and its number.
    pub(crate) overdue_timer: Option<TimerKey>,
}

impl Fetch {
    /// A new one, in line.
    pub const fn new(priority: Priority, beneficiary: Beneficiary) -> Self {
        Self {
            stage: Stage::Queued,
            beneficiary,
            priority,
            waiters: Few::None,
            askers: Few::None,
            children: Vec::new(),
            requests: Few::None,
            tried: Few::None,
            reach: Reach::READER,
            rank: None,
            waiting: None,
            advice: None,
            insist: false,
            source_changed: false,
            setbacks: 0,
            fill: false,
            stream: false,
            overdue: false,
            overdue_timer: None,
        }
    }

    /// Whose turn has to come for it to be asked for.
    pub fn turn(&self) -> Turn {
        match (self.priority, self.beneficiary) {
            (Priority::Demand, Beneficiary::Reader) => Turn::Reader,
            (Priority::Demand, _) => Turn::Demand,
            (Priority::ReadAhead, _) => Turn::ReadAhead,
            (Priority::Fill, _) => Turn::Fill,
        }
    }

    /// True if nothing is under way for it and nobody waits for it any more, so that it need not be asked for.
    pub fn is_unwanted(&self) -> bool {
        let waited_for = !(self.waiters.is_empty() && self.askers.is_empty() && self.children.is_empty());
        let idle = match self.stage {
            Stage::Waiting => true,
            // What the store or a read-ahead lined up is wanted, though nobody waits.
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

    /// Takes out those who may not wait for a request of this rank. They joined before it was known whom it would go to, and
    /// stand elsewhere in the crowd by now, or think so: were it to go no further than they allow, nobody upstream would
    /// join it to what is under way there.
    pub fn shed(&mut self, rank: Reach) -> Vec<Asker> {
        let may_not = |(asker, _): &(Asker, Time)| asker.reach <= rank;
        let shed: Vec<Asker> = self.askers.iter().filter(|entry| may_not(entry)).map(|(asker, _)| *asker).collect();
        if !shed.is_empty() {
            self.askers.retain(|entry| !may_not(entry));
            self.reach = self.askers.iter().map(|(asker, _)| asker.reach.less()).fold(Reach::READER, Reach::min);
        }
        shed
    }
}

/// One ask to one peer.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// To whom.
    pub peer: NodeId,
    /// For what.
    pub image: ImageNumber,
    /// For what of it.
    pub chunk: Chunk,
    /// Length of the answer.
    pub bytes: u64,
    /// As sent.
    pub priority: Priority,
    /// How far it may be passed on.
    pub reach: Reach,
    /// When.
    pub sent: Time,
    /// Bytes that the peer owed us with it.
    pub owed: u64,
    /// True if another was asked for the same chunk before.
    pub hedge: bool,
    /// True if nobody waits for its answer any more; it still counts as outstanding.
    pub orphan: bool,
}
