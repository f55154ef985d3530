//! The numbers by which a node chooses peers and paces itself.
//!
//! Each says its unit, how its value was found, and what breaks when it changes. What follows from
//! another number is computed from it, and relations are asserted. So a principle has one number.
//! The rules that use them, and the storms that wanted the rules, are in docs/explanation/rules.md.
//! A test counts the numbers (`e2e/tests/house/tuning.rs`).
//!
//! All but those of [`field`] are a node's own affair: nodes with other values understand each
//! other. Numbers of placement, of speeds and of gossip are in their modules.

use crate::chunk::ChunkSize;
use crate::doubling::Doubling;
use crate::wire::Priority;
use std::time::Duration;

/// Numbers that all nodes of a field need alike. Nodes with others take each other for late, for
/// liars, or for nodes out of step. They fetch chunks twice.
pub mod field {
    /// Fewest nodes that form a chain, unless stores are full-size. Fewer nodes may well all ask
    /// each other, and a chunk relayed by its home is kept there. If some nodes followed a chain
    /// and others asked homes, they would wait for each other.
    pub const CHAIN_NODES_MIN: usize = 8;
    /// A node that is to keep a chunk comes by it soon if its upstream passes that much on within
    /// this many [`super::PEER_DELAY`], as many as a second has: a later starter forms another
    /// chain. Without it a node that has fallen behind is bypassed, and stays behind (decision
    /// 0016).
    pub const BEHIND: u64 = (super::SECOND.as_millis() / super::PEER_DELAY.as_millis()) as u64;
    /// Net refusals of announced chunks that make a peer's claims false. News of a moved store is
    /// late by some tenths of a second; in that time a reader requests no more on most links. With
    /// fewer, honest nodes that move their stores are doubted.
    pub const FALSE_CLAIMS: u32 = 32;
    /// Announced chunks that a peer with false claims has to deliver before it counts as a holder
    /// again: as many as made them false.
    pub const DELIVERIES_TO_PROVE: u32 = FALSE_CLAIMS;
    /// Bytes a second, below which a peer is of no use: half a megabit. A faster link that this
    /// calls useless would be banned again and again.
    pub const RATE_MIN: u64 = 64 << 10;
}

// Times, from the shortest to the longest.

/// First pause after anything in vain. News of the field is passed on within it (decision 0003),
/// so nothing has changed before. A shorter one lets a member that makes news, or a node with a
/// full memory, keep others busy at the speed of their links.
const MOMENT: Duration = Duration::from_millis(10);
/// How long an honest machine may be busy at times: TCP's shortest retransmission timeout. Shorter
/// spans make laggards of machines that did something else.
pub const BUSY: Duration = Duration::from_millis(200);
/// Silence after which somebody else is asked. Above [`BUSY`], and well below the second that a
/// read may take (promise P2). Shorter, and all hedge on a busy link.
pub const SILENCE: Duration = Duration::from_millis(300);
/// Target delay of an answer. The bytes requested of a peer at once follow from it and the peer's
/// rate. Above the time that a chunk takes through a chain on a slow link, so requests never run
/// dry. Well below the time that a read-ahead covers.
pub const PEER_DELAY: Duration = Duration::from_millis(400);
/// A read is answered within this while a reachable node has its bytes (promise P2). Readers go on
/// within twice this after a cause is gone (P3). The promises fix it, and several times follow.
const SECOND: Duration = Duration::from_secs(1);
/// Age of an answer that is late although its peer gives signs of life. In a chain all answers are
/// late together: with less, hedges add load where there is too much of it.
pub const LATE: Duration = Duration::from_secs(2);
/// A peer that hangs is tried again after so long at most, and no link is so slow that all hang for
/// longer. Shorter, and a node whose own link is slow drops all its peers one after the other.
const HANG: Duration = Duration::from_secs(5);
/// How long a machine that is only slow may be without an answer. Shorter, and a zone has as many
/// gateways as there are busy nodes.
const MINUTE: Duration = Duration::from_secs(60);

const _: () = assert!(MOMENT.as_nanos() < BUSY.as_nanos() && BUSY.as_nanos() < SILENCE.as_nanos());
const _: () = assert!(SILENCE.as_nanos() < PEER_DELAY.as_nanos());
const _: () = assert!(LATE.as_nanos() > SECOND.as_nanos() && HANG.as_nanos() > LATE.as_nanos());

// What follows from the times.

const fn part(of: Duration, parts: u64) -> Duration {
    Duration::from_nanos(of.as_nanos() as u64 / parts)
}

/// Interval at which requests under way are checked. A longer one delays each hedge by as much; a
/// shorter one looks at thousands of requests more often.
pub const CHECK_EVERY: Duration = part(SILENCE, 6);
/// Silence of a peer after which a demand request is hedged.
pub const HEDGE_AFTER: Duration = SILENCE;
/// Age at which a parked demand request may go to another peer. It was parked because the best
/// peers' windows were full.
pub const OVERDUE_AFTER: Duration = SILENCE;
/// Silence after which a peer with open requests gets no more until it delivers again: a hedge has
/// had as long as the first request.
pub const STALL: Duration = SILENCE.saturating_add(SILENCE);
/// Longest stall timeout. On a link that has become slow all peers are silent for longer; see
/// [`crate::peers::Peers::stall`].
pub const STALL_MAX: Duration = HANG;
/// Pauses after which a stalled peer is tried again: all that it owed was called off, or lost with
/// a connection. With the longest pause alone, a room whose only holder was busy for a moment
/// stands still for seconds.
pub const STALLED: Doubling = Doubling { first: SECOND, longest: HANG };
/// A reply this much later than every recent reply is an outlier; hedge it.
pub const LATE_ALONE: Duration = BUSY;
/// Age at which a demand request is hedged although the peer delivers other chunks, if it also
/// exceeds the peer's usual delay.
pub const HEDGE_LATE: Duration = LATE;
/// [`OVERDUE_AFTER`] for chunks that no reader waits for yet.
pub const OVERDUE_AFTER_AT_LEISURE: Duration = LATE;
/// A node with a full window to which nothing came for this long refuses the askers of chunks that
/// it cannot request.
pub const JAMMED_AFTER: Duration = LATE;
/// Time within which a holder has to deliver something whole, plus that of [`field::RATE_MIN`].
pub const WHOLE_WITHIN: Duration = LATE;
/// The same for a relaying peer, which may wait for others, and they for others.
pub const RELAYED_WITHIN: Duration = LATE.saturating_mul(4);
/// Interval of retries for chunks without a live holder. Each change of the field causes a retry
/// too.
pub const WAIT_RETRY: Duration = part(SECOND, 4);
/// Pauses after rounds in which all refused. Members make news as often as they like, and news
/// begins a round. Readers go on within a second after a holder's return.
pub const ROUND_PAUSE: Doubling = Doubling { first: MOMENT, longest: part(SECOND, 2) };
/// Pauses after answers that could not be used. A hash page that was evicted is back within the
/// first. Without a pause a node with a full memory or a held slot would ask at the speed of its
/// link.
pub const UNUSABLE_PAUSE: Doubling = Doubling { first: MOMENT, longest: SECOND };
/// Pauses in which an upstream that was out of step is left alone. A longer one than [`LATE`] keeps
/// a node out of its chain after the upstream has caught up.
pub const BACKOFF: Doubling = Doubling { first: MOMENT, longest: LATE };
/// Pauses in which a peer that has become slow is left alone: its requests go elsewhere first.
pub const LAGGARD: Doubling = Doubling { first: LATE.saturating_mul(2), longest: OWN_FAULT };
/// If two lag within this, it is this node's own link that is slow: as long as the longest of
/// these pauses.
pub const OWN_FAULT: Duration = part(MINUTE, 2);
/// Pauses in which a peer with a broken link is not dialled. Membership forgets dead ones. One that
/// lives, and to which this node has no way, would delay each chunk that it holds by the time of a
/// dial.
pub const BROKEN: Doubling = Doubling { first: part(SECOND, 2), longest: part(MINUTE, 2) };
/// Time that this node's own link may take for all that it requested. More would queue on the way
/// to it, where nothing can be called off, and every peer would seem to be late.
pub const OWN_DELAY: Duration = SECOND;
/// How long a peer that stalled or timed out, and has answered nothing since, counts as given up.
/// After it the peer is tried again.
pub const GIVEN_UP_FOR: Duration = MINUTE;
/// Bans of peers that lied. They are of no use for long; a cause may be broken memory.
pub const LIE: Doubling = Doubling { first: MINUTE, longest: MINUTE.saturating_mul(24 * 60) };
/// Bans of peers that time out: a bad link may get better.
pub const TIMEOUT: Doubling = Doubling { first: SECOND, longest: HANG.saturating_mul(60) };
/// Bans of peers with false claims. A peer that moved its store a moment ago has done nothing
/// wrong, and the news takes some tenths of a second.
pub const CLAIM: Doubling = Doubling { first: SECOND, longest: MINUTE };
/// Time after which a peer with false claims counts again without deliveries: an honest peer whose
/// store has moved may not be asked again. An empty one would count whenever it is not asked if it
/// were not longer than the longest [`CLAIM`].
pub const UNPROVEN_FOR: Duration = MINUTE.saturating_mul(10);

// One peer can fill this node's link.
const _: () = assert!(OWN_DELAY.as_nanos() > 2 * PEER_DELAY.as_nanos());
const _: () = assert!(field::BEHIND as u128 * PEER_DELAY.as_nanos() < SECOND.as_nanos());
const _: () = assert!(STALL.as_nanos() < SECOND.as_nanos());
const _: () = assert!((ROUND_PAUSE.longest.saturating_add(WAIT_RETRY)).as_nanos() < SECOND.as_nanos());
const _: () = assert!(LAGGARD.longest.as_nanos() <= OWN_FAULT.as_nanos() && OWN_FAULT.as_nanos() < MINUTE.as_nanos());
const _: () = assert!(UNPROVEN_FOR.as_nanos() > CLAIM.longest.as_nanos());

// Numbers of peers, requests and bytes.

/// Peers compared, or considered one after the other. Chunks often have three holders. With two
/// upstream nodes a single loss leaves none in step; with more, nodes that fill ask ever more
/// peers.
pub const LOOKS: usize = 3;
/// Refusals that may mean that the upstream has not begun: nodes that start together wait for each
/// other. With more, a reader waits for a node that never begins.
pub const BEGINNINGS: u32 = 4;
/// Most hedges under way at once, also if a peer is silent. The readers that wait behind a stopped
/// peer must not all turn to the next one at once.
pub const HEDGES_MAX: u64 = 4;
/// Most hedges for each hundred requests, in percent, unless the peer is silent altogether. Retries
/// must not double the traffic of a field that is merely busy.
pub const HEDGE_PERCENT: u64 = 1;
/// Nodes that may have read a hash page. If no home and no origin has it, so many are asked at
/// once: all of a field that is too small for a chain.
pub const PAGE_HOLDERS_TRIED_MAX: usize = field::CHAIN_NODES_MIN;
/// Chunks that may be under way from one peer at once: one on each of two lanes.
pub const AT_ONCE: u64 = 2;
/// Bytes that may be requested of a peer before it has delivered any.
pub const PEER_WINDOW_FIRST: u64 = AT_ONCE * ChunkSize::DEFAULT.bytes();

/// The part of a window, the node's own or that of its link, that requests of a priority may fill.
/// So a demand finds a quarter of it free, however much is read ahead, and both find half of it
/// free beside a fill. Without that a reader waits for what nobody wants yet.
pub const fn share_of(window: u64, priority: Priority) -> u64 {
    match priority {
        Priority::Demand => window,
        Priority::ReadAhead => window / 4 * 3,
        Priority::Fill => window / 2,
    }
}

// Estimates.

/// Weight of a new value in a mean, as a power of two: an eighth (RFC 6298). A window shrinks by no
/// more at once, and this much of it is requested at once when it was full. A greater weight
/// follows bursts; a smaller one follows a link that falls back too late.
pub const GAIN_SHIFT: u32 = 3;
/// The same for a deviation: twice as much (RFC 6298).
pub const DEVIATION_SHIFT: u32 = GAIN_SHIFT - 1;
/// In each span that is not slow, the best rate decays by 2 to the power of minus this: by half in
/// two seconds. A faster decay forgets what a link can do while it waits for others.
pub const BEST_SHIFT: u32 = GAIN_SHIFT + 1;
/// Deviations above the mean at which a delay is unusual (RFC 6298).
pub const DEVIATIONS: u64 = 4;
/// Length of a span of a peer's pace. A machine that was busy for a moment delivers late, and all
/// at once, so answers are judged together.
pub const SPAN: Duration = BUSY;
/// Fewest answers of a span; fewer say little of a rate.
pub const SPAN_ANSWERS: u32 = 3;
/// A peer is slow below this part of its best rate. A link that falls back to the next slower kind
/// is ten times as slow. The rates of nodes that share a link with a few others differ by less.
pub const SLOW_BELOW: u64 = 6;
/// Bound of the best rate, as a multiple of what the peer delivered meanwhile. With a busy link it
/// is hardly more than that. With more, bursts of an idle link count (decision 0010); with less, a
/// link that falls back to a tenth is not found.
pub const BURST: u64 = 2;
/// Slow spans in a row that make a peer slow: about half a second. One may be a moment.
pub const SLOW_SPANS: u32 = 2;
/// Windows in a row in which a link has to be idle before that is shown: more than the moments that
/// make a peer slow. A room that is switched on has two while its chain forms. With one, ten equal
/// machines that read 64 MiB lost 1.6 % to probes. Each more costs a room with a slow machine
/// 0.2 s.
pub const IDLE_WINDOWS: u32 = SLOW_SPANS + 1;
