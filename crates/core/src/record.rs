//! Records: each node's announcements about its images, and the table of all of them.
//!
//! A record is replaced by one of the same node and image with a higher version, or of the same
//! version with more progress. Its node signs it, apart from its progress: that changes several
//! times a second while a store fills, and is a hint. The table converges on all nodes. It is
//! bounded, since any node may gossip anything. All nodes announce a few images. So the subject,
//! which is most of a record, is in memory once for all of them.

use crate::identity::NodeId;
use crate::image::{Geometry, Header, ImageId};
use crate::names::Names;
use crate::placement::{Arc, Filled};
use crate::signing::{Context, PublicKey, Signature, Signatures};
use crate::small_list::SmallList;
use crate::speed::{Link, Speed};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc as Shared;

/// The subject of a record: the image, its names and its header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// The image's id.
    pub image: ImageId,
    /// The image's names.
    pub names: Names,
    /// [`Header::encode`]; whether it belongs to `image` is found out with the top page.
    pub header: [u8; Header::BYTES],
}

/// One node's announcement about one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The node that says so.
    pub node: NodeId,
    /// The version; it grows with each change of the signed part.
    pub version: u64,
    /// Grows with each change of `filled` or of the node's speed, which it carries: see
    /// [`Record::link`]. Without a speed it begins at 0 in each version.
    pub progress: u64,
    /// The image, its names and its header.
    pub subject: Shared<Subject>,
    /// True if the node can read all of it from a file.
    pub origin: bool,
    /// The arc that the node's store is to hold.
    pub arc: Arc,
    /// The filled part of the arc.
    pub filled: Filled,
    /// True while nobody should count on the node: it is about to go and still serves, or others
    /// cannot connect to it.
    pub leaving: bool,
    /// The node's signature of all but `progress` and `filled`.
    pub signature: Signature,
}

/// A record on the wire.
#[derive(Serialize)]
struct Written<'a> {
    node: NodeId,
    version: u64,
    progress: u64,
    subject: &'a Subject,
    origin: bool,
    arc: Arc,
    filled: Filled,
    leaving: bool,
    signature: Signature,
}

/// The same, read.
#[derive(Deserialize)]
struct Read {
    node: NodeId,
    version: u64,
    progress: u64,
    subject: Subject,
    origin: bool,
    arc: Arc,
    filled: Filled,
    leaving: bool,
    signature: Signature,
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self { node, version, progress, ref subject, origin, arc, filled, leaving, signature } = self;
        Written { node, version, progress, subject, origin, arc, filled, leaving, signature }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { node, version, progress, subject, origin, arc, filled, leaving, signature } =
            Read::deserialize(deserializer)?;
        let subject = Shared::new(subject);
        Ok(Self { node, version, progress, subject, origin, arc, filled, leaving, signature })
    }
}

impl Record {
    /// The id of the image.
    pub fn image(&self) -> ImageId {
        self.subject.image
    }

    /// Its key in the table.
    pub fn key(&self) -> RecordKey {
        RecordKey { node: self.node, image: self.image() }
    }

    /// What the node says of its link: a hint as `filled` is. It is part of the progress. The
    /// highest bits say what there is: a speed in the lowest eight bits, the word of the network
    /// card in those above it, and the speed of the way out above both. The count is in between.
    /// Programs that know nothing of it compare and pass on the whole number.
    pub const fn link(&self) -> Link {
        let [measured, card, out, ..] = (self.progress & !(u64::MAX << below_count(self.progress))).to_le_bytes();
        Link { measured: Speed(measured), card: Speed(card), out: Speed(out) }
    }

    /// True if the node could not read all of the image without an origin: it has no way to stores
    /// with the rest. A hint too, and part of the progress.
    pub const fn needs_origin(&self) -> bool {
        self.progress & NEEDS_ORIGIN != 0
    }

    /// The same, with this said of it.
    pub const fn needing_origin(mut self, needs: bool) -> Self {
        self.progress = if needs { self.progress | NEEDS_ORIGIN } else { self.progress & !NEEDS_ORIGIN };
        self
    }

    /// The changes of progress in this version.
    const fn count(&self) -> u64 {
        (self.progress & !FLAGS) >> below_count(self.progress)
    }

    /// True for the first one of its version, which is to be signed.
    pub const fn is_first(&self) -> bool {
        self.count() == 0
    }

    /// The progress of a record: this many changes, and what the node says of its link.
    pub const fn progress(count: u64, link: Link) -> u64 {
        let Link { measured: Speed(measured), card: Speed(card), out: Speed(out) } = link;
        // Without a measurement others take it for a node of which nothing is known.
        let flags = match (measured, card, out) {
            (0, 0, 0) => 0,
            (_, 0, 0) => HAS_SPEED,
            (_, _, 0) => HAS_SPEED | HAS_CARD,
            (_, 0, _) => HAS_SPEED | HAS_OUT,
            (..) => HAS_SPEED | HAS_CARD | HAS_OUT,
        };
        let said = flags | u64::from_le_bytes([measured, card, out, 0, 0, 0, 0, 0]);
        let most = !FLAGS >> below_count(said);
        let count = if count < most { count } else { most };
        said | count << below_count(said)
    }

    /// Of two records of one key the one with the higher rank counts.
    pub const fn rank(&self) -> (u64, u64) {
        (self.version, self.progress)
    }

    /// True if the other says the same of the same version, apart from its progress.
    pub fn says_as(&self, other: &Self) -> bool {
        let signed = |record: &Self| (record.node, record.version, record.origin, record.arc, record.leaving);
        signed(self) == signed(other) && self.subject == other.subject
    }

    /// The message that its node signs: all but its progress.
    fn message(&self) -> Vec<u8> {
        let Self { node, version, subject, origin, arc, leaving, .. } = self;
        Context::Record.message(&(node, version, &**subject, origin, arc, leaving))
    }

    /// The same with its node's signature.
    pub fn signed(self, by: &dyn Signatures) -> Self {
        Self { signature: by.sign(&self.message()), ..self }
    }

    /// True if the node with this key signed it.
    pub fn is_genuine(&self, key: &PublicKey, keys: &dyn Signatures) -> bool {
        keys.verify(key, &self.message(), &self.signature)
    }

    /// This record, numbered as the next one after `last`: more progress, or, if the signed part
    /// has changed, another version, which is to be signed.
    pub fn after(self, last: &Self) -> Self {
        let same = |record: &Self| (record.origin, record.arc, record.leaving);
        let needs = self.needs_origin();
        // Without it the number would be smaller, and no news.
        let ends_a_need = last.needs_origin() && !needs;
        if self.subject == last.subject && same(&self) == same(last) && !ends_a_need {
            let mut link = self.link();
            // It stays once it was said: a smaller number would be no news.
            if last.link().out.is_known() && !link.out.is_known() {
                link.out = Speed(u8::MAX);
            }
            let progress = Self::progress(last.count().saturating_add(1), link);
            return Self { version: last.version, progress, signature: last.signature, ..self }.needing_origin(needs);
        }
        let version = self.version.max(last.version.saturating_add(1));
        Self { version, progress: Self::progress(0, self.link()), ..self }.needing_origin(needs)
    }

    /// True if the node announces that it has nothing of the image: it has dropped the image, or
    /// others cannot connect to it.
    pub fn offers_nothing(&self) -> bool {
        self.leaving && !self.origin && self.arc.length == 0
    }

    /// True if its arc is filled: the end of its progress.
    pub fn is_whole(&self) -> bool {
        let size = Header::decode(&self.subject.header).map_or(0, |header| Geometry::new(header).chunks());
        self.filled.count >= size
    }

    /// Forgets what its node did not sign.
    pub fn forget_progress(&mut self) {
        (self.progress, self.filled) = (0, Filled::default());
    }

    /// True if it can be believed as far as it can be checked at all.
    pub fn is_sound(&self) -> bool {
        self.subject.names.is_sound() && Header::decode(&self.subject.header).is_ok()
    }

    /// Its encoding, for gossip. About 180 bytes and the names.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data without maps or unsized sequences always encodes")
    }

    /// The inverse of [`Record::encode`]; `None` for anything unsound.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (record, rest): (Self, &[u8]) = postcard::take_from_bytes(bytes).ok()?;
        (rest.is_empty() && record.is_sound()).then_some(record)
    }
}

/// Set in a progress that carries a speed.
const HAS_SPEED: u64 = 1 << 63;
/// Set in a progress that carries what the node's network card says.
const HAS_CARD: u64 = 1 << 62;
/// Set in a progress that carries the speed of the way out.
const HAS_OUT: u64 = 1 << 61;
/// Set in the progress of a node that [needs an origin](Record::needs_origin).
const NEEDS_ORIGIN: u64 = 1 << 60;
const FLAGS: u64 = HAS_SPEED | HAS_CARD | HAS_OUT | NEEDS_ORIGIN;

/// Bits of a progress below its count.
const fn below_count(progress: u64) -> u32 {
    match (progress & HAS_SPEED, progress & HAS_CARD, progress & HAS_OUT) {
        (0, ..) => 0,
        (_, 0, 0) => u8::BITS,
        (_, _, 0) => 2 * u8::BITS,
        (..) => 3 * u8::BITS,
    }
}

/// The key of a record: node and image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    /// The node that says so.
    pub node: NodeId,
    /// About which image.
    pub image: ImageId,
}

/// Most records: 16 images on 4 000 nodes, 20 MB.
pub const RECORDS_MAX: usize = 1 << 16;
/// Most records of one node, which so cannot fill the table.
pub const RECORDS_OF_ONE_MAX: usize = 256;
/// Unused subjects that are kept besides, before they are dropped.
const SUBJECTS_MIN: usize = 16;

/// All records, the newest of each node and image.
#[derive(Debug, Default)]
pub struct Records {
    /// The records of each node, by image.
    table: BTreeMap<NodeId, SmallList<Record>>,
    count: usize,
    /// Their subjects, each once.
    subjects: BTreeSet<Shared<Subject>>,
    /// Grows with each change.
    changes: u64,
}

impl Records {
    /// Takes a record in; true if it is news. Whether its node said it is for the caller to know.
    pub fn learn(&mut self, mut record: Record) -> bool {
        let (node, image) = (record.node, record.image());
        let of_node = self.table.get(&node);
        let known = of_node.and_then(|records| of_image(records, image));
        if known.is_some_and(|known| known.rank() >= record.rank()) {
            return false;
        }
        let room = self.count < RECORDS_MAX && of_node.is_none_or(|records| records.len() < RECORDS_OF_ONE_MAX);
        // A known subject has been checked already.
        let subject = self.subjects.get(&record.subject);
        if (subject.is_none() && !record.is_sound()) || (known.is_none() && !room) {
            return false;
        }
        match subject {
            Some(subject) => record.subject = Shared::clone(subject),
            None => self.remember(&record.subject),
        }
        let records = self.table.entry(node).or_default();
        match records.iter_mut().find(|other| other.image() == image) {
            Some(known) => *known = record,
            None => {
                self.count += 1;
                records.push(record);
                records.sort_unstable_by_key(Record::image);
            }
        }
        self.changes += 1;
        true
    }

    fn remember(&mut self, subject: &Shared<Subject>) {
        // Records are replaced by others that need not be about the same.
        if self.subjects.len() > 2 * self.count + SUBJECTS_MIN {
            self.subjects.retain(|subject| Shared::strong_count(subject) > 1);
        }
        self.subjects.insert(Shared::clone(subject));
    }

    /// Forgets the records of nodes for which `alive` is false.
    pub fn retain(&mut self, alive: impl Fn(NodeId) -> bool) {
        let before = self.count;
        self.table.retain(|node, _| alive(*node));
        self.count = self.table.values().map(|records| records.len()).sum();
        self.changes += u64::from(self.count != before);
    }

    /// Forgets how far a node has filled its stores, and its speed.
    pub fn forget_progress(&mut self, node: NodeId) {
        if let Some(records) = self.table.get_mut(&node) {
            records.iter_mut().for_each(Record::forget_progress);
            self.changes += 1;
        }
    }

    /// Forgets one record.
    pub fn remove(&mut self, key: &RecordKey) {
        if let Some(records) = self.table.get_mut(&key.node) {
            let before = records.len();
            records.retain(|record| record.image() != key.image);
            self.count -= before - records.len();
            self.changes += 1;
        }
    }

    /// True if there is room for one more. The fuller the table, the more a record has to be: one
    /// of a node that speaks for itself, one that this node needs, or both.
    pub const fn has_room(&self, is_of_acquaintance: bool, is_needed: bool) -> bool {
        let eighths = match (is_needed, is_of_acquaintance) {
            (false, false) => 4,
            (false, true) => 6,
            (true, false) => 7,
            (true, true) => 8,
        };
        self.count < RECORDS_MAX / 8 * eighths
    }

    /// True if no record has this subject.
    pub fn is_new(&self, subject: &Shared<Subject>) -> bool {
        !self.subjects.contains(subject)
    }

    /// The record of that node about that image.
    pub fn get(&self, key: &RecordKey) -> Option<&Record> {
        of_image(self.table.get(&key.node)?, key.image)
    }

    /// All records of a node.
    pub fn of(&self, node: NodeId) -> &[Record] {
        self.table.get(&node).map_or(&[], |records| records)
    }

    /// All records, by node.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.table.values().flat_map(|records| records.iter())
    }

    /// The number of records.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A number that is different after each change.
    pub const fn changes(&self) -> u64 {
        self.changes
    }
}

fn of_image(records: &[Record], image: ImageId) -> Option<&Record> {
    records.iter().find(|record| record.image() == image)
}
