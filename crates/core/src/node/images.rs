//! One image on a node: its part of the map, the inventory, the fill.

use super::collecting::Care;
use super::own_way::OwnWay;
use super::{Commitment, Node, Output, Timer, TimerKey};
use crate::chunk::Chunk;
use crate::config;
use crate::fetch::{Beneficiary, ImageNumber, Stage};
use crate::fill::{Fill, Look};
use crate::image::{Geometry, Header, ImageId};
use crate::inventory::Inventory;
use crate::names::Names;
use crate::placement::map::mix;
use crate::placement::{Arc, Chain, Filled, Gateways, Map, Ring, Zones};
use crate::record::{Record, Subject};
use crate::signing::Signature;
use crate::speed::Classes;
use crate::time::Time;
use crate::verified::Verified;
use crate::wire::Priority;
use std::sync::Arc as Shared;
use std::time::Duration;

/// Most chunks without a holder that a fill passes over: each retry costs some time.
const WAITING_MAX: usize = 4096;

/// Chunks of a fill under way while a reader is active: one, and the next so that it need not wait.
const FILL_BESIDE_READERS: u64 = 2;
/// Pauses of a fill while readers come to chunks that no fetch foresaw, in times that its last
/// chunk took. Such a reader waits for one answer at a time, behind the fills of all nodes: a room
/// of ten that boots took twelve times as long beside them. And a chunk of 64 KiB takes as long as
/// sixteen slices. So beside such readers a fill has a 32nd of a link. A store of 16 MiB behind
/// 100 Mbit/s is full within a minute.
pub(super) const FILL_PAUSES_BESIDE_SURPRISES: u32 = 31;

/// Time after this node's start in which other nodes of the same room may still start.
const WARM_UP: Duration = Duration::from_secs(2);
/// Time after this node's start in which it may not know all members: until the first snapshot
/// exchange.
const DISCOVERY: Duration = Duration::from_millis(250);
/// Time after its start in which a node of a zone learns the older members, and those switched on
/// with it. Before that every node would take itself for a gateway, and be asked for chunks that it
/// cannot have.
const GATHER: Duration = Duration::from_millis(80);
/// Time after its start at which a node asks for members once more: the asked node then knows those
/// that came together.
const GATHER_AGAIN: Duration = Duration::from_millis(50);

/// One image on this node.
pub(super) struct Image {
    pub number: ImageNumber,
    /// The subject of its records.
    pub subject: Shared<Subject>,
    pub origin: bool,
    pub map: Map,
    /// The classes of the speeds of those who take part.
    pub classes: Classes,
    /// The lockstep readers of this zone.
    pub chain: Chain,
    /// The gateways through which chunks enter this zone; none in a field without zones.
    pub gateways: Gateways,
    /// The gateways that failed, and the way around them.
    pub own_way: OwnWay,
    /// The other zones, as a gateway knows them.
    pub outside: Zones,
    /// Until then nodes switched on together with this one may still be about to begin.
    pub warm_up_until: Time,
    /// Until then there may be a chain that this node does not know of.
    pub discovery_until: Time,
    /// From when on it may be a gateway.
    pub gateway_from: Time,
    pub inventory: Inventory,
    pub fill: Fill,
    /// The version of our record about it.
    pub version: u64,
    pub announce_set: bool,
    pub recount_set: bool,
    pub(super) repair: Option<super::repair::Repair>,
    pub fill_set: bool,
    pub notified_filled: bool,
    /// The claims of the stores that count cover it.
    pub claimed_whole: bool,
    /// What it told the shell: the verified parts of those claims cover it.
    pub notified_covered: bool,
    pub verified: Verified,
    pub spot_check_timer: Option<TimerKey>,
    /// When a holder was last checked.
    pub spot_checked: Option<Time>,
    /// True if this node has no way to stores with all of it, and says so.
    pub needs_origin: bool,
    /// Whether anybody needs it.
    pub care: Care,
    pub care_timer: Option<TimerKey>,
    /// The shell still looks at what an earlier process has left: see [`super::found`].
    pub surveying: bool,
}

impl Image {
    /// The share that its store holds.
    pub fn commitment(&self) -> Commitment {
        Commitment { start: self.fill.arc().start, from: self.fill.filled().from }
    }

    /// True if the chunk belongs into this node's store.
    pub fn stores(&self, chunk: Chunk) -> bool {
        let ring = self.map.ring();
        self.fill.arc().contains(ring.place(chunk), ring.size())
    }
}

/// An image that a node is to take part in.
#[derive(Debug, Clone)]
pub struct ImageConfig {
    /// The image's id.
    pub id: ImageId,
    /// Its names in the field.
    pub names: Names,
    /// Its header, which belongs to the id.
    pub header: Header,
    /// True if this node can read all of it from a file.
    pub origin: bool,
    /// Bytes to hold in the store; an origin holds 0.
    pub capacity_bytes: u64,
    /// The commitment of an earlier process whose chunks are still there, or that of another
    /// version. The fill then begins after [`super::Input::Surveyed`], with the same share.
    pub kept: Option<Commitment>,
}

/// Length of an arc, in places, whose chunks fit into a store of `capacity` chunks: `capacity` for
/// a dense image, more for a sparse one, whose zeros take no room. The golden order spreads any
/// data about evenly: three standard deviations of a random draw are a safe margin. An arc of
/// `capacity` places needs none, since it never has more chunks than that.
pub(super) fn arc_length(geometry: &Geometry, capacity: u64) -> u64 {
    let size = geometry.chunks();
    let full = (geometry.header().populated() + size - geometry.data_chunks()).min(size);
    if capacity >= full {
        return size;
    }
    let scaled = |chunks: u64, by: u64, of: u64| (u128::from(chunks) * u128::from(by) / u128::from(of)) as u64;
    let variance = scaled(capacity, size - full, size);
    let usable = capacity.saturating_sub(3 * variance.isqrt()).max(capacity / 4);
    scaled(usable, size, full).max(capacity)
}

impl Node {
    /// Joins an image: chooses an arc, announces it, begins to fill it. Call once for each image,
    /// after the field's snapshot has been learned; then take the outputs.
    pub fn add_image(&mut self, now: Time, image: ImageConfig) {
        self.now = self.now.max(now);
        let geometry = Geometry::new(image.header);
        let chunk_bytes = geometry.chunk_bytes();
        let capacity = if image.origin { 0 } else { (image.capacity_bytes / chunk_bytes).min(geometry.chunks()) };
        let transient = self.config.transient_chunks(chunk_bytes);
        self.window_bytes = self.window_bytes.max(self.config.window_for(chunk_bytes));
        let mut map = Map::new(Ring::new(geometry.chunks()));
        self.fill_map(image.id, &self.classes(image.id), &mut map);
        let (me, is_origin) = (self.me().node, image.origin);
        let (length, size) = (arc_length(&geometry, capacity), geometry.chunks());
        let kept = image.kept.filter(|kept| kept.fits(size));
        let arc = match kept {
            Some(kept) => Arc { start: kept.start, length },
            None => map.least_covered(length, me, self.seed),
        };
        let from = kept.map_or(0, |kept| kept.from);
        let wait = Duration::from_millis(100) * u32::from(9 - self.config.join_boost.min(9));
        let start = if kept.is_some() { self.now } else { self.now + wait };
        let number = ImageNumber(self.numbered.len() as u32);
        self.numbered.push(image.id);
        let entry = Image {
            number,
            subject: Shared::new(Subject { image: image.id, names: image.names, header: image.header.encode() }),
            origin: is_origin,
            map,
            classes: Classes::default(),
            chain: Chain::default(),
            gateways: Gateways::default(),
            own_way: OwnWay::default(),
            outside: Zones::new(geometry.header().chunk_size()),
            warm_up_until: self.now + WARM_UP,
            discovery_until: self.now + DISCOVERY,
            gateway_from: self.now + GATHER,
            inventory: Inventory::new(geometry, capacity, transient),
            fill: Fill::new(size, arc, from, start),
            version: self.me().generation,
            announce_set: false,
            recount_set: false,
            repair: None,
            fill_set: false,
            notified_filled: false,
            claimed_whole: false,
            notified_covered: false,
            verified: Verified::default(),
            spot_check_timer: None,
            spot_checked: None,
            needs_origin: false,
            care: Care::default(),
            care_timer: None,
            surveying: image.kept.is_some(),
        };
        self.images.insert(image.id, Box::new(entry));
        self.commit(image.id);
        self.announce(image.id);
        self.mapped = u64::MAX;
        self.remap();
        if !is_origin && self.is_zoned() && self.images.len() == 1 {
            self.gathers_until = self.now + GATHER;
        }
        self.set(GATHER, Timer::GatewayRole);
        if self.is_zoned() {
            self.set(GATHER_AGAIN, Timer::Gather);
            self.set(WARM_UP, Timer::GatewayRole);
        }
        self.set_fill(image.id);
        self.pump();
    }

    /// Announces this node's holding of an image.
    pub(super) fn announce(&mut self, id: ImageId) {
        let node = self.me().node;
        let nothing = self.unreachable;
        let stays = self.stays();
        let Some(image) = self.images.get_mut(&id) else { return };
        let leaving = !stays || image.care.gives_up();
        image.announce_set = false;
        let arc = if nothing { Arc::default() } else { image.fill.arc() };
        let filled = if arc.length == 0 { Filled::default() } else { image.fill.filled() };
        let record = Record {
            node,
            version: image.version,
            progress: Record::progress(0, self.bounds.announced(image.number, self.speed.announced())),
            subject: Shared::clone(&image.subject),
            origin: image.origin && !nothing,
            arc,
            filled,
            leaving,
            signature: Signature::default(),
        };
        let record = record.needing_origin(image.needs_origin);
        let effects = self.membership.announce(record, self.now);
        self.apply(effects);
    }

    /// Announces before long, but not with each chunk.
    pub(super) fn announce_soon(&mut self, id: ImageId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        if !image.announce_set {
            image.announce_set = true;
            let timer = Timer::Announce(image.number);
            self.set(config::ANNOUNCE_EVERY * self.talk(), timer);
        }
    }

    /// Lets the fill go on when its pace allows.
    pub(super) fn set_fill(&mut self, id: ImageId) {
        let now = self.now;
        let Some(image) = self.images.get_mut(&id) else { return };
        if !image.fill_set && !image.fill.is_done() {
            image.fill_set = true;
            let wait = image.fill.not_before().max(self.budget.opens()) - now;
            let timer = Timer::Fill(image.number);
            self.set(wait, timer);
            if !self.budget.is_open(now) && self.budget.is_to_tell() {
                self.out(Output::Notice(super::Notice::Spent));
            }
        }
    }

    /// Lets the fills go on that stopped while this node was to go.
    pub(super) fn go_on_filling(&mut self) {
        if !self.goes() {
            self.image_ids().into_iter().for_each(|id| self.set_fill(id));
        }
    }

    /// Most chunks that a fill may have under way: half of the window, less at a lower boost.
    ///
    /// A small store has fewer, so that it spans as much of the image as a full one. Nodes that
    /// fill together then all fetch from the same part of it, the one where readers begin. While a
    /// reader is active here there are few: its chunks go into the store too, and chunks far from
    /// it keep the field out of step.
    fn fill_chunks(&self, image: &Image) -> u64 {
        let share = self.window_bytes / 2 * u64::from(self.config.join_boost + 1) / 10;
        let span = share / image.inventory.geometry().chunk_bytes();
        let chunks = u128::from(span) * u128::from(image.fill.arc().length) / u128::from(image.map.ring().size());
        if self.is_surprised() {
            return 1;
        }
        let reading = self.now < self.reading_until || !self.reads.is_empty();
        if reading { FILL_BESIDE_READERS } else { (chunks as u64).max(FILL_BESIDE_READERS) }
    }

    /// Walks the fill on.
    pub(super) fn fill(&mut self, id: ImageId) {
        let Some(image) = self.images.get(&id) else { return };
        let (chunks, goes) = (self.fill_chunks(image), self.goes());
        let Some(image) = self.images.get_mut(&id) else { return };
        image.fill_set = false;
        // Chunks without a holder do not hold up the others, within a bound.
        let (fetches, number) = (&self.fetches, image.number);
        let waits = |chunk| fetches.get((number, chunk)).is_some_and(|fetch| fetch.stage() == Stage::Waiting);
        let waiting = image.fill.iter_pending().filter(|chunk| waits(*chunk)).count();
        let limit = chunks as usize + waiting.min(WAITING_MAX);
        loop {
            let now = self.now;
            let Some(image) = self.images.get_mut(&id) else { return };
            if image.fill.is_done() || image.fill.pending() >= limit {
                break;
            }
            // A chunk that need not be fetched does not wait: others may have filled the store
            // meanwhile.
            let may_store = self.budget.is_open(now);
            let paused = image.fill.not_before() > now || !may_store;
            let (arc, ring) = (image.fill.arc(), *image.map.ring());
            let (inventory, surveying) = (&mut image.inventory, image.surveying);
            let (chunk, more) = image.fill.walk(|chunk| {
                if let Some(last) = inventory.zero_through(chunk) {
                    Look::Through(last)
                } else if !arc.contains(ring.place(chunk), ring.size())
                    || inventory.is_stored(chunk)
                    || (may_store && inventory.promote(chunk))
                {
                    Look::Through(chunk)
                } else if surveying || paused || goes {
                    Look::Stop
                } else {
                    Look::Fetch
                }
            });
            match chunk {
                Some(chunk) if self.has_room(id) => self.fill_with(id, chunk),
                Some(_) => self.shorten(id),
                None if more => {
                    // Enough looked at for one go; others first.
                    self.set_fill(id);
                    break;
                }
                None => {
                    if paused {
                        self.set_fill(id);
                    }
                    break;
                }
            }
        }
        self.settle(id);
        self.after_fill(id);
    }

    /// Puts a chunk of the arc into the store, which has room: it is transient already, or fetched.
    fn fill_with(&mut self, id: ImageId, chunk: Chunk) {
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.inventory.promote(chunk) {
            image.fill.arrived(chunk);
            return self.settle(id);
        }
        self.want(id, chunk, Priority::Fill, Beneficiary::Store);
        if let Some(fetch) = self.fetch_mut(id, chunk) {
            fetch.fill = true;
        }
    }

    /// Reports the end of a fill, and announces progress.
    pub(super) fn after_fill(&mut self, id: ImageId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.fill.is_done() && !image.notified_filled {
            image.notified_filled = true;
            let arc = image.fill.arc();
            self.demote_outside(id, arc);
            self.out(Output::Notice(super::Notice::Filled(id)));
            self.announce(id);
            self.recount_soon(id);
        }
    }

    /// Makes stored chunks outside the present arc transient, and evicts above the bound.
    fn demote_outside(&mut self, id: ImageId, arc: Arc) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let ring = *image.map.ring();
        let outside = |chunk: &Chunk| !arc.contains(ring.place(*chunk), ring.size());
        let old: Vec<Chunk> = image.inventory.iter_stored().filter(outside).collect();
        old.into_iter().for_each(|chunk| image.inventory.demote(chunk));
        self.trim(id);
    }

    /// True if the store can take one more chunk, perhaps after dropping one of an earlier arc.
    pub(super) fn has_room(&mut self, id: ImageId) -> bool {
        self.make_room(id);
        self.images.get(&id).is_some_and(|image| image.inventory.stored() < image.inventory.capacity())
    }

    /// A sparse image had more data on this arc than expected: an eighth less of it then.
    pub(super) fn shorten(&mut self, id: ImageId) {
        let Some(image) = self.images.get(&id) else { return };
        let arc = image.fill.arc();
        self.take_arc(id, Arc { length: arc.length - arc.length.div_ceil(8), ..arc });
    }

    /// Commits to another arc, and begins to fill it where readers are: what they come by need not
    /// be fetched later.
    pub(super) fn take_arc(&mut self, id: ImageId, arc: Arc) {
        let from = self.reads_from(id).map_or(0, |chunk| chunk.0);
        self.begin_fill(id, arc, from);
        self.announce(id);
    }

    /// Fills an arc from chunk `from` on; what of it is here is passed over.
    pub(super) fn begin_fill(&mut self, id: ImageId, arc: Arc, from: u64) {
        let now = self.now;
        let Some(image) = self.images.get_mut(&id) else { return };
        image.fill = Fill::new(image.map.ring().size(), arc, from, now);
        image.notified_filled = false;
        self.fetches.of_mut(image.number).for_each(|(_, fetch)| fetch.fill = false);
        self.commit(id);
        self.set_fill(id);
    }

    /// Makes room for one more chunk of the arc while the store is full of an earlier arc's.
    pub(super) fn make_room(&mut self, id: ImageId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.inventory.stored() < image.inventory.capacity() || image.fill.is_done() {
            return;
        }
        let (arc, ring) = (image.fill.arc(), *image.map.ring());
        let outside = |chunk: &Chunk| !arc.contains(ring.place(*chunk), ring.size());
        let spare = image.inventory.iter_stored().find(outside);
        if let Some(chunk) = spare {
            image.inventory.demote(chunk);
            self.trim(id);
        }
    }

    /// A number of this node's own, different for each use.
    pub(super) fn dice(&mut self) -> u64 {
        self.seed = mix(self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15));
        self.seed
    }
}
