//! The map of one image: the holdings of all live nodes, and the decisions that follow from them.

use super::chain::Place;
use super::coverage::{Coverage, Layers};
use super::loss::Losses;
use super::ring::{Arc, Filled, Ring};
use crate::chunk::Chunk;
use crate::identity::{Arrival, NodeId};
use crate::speed::Class;
use std::cmp::Reverse;

/// One node's announcement about one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The node that holds it.
    pub node: NodeId,
    /// The class of its speed.
    pub class: Class,
    /// Its place in the order of joins.
    pub arrival: Arrival,
    /// The arc that its store is to hold.
    pub arc: Arc,
    /// The filled part of the arc.
    pub filled: Filled,
    /// True while it is about to leave: it still serves, but does not count as a holder.
    pub leaving: bool,
    /// True while it may be dead: it may be asked, but does not count as a holder.
    pub suspect: bool,
}

impl Holding {
    /// The node's place in the chain.
    pub const fn place(&self) -> Place {
        Place { class: self.class, arrival: self.arrival, node: self.node }
    }

    /// True if others may count on it now.
    pub const fn is_sure(&self) -> bool {
        !self.leaving && !self.suspect
    }
}

/// The holdings of all live nodes, sorted by node, and the live origins.
#[derive(Clone, Debug)]
pub struct Map {
    ring: Ring,
    holdings: Vec<Holding>,
    participants: Vec<NodeId>,
    origins: Vec<NodeId>,
    /// The nodes that say that they leave, by node.
    leaving: Vec<NodeId>,
}

/// 2^64 x (square root of 2 - 1): a second irrational step, independent of the ring's. So the
/// choice among the homes of a chunk is spread as evenly over adjacent chunks as their places are.
const TURN: u64 = 0x6A09_E667_F3BC_C908;

/// Most holdings for which losses are computed: the cost is the square of their number. More stores
/// hold each place several times, unless they are tiny.
const LOSSES_NODES_MAX: usize = 64;
/// Places tried between two adjacent ends of arcs. The worst loss is then within an eighth of such
/// a gap of the least possible one.
const LOOKS_BETWEEN: u64 = 8;

impl Map {
    /// A map without nodes.
    pub fn new(ring: Ring) -> Self {
        Self { ring, holdings: Vec::new(), participants: Vec::new(), origins: Vec::new(), leaving: Vec::new() }
    }

    /// Replaces the holdings. A node whose holding is empty, or does not fit the ring, is a
    /// participant only.
    pub fn update(&mut self, holdings: impl Iterator<Item = Holding>, origins: impl Iterator<Item = NodeId>) {
        let size = self.ring.size();
        self.holdings.clear();
        self.participants.clear();
        for holding in holdings {
            self.participants.push(holding.node);
            if holding.arc.length > 0 && holding.arc.fits(size) && holding.filled.fits(size) {
                self.holdings.push(holding);
            }
        }
        self.holdings.sort_unstable_by_key(|h| h.node);
        self.origins.clear();
        self.origins.extend(origins);
        self.origins.sort_unstable();
    }

    /// Replaces the nodes that say that they leave: stores, origins and readers.
    pub fn set_leaving(&mut self, nodes: impl Iterator<Item = NodeId>) {
        self.leaving.clear();
        self.leaving.extend(nodes);
        self.leaving.sort_unstable();
    }

    /// True if the node says that it leaves, so that others ask it last.
    pub fn is_leaving(&self, node: NodeId) -> bool {
        self.leaving.binary_search(&node).is_ok()
    }

    /// The nodes that say that they leave, by node.
    pub fn leaving(&self) -> &[NodeId] {
        &self.leaving
    }

    /// The order of the chunks.
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Live origins, sorted.
    pub fn origins(&self) -> &[NodeId] {
        &self.origins
    }

    /// All live nodes but the origins, with or without a store.
    pub fn participants(&self) -> &[NodeId] {
        &self.participants
    }

    /// All holdings, by node.
    pub fn holdings(&self) -> &[Holding] {
        &self.holdings
    }

    /// The homes of a chunk, by node.
    pub fn homes(&self, chunk: Chunk) -> impl Iterator<Item = &Holding> {
        let (place, size) = (self.ring.place(chunk), self.ring.size());
        self.holdings.iter().filter(move |holding| holding.arc.contains(place, size))
    }

    /// The homes of a chunk, first home first; empty if no store is to hold it.
    ///
    /// Nodes with the same holdings get the same order. The first home changes from chunk to chunk.
    /// So `k` nodes on the same stretch of the ring are each first for a `k`-th of any run of
    /// adjacent chunks, wherever their arcs start.
    pub fn homes_in_turn(&self, chunk: Chunk) -> Vec<Holding> {
        let mut homes: Vec<Holding> = self.homes(chunk).copied().collect();
        if !homes.is_empty() {
            let first = turn(chunk, homes.len());
            homes.rotate_left(first);
        }
        homes
    }

    /// True if the node has announced the chunk.
    pub fn holds(&self, node: NodeId, chunk: Chunk) -> bool {
        self.claim(node, chunk).is_some()
    }

    /// The holding of a node, if it has announced the chunk.
    pub fn claim(&self, node: NodeId, chunk: Chunk) -> Option<&Holding> {
        let size = self.ring.size();
        let holds = |holding: &&Holding| holding.arc.contains(self.ring.place(chunk), size) && self.has(holding, chunk);
        self.holding(node).filter(holds)
    }

    /// The holding of a node, if it has announced one.
    pub fn holding(&self, node: NodeId) -> Option<&Holding> {
        self.holdings.binary_search_by_key(&node, |holding| holding.node).ok().map(|at| &self.holdings[at])
    }

    /// True if the home has announced the chunk.
    pub fn has(&self, home: &Holding, chunk: Chunk) -> bool {
        home.filled.contains(chunk, self.ring.size())
    }

    /// The node that relays a chunk without a home: rendezvous hashing (Thaler and Ravishankar,
    /// 1998) over all participants. So a node's arrival or death moves only its own share.
    pub fn relay(&self, chunk: Chunk, nodes: impl Iterator<Item = NodeId>) -> Option<NodeId> {
        nodes.max_by_key(|node| (mix(node.0 ^ mix(chunk.0)), *node))
    }

    /// How many counting nodes hold each chunk, origins not counted. Costs O(n log n) for n
    /// holdings.
    pub fn coverage(&self, counts: impl Fn(NodeId) -> bool) -> Coverage {
        Coverage::of(&self.ring, &self.staying(counts))
    }

    /// True if counting nodes hold each chunk, origins not counted. Costs O(n log n).
    pub fn is_whole(&self, counts: impl Fn(NodeId) -> bool) -> bool {
        Coverage::is_whole(&self.ring, &self.staying(counts))
    }

    /// The holdings that count and are there to stay.
    pub fn staying(&self, counts: impl Fn(NodeId) -> bool) -> Vec<Holding> {
        self.holdings.iter().filter(|h| h.is_sure() && counts(h.node)).copied().collect()
    }

    /// The arc of `length` places with the greatest gain: where the ring is covered least, counting
    /// arcs whatever their fill. `me` does not count. Among equals `tie` (a random number) decides,
    /// so nodes that choose at the same moment choose different places.
    pub fn least_covered(&self, length: u64, me: NodeId, tie: u64) -> Arc {
        let length = length.min(self.ring.size());
        self.best(length, me, tie, |_| true).unwrap_or(Arc { start: 0, length })
    }

    /// The best place for `me` with its present arc, if it has to [keep](Map::keeps) what only it
    /// has.
    pub fn least_covered_keeping(&self, arc: Arc, me: NodeId, tie: u64) -> Arc {
        self.best(arc.length, me, tie, |to| self.keeps(arc, to, me)).unwrap_or(arc)
    }

    /// True if a move of `me` keeps all chunks that no other node has in full: without an origin
    /// they would be lost.
    pub fn keeps(&self, from: Arc, to: Arc, me: NodeId) -> bool {
        let size = self.ring.size();
        let sure = self.holdings.iter().filter(|h| h.node != me && h.is_sure() && h.filled.count == size);
        let with: Vec<Arc> = sure.map(|h| h.arc).chain([to]).collect();
        Layers::of(&with, size).bare(from) == 0
    }

    /// The move of `me`, if it is its turn to move up. While there are bare places, one node moves
    /// towards them. It is the nearest behind a bare place, among those whose first place is also
    /// on another arc. It moves until the bare place is covered, or it has nothing left to spare.
    ///
    /// Arcs may be such that no single move covers a bare place: adjacent arcs have nothing to
    /// spare, and others would bare another place. Moving up hands the spare places on from one arc
    /// to the next. At its end nothing is bare, or no two arcs overlap: the stores hold what they
    /// have room for. It ends, since no move bares a place or goes past one that stays bare.
    pub fn moving_up(&self, me: NodeId) -> Option<Arc> {
        let size = self.ring.size();
        let staying = || self.holdings.iter().filter(|h| !h.leaving);
        let arcs: Vec<Arc> = staying().map(|h| h.arc).collect();
        let layers = Layers::of(&arcs, size);
        let step = |h: &Holding| {
            let (distance, missing) = layers.next(h.arc.start, 0)?;
            let (spare, _) = layers.next(h.arc.start, 1)?;
            (spare > 0).then_some((distance, h.node, h.arc, spare.min(missing)))
        };
        let (_, node, arc, step) = staying().filter_map(step).min()?;
        (node == me).then(|| Arc { start: (arc.start + step) % size, ..arc })
    }

    /// The arc with the greatest gain; among equals one after which least is lost with any one
    /// node.
    fn best(&self, length: u64, me: NodeId, tie: u64, allowed: impl Fn(Arc) -> bool) -> Option<Arc> {
        let size = self.ring.size();
        let layers = self.layers_without(me);
        // The gain of an arc changes its slope only where an end of it meets an end of another.
        let meetings = layers.edges().flat_map(|edge| [edge, (edge + size - length) % size]);
        let mut starts: Vec<(u64, bool)> =
            meetings.map(|start| (start, true)).chain([(mix(tie) % size, false)]).collect();
        // The loss with one node is least between two ends; if each place is held twice there is
        // none.
        let losses = (layers.least() < 2 && self.holdings.len() <= LOSSES_NODES_MAX).then(|| self.losses_without(me));
        if losses.is_some() {
            starts.sort_unstable();
            let ends: Vec<u64> = starts.iter().map(|(start, _)| *start).chain([starts[0].0 + size]).collect();
            starts.extend(ends.windows(2).flat_map(|pair| {
                let (start, gap) = (pair[0], pair[1] - pair[0]);
                (1..LOOKS_BETWEEN.min(gap)).map(move |step| ((start + gap * step / LOOKS_BETWEEN) % size, false))
            }));
        }
        let arcs = starts.into_iter().map(|(start, meets)| (Arc { start, length }, meets));
        let arcs = arcs.filter(|(arc, _)| allowed(*arc));
        let most = arcs.clone().map(|(arc, _)| layers.gain(arc)).max()?;
        let lost = |arc: Arc| losses.as_ref().map_or(0, |losses| losses.worst_with(arc));
        let equals = arcs.filter(|(arc, _)| layers.gain(*arc) == most);
        // An arc that begins where others end leaves the next one more to choose from.
        let best = equals.max_by_key(|(arc, meets)| (Reverse(lost(*arc)), *meets, mix(arc.start ^ tie)));
        best.map(|(arc, _)| arc)
    }

    /// The node with which most places would be lost, and their number, if all arcs are filled and
    /// there is no origin.
    pub fn worst_loss(&self) -> Option<(NodeId, u64)> {
        let (size, staying) = (self.ring.size(), || self.holdings.iter().filter(|h| h.is_sure()));
        // If each place is held twice there is no loss: large fields soon get there, and this check
        // is cheaper.
        if Layers::of(&staying().map(|h| h.arc).collect::<Vec<_>>(), size).least() >= 2 {
            return None;
        }
        Losses::of(staying().map(|h| (h.node, h.arc)), size).worst()
    }

    fn losses_without(&self, me: NodeId) -> Losses {
        let others = self.holdings.iter().filter(|h| h.node != me && !h.leaving).map(|h| (h.node, h.arc));
        Losses::of(others, self.ring.size())
    }

    /// The value of an arc beside those of the nodes other than `me`: see [`Map::least_covered`].
    pub fn gain(&self, arc: Arc, me: NodeId) -> u128 {
        self.layers_without(me).gain(arc)
    }

    /// The least number of homes of any place, `me` not counted.
    pub fn least(&self, me: NodeId) -> u64 {
        self.layers_without(me).least()
    }

    /// The number of places of an arc without another home than `me`.
    pub fn bare(&self, arc: Arc, me: NodeId) -> u64 {
        self.layers_without(me).bare(arc)
    }

    fn layers_without(&self, me: NodeId) -> Layers {
        let others: Vec<Arc> = self.holdings.iter().filter(|h| h.node != me && !h.leaving).map(|h| h.arc).collect();
        Layers::of(&others, self.ring.size())
    }
}

/// The index, below `count`, of the node that is first for a chunk.
pub(super) const fn turn(chunk: Chunk, count: usize) -> usize {
    ((chunk.0.wrapping_mul(TURN) as u128 * count as u128) >> 64) as usize
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that scatters all bits.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
