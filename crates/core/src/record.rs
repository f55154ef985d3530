//! Records: what each node says about each image it has, and the table of all of them.
//!
//! A record is replaced by one of the same node and image with a higher version, never changed. The table
//! is the same on all nodes once news has spread; it is bounded, since anybody may gossip anything.

use crate::identity::NodeId;
use crate::image::{Header, ImageId, is_image_name};
use crate::placement::{Arc, Filled};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one node says about one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who says it.
    pub node: NodeId,
    /// Grows with each statement of that node about that image.
    pub version: u64,
    /// Of which image.
    pub image: ImageId,
    /// What the image is called.
    pub name: String,
    /// [`Header::encode`]; whether it belongs to `image` is found out with the top page.
    pub header: [u8; Header::BYTES],
    /// True if the node can read all of it from a file.
    pub origin: bool,
    /// What the node's store is to hold.
    pub arc: Arc,
    /// How much of that it holds.
    pub filled: Filled,
    /// True while the node is about to go: it still serves, but nobody should count on it.
    pub leaving: bool,
}

impl Record {
    /// True if it can be believed as far as it can be checked at all.
    pub fn is_sound(&self) -> bool {
        let named = is_image_name(&self.name);
        named && Header::decode(&self.header).is_ok()
    }

    /// Its encoding, for gossip. About 110 bytes and the name.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data without maps or unsized sequences always encodes")
    }

    /// The inverse of [`Record::encode`]; `None` for anything unsound.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (record, rest): (Self, &[u8]) = postcard::take_from_bytes(bytes).ok()?;
        (rest.is_empty() && record.is_sound()).then_some(record)
    }
}

/// Names one statement: of whom and about what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    /// Who.
    pub node: NodeId,
    /// About which image.
    pub image: ImageId,
}

/// At most so many records are kept: 16 images on 4 000 nodes, 20 MB.
const RECORDS_MAX: usize = 1 << 16;
/// At most so many of one node, which cannot fill the table.
const RECORDS_OF_ONE_MAX: usize = 256;

/// All records, the newest of each node and image.
#[derive(Debug, Default)]
pub struct Records {
    table: BTreeMap<RecordKey, Record>,
    /// Grows with each change.
    changes: u64,
}

impl Records {
    /// Takes a record in; true if it was news.
    pub fn learn(&mut self, record: Record) -> bool {
        let key = RecordKey { node: record.node, image: record.image };
        let known = self.table.get(&key);
        if known.is_some_and(|known| known.version >= record.version) {
            return false;
        }
        if !record.is_sound() || (known.is_none() && !self.has_room(record.node)) {
            return false;
        }
        self.table.insert(key, record);
        self.changes += 1;
        true
    }

    fn has_room(&self, node: NodeId) -> bool {
        let key = |image| RecordKey { node, image: ImageId([image; 32]) };
        self.table.len() < RECORDS_MAX && self.table.range(key(0)..=key(u8::MAX)).count() < RECORDS_OF_ONE_MAX
    }

    /// Forgets what was said by nodes that `alive` does not know.
    pub fn retain(&mut self, alive: impl Fn(NodeId) -> bool) {
        let before = self.table.len();
        self.table.retain(|key, _| alive(key.node));
        self.changes += u64::from(self.table.len() != before);
    }

    /// The record of that node about that image.
    pub fn get(&self, key: &RecordKey) -> Option<&Record> {
        self.table.get(key)
    }

    /// All records, by node.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.table.values()
    }

    /// A number that is different after each change.
    pub const fn changes(&self) -> u64 {
        self.changes
    }
}
