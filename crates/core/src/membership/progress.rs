//! Progress alone: what changes in a record while a store fills, for members that have the rest.
//!
//! While a room fills its stores nearly all news is progress. A record takes 200 bytes, and its
//! progress a fifth of that. Members keep no account of the records of others. They send some of
//! them whole, now and then, so a lost one is there again soon. Until then its progress is ignored,
//! as older programs always do.

use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::{Filled, mix};
use crate::record::Record;
use serde::{Deserialize, Serialize};

/// One of so many pieces of progress goes out as a whole record. Six partners tell each piece about
/// twice a second, so a lost record is there again after a second or two. With all of them whole, a
/// cold storm of 50 nodes at 50 Mbit/s has twice the control traffic.
const WHOLE_EVERY: u64 = 8;

/// Bytes of an image's id that tell one node's images apart.
const SHORT: usize = 8;

/// The part of a record that its node does not sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The node of the record.
    pub node: NodeId,
    /// The first bytes of the image's id.
    pub image: [u8; SHORT],
    /// The version of the record.
    pub version: u64,
    /// The changes in this version, and the node's link: see [`Record::link`].
    pub progress: u64,
    /// The filled part of the arc.
    pub filled: Filled,
}

impl Progress {
    /// The progress of a record; `None` if this member, `teller`, is to send all of it. The first
    /// record of a version always goes whole, and so does the last, which no other one repairs.
    pub fn of(record: &Record, teller: NodeId) -> Option<Self> {
        // By a hash: members pass on each second or third piece, in step with each other. By the
        // count alone some might never send a whole record.
        let turn = mix(record.progress ^ record.node.0.rotate_left(32) ^ teller.0);
        if record.is_first() || record.is_whole() || turn.is_multiple_of(WHOLE_EVERY) {
            return None;
        }
        let &Record { node, version, progress, filled, .. } = record;
        Some(Self { node, image: short(&record.image()), version, progress, filled })
    }

    /// The whole record, if there is just one that it can belong to among those of its node.
    pub fn completes(&self, of_node: &[Record]) -> Option<Record> {
        let mut same = of_node.iter().filter(|record| short(&record.image()) == self.image);
        let known = same.next().filter(|known| known.version == self.version && same.next().is_none())?;
        Some(Record { progress: self.progress, filled: self.filled, ..known.clone() })
    }
}

fn short(image: &ImageId) -> [u8; SHORT] {
    std::array::from_fn(|at| image.0[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkSize;
    use crate::image::{Geometry, Header};
    use crate::placement::Arc;
    use crate::record::Subject;
    use crate::signing::Signature;

    fn record(image: [u8; 32], count: u64) -> Record {
        let header = Header::new(256 * ChunkSize::MIN.bytes(), ChunkSize::MIN, 256).expect("a header").encode();
        Record {
            node: NodeId(7),
            version: 3,
            progress: count,
            subject: Subject { image: ImageId(image), names: "image".into(), header }.into(),
            origin: false,
            arc: Arc { start: 0, length: 9 },
            filled: Filled { from: 0, count },
            leaving: false,
            signature: Signature::default(),
        }
    }

    fn told(record: &Record) -> Progress {
        (0..).find_map(|teller| Progress::of(record, NodeId(teller))).expect("one of eight tells all of it")
    }

    #[test]
    fn the_first_and_the_last_are_whole_and_a_part_of_the_others() {
        let whole = |record: &Record| (0..800).filter(|teller| Progress::of(record, NodeId(*teller)).is_none()).count();
        let all = Geometry::new(Header::decode(&record([1; 32], 0).subject.header).expect("a header")).chunks();
        let end = record([1; 32], all);
        assert_eq!([whole(&record([1; 32], 0)), whole(&end)], [800, 800]);
        // Whoever passes on each second piece, or each eighth, sends whole ones too.
        for step in [1, 2, 8] {
            let of_one = (1..200).map(|turn| record([1; 32], turn * step % 255 + 1));
            let whole = of_one.filter(|record| Progress::of(record, NodeId(1)).is_none()).count();
            assert!((10..50).contains(&whole), "{whole} of 199");
        }
    }

    #[test]
    fn progress_completes_the_one_record_that_it_belongs_to() {
        let (before, after) = (record([1; 32], 5), record([1; 32], 6));
        let other = record([2; 32], 5);
        let progress = told(&after);
        assert_eq!(progress.completes(&[other.clone(), before.clone()]), Some(after));
        assert_eq!(progress.completes(&[other]), None, "of another image");
        let later = Record { version: 4, ..before.clone() };
        assert_eq!(progress.completes(&[later]), None, "of another version");
        let mut twin = [1; 32];
        twin[31] = 9;
        assert_eq!(progress.completes(&[before, record(twin, 5)]), None, "of two whose ids begin alike");
    }
}
