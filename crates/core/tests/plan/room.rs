//! A room as one of its nodes sees it, to be changed and asked for a choice.

use std::collections::BTreeMap;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::fetch::ImageNumber;
use vfield_core::identity::{Arrival, NodeId, Zone};
use vfield_core::peers::Peers;
use vfield_core::placement::zones::Stock;
use vfield_core::placement::{Arc, Chain, Filled, Gateways, Holding, Map, Place, Ring, Zones};
use vfield_core::plan::{Choice, Members, Situation, Source, Wanted};
use vfield_core::reach::Reach;
use vfield_core::speed::Class;
use vfield_core::time::Time;
use vfield_core::wire::Priority;

/// Chunks of the image.
pub const SIZE: u64 = 16;
/// The number of the image.
pub const IMAGE: ImageNumber = ImageNumber(0);
pub const CHUNK: u64 = 64 << 10;
/// The origin's node id and that of another one.
pub const ORIGIN: u64 = 100;
pub const SECOND: u64 = 101;
/// The time of all choices.
pub const NOW: Time = Time::ZERO;

/// The moment so many milliseconds ago.
pub fn ago(milliseconds: u64) -> Time {
    now(Duration::from_secs(100).checked_sub(Duration::from_millis(milliseconds)).expect("it was after the start"))
}

fn now(since_start: Duration) -> Time {
    NOW + since_start
}

/// A room of nodes 1, 2 and so on, which came in this order, as `me` sees it.
pub struct Room {
    pub me: u64,
    pub zone: &'static str,
    pub holdings: Vec<Holding>,
    pub origins: Vec<u64>,
    pub gateways: Vec<u64>,
    /// Other zones, their gateways, and what they have.
    pub zones: Vec<(&'static str, u64, Stock)>,
    /// Classes of nodes that are not in the fastest.
    pub slow: BTreeMap<u64, u8>,
    /// Those of them that take in as much as the fastest pass on.
    pub leaves: Vec<u64>,
    /// Nodes that cannot be asked.
    pub gone: Vec<u64>,
    /// Nodes that say that they leave.
    pub leaving: Vec<u64>,
    pub peers: Peers,
    pub wanted: Wanted<'static>,
    pub keeps_all: bool,
    pub discovers: bool,
    pub warms_up: bool,
    pub dice: u64,
}

impl Room {
    /// A cold room of so many nodes without stores, and an origin. A reader that goes through the
    /// image in order is about to want chunk 3.
    pub fn of(nodes: u64, me: u64) -> Self {
        let wanted = Wanted {
            image: IMAGE,
            chunk: Chunk(3),
            bytes: CHUNK,
            is_data: true,
            priority: Priority::ReadAhead,
            reach: Reach::READER,
            tried: &[],
            advice: None,
            insist: false,
            firm: false,
            stream: true,
            overdue: false,
        };
        let mut room = Self {
            me,
            zone: "",
            holdings: Vec::new(),
            origins: vec![ORIGIN],
            gateways: Vec::new(),
            zones: Vec::new(),
            slow: BTreeMap::new(),
            leaves: Vec::new(),
            gone: Vec::new(),
            leaving: Vec::new(),
            peers: Peers::new(true),
            wanted,
            keeps_all: false,
            discovers: false,
            warms_up: false,
            dice: 1,
        };
        room.holdings = (1..=nodes).map(|node| room.holding(node, 0, 0)).collect();
        room
    }

    fn holding(&self, node: u64, length: u64, filled: u64) -> Holding {
        let class = Class(self.slow.get(&node).copied().unwrap_or_default());
        Holding {
            node: NodeId(node),
            class,
            arrival: arrival(node),
            arc: Arc { start: 0, length },
            filled: Filled { from: 0, count: filled },
            leaving: false,
            suspect: false,
        }
    }

    /// These nodes have stores for the whole image, of which so many chunks are there.
    pub fn with_stores(mut self, nodes: &[u64], filled: u64) -> Self {
        for node in nodes {
            let holding = self.holding(*node, SIZE, filled);
            *self.holdings.iter_mut().find(|known| known.node.0 == *node).expect("it is in the room") = holding;
        }
        self
    }

    /// These nodes are in the second class.
    pub fn with_slow(mut self, nodes: &[u64]) -> Self {
        for node in nodes {
            self.slow.insert(*node, 1);
            self.holdings.iter_mut().filter(|known| known.node.0 == *node).for_each(|known| known.class = Class(1));
        }
        self
    }

    /// These nodes pass on less than others, and take in as much.
    pub fn with_leaves(self, nodes: &[u64]) -> Self {
        Self { leaves: nodes.to_vec(), ..self.with_slow(nodes) }
    }

    /// The window of a peer is full, and its last byte came so many milliseconds ago.
    pub fn fill_window(&mut self, node: u64, silent: u64) {
        self.peers.asked((NodeId(node), IMAGE), 2 * CHUNK, Priority::Demand, ago(silent));
    }

    /// The peer has passed a chunk on.
    pub fn lead(&mut self, node: u64) {
        self.peers.asked((NodeId(node), IMAGE), 1, Priority::Demand, ago(900));
        self.peers.ended((NodeId(node), IMAGE), 1, Priority::Demand, Some(Duration::from_millis(1)), ago(899));
        self.peers.in_step(NodeId(node));
    }

    /// The peer has refused so many times to pass chunks on, the last time just now.
    pub fn refuse(&mut self, node: u64, times: u64) {
        self.peers.asked((NodeId(node), IMAGE), 1, Priority::Demand, ago(90_000));
        self.peers.ended((NodeId(node), IMAGE), 1, Priority::Demand, Some(Duration::from_millis(1)), ago(89_999));
        for time in (0..times).rev() {
            self.peers.out_of_step(NodeId(node), ago(time * 3000 + 1));
        }
    }

    /// The peer's claims are not believed.
    pub fn doubt(&mut self, node: u64) {
        self.peers.asked((NodeId(node), IMAGE), 1, Priority::Demand, ago(90_000));
        self.peers.ended((NodeId(node), IMAGE), 1, Priority::Demand, None, ago(90_000));
        (0..32).for_each(|_| _ = self.peers.claimed_falsely(NodeId(node), ago(1)));
    }

    /// The link to the peer broke a moment ago.
    pub fn cut(&mut self, node: u64) {
        self.peers.broken(NodeId(node), ago(1));
    }

    pub fn choice(&self) -> Choice {
        self.decides(|situation| situation.choice())
    }

    /// The node that is asked for a slice.
    pub fn direct(&self) -> Option<u64> {
        self.decides(|situation| situation.direct()).map(|node| node.0)
    }

    fn decides<T>(&self, decide: impl Fn(&Situation<'_>) -> T) -> T {
        let origins = self.origins.iter().map(|node| NodeId(*node));
        let mut map = Map::new(Ring::new(SIZE));
        map.update(self.holdings.iter().copied(), origins);
        map.set_leaving(self.leaving.iter().map(|node| NodeId(*node)));
        let gateways = Gateways::of(self.gateways.iter().map(|node| NodeId(*node)));
        let staying = map.participants().iter().filter(|node| !map.is_leaving(**node));
        let places = staying.filter_map(|node| self.place(*node));
        let chain = Chain::of(places, |node| gateways.contains(node));
        let zone = |name| Zone::named(name).expect("a name");
        let mut outside = Zones::new(ChunkSize::DEFAULT);
        outside
            .update(zone(self.zone), self.zones.iter().map(|(name, node, stock)| (zone(name), NodeId(*node), *stock)));
        let situation = Situation {
            now: ago(0),
            me: NodeId(self.me),
            zone: zone(self.zone),
            place: self.place(NodeId(self.me)),
            intake: Class(if self.leaves.contains(&self.me) {
                0
            } else {
                self.slow.get(&self.me).copied().unwrap_or_default()
            }),
            wanted: self.wanted,
            map: &map,
            chain: &chain,
            gateways: &gateways,
            outside: &outside,
            members: self,
            peers: &self.peers,
            keeps_all: self.keeps_all,
            discovers: self.discovers,
            warms_up: self.warms_up,
            asks_leaving: false,
            dice: self.dice,
        };
        decide(&situation)
    }

    /// The node that is asked, and with which reach.
    pub fn asks(&self) -> (u64, Reach) {
        match self.choice() {
            Choice::Ask(Source { peer, reach, .. }) => (peer.0, reach),
            other => panic!("{other:?}"),
        }
    }

    /// The nodes that are asked one after the other, if all refuse.
    pub fn order(&mut self) -> Vec<u64> {
        let mut tried = Vec::new();
        while let Choice::Ask(Source { peer, .. }) = self.choice() {
            tried.push(peer);
            self.wanted.tried = tried.clone().leak();
        }
        tried.into_iter().map(|node| node.0).collect()
    }
}

const fn arrival(node: u64) -> Arrival {
    Arrival(if node < ORIGIN { node * 10 } else { node - ORIGIN + 1 })
}

impl Members for Room {
    fn place(&self, node: NodeId) -> Option<Place> {
        let class = Class(self.slow.get(&node.0).copied().unwrap_or_default());
        (!self.gone.contains(&node.0)).then_some(Place { class, arrival: arrival(node.0), node })
    }
}
