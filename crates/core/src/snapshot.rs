//! Snapshots: the state that two nodes exchange when they meet, and its compact form.
//!
//! All members have records about a few images, and each record names its image, with a name and a
//! header. Uncompressed, records are four times as long as they need be. One node that a thousand
//! join through would send nothing else for most of a second. So a snapshot has each image once.
//! The asking node tells digests of the statements that it knows, and is told the others.

use crate::identity::NodeId;
use crate::membership::Member;
use crate::placement::{Arc, Filled};
use crate::record::{Record, Subject};
use crate::signing::Signature;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc as Shared;
use vfield_block::gather::Gather as _;

/// Most records in each of the two lists: what a snapshot above one mebibyte has room for, with the
/// members. In memory they are longer than on the wire.
pub const RECORDS_MAX: usize = 1 << 13;

/// The state that a node sends to another when they meet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Packed", try_from = "Packed")]
pub struct Snapshot {
    /// Itself, then, if both are in one zone, all members it knows of there, the dead too.
    pub members: Vec<Member>,
    /// The records of these members.
    pub records: Vec<Record>,
    /// Gateways: between two gateways all of them, the sender first; else a few.
    pub gateways: Vec<Member>,
    /// The records of these gateways; else one record of each image.
    pub outside: Vec<Record>,
    /// True between two gateways.
    pub backbone: bool,
    /// In a question: the statements that the asking node knows, by id.
    pub known: Vec<Known>,
}

/// A digest of the statements about a member, and of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Known {
    /// The member that it is about.
    pub node: NodeId,
    /// 32 bits of a hash. Of a thousand statements that differ, one is missed in four million
    /// questions; the next question has other numbers.
    pub digest: u32,
}

/// A record without its image.
#[derive(Serialize, Deserialize)]
struct Line {
    node: NodeId,
    /// The index of the subject.
    subject: usize,
    version: u64,
    progress: u64,
    origin: bool,
    arc: Arc,
    filled: Filled,
    leaving: bool,
    signature: Signature,
}

/// A snapshot on the wire.
#[derive(Serialize, Deserialize)]
struct Packed {
    subjects: Vec<Subject>,
    members: Vec<Member>,
    records: Vec<Line>,
    gateways: Vec<Member>,
    outside: Vec<Line>,
    backbone: bool,
    known: Vec<Known>,
}

impl From<Snapshot> for Packed {
    fn from(snapshot: Snapshot) -> Self {
        let Snapshot { members, records, gateways, outside, backbone, known } = snapshot;
        let subjects: BTreeSet<&Subject> = records.iter().chain(&outside).map(|record| &*record.subject).gathered();
        let subjects: Vec<Subject> = subjects.into_iter().cloned().collect();
        let pack = |records: Vec<Record>| records.into_iter().map(|record| Line::pack(record, &subjects)).collect();
        let (records, outside) = (pack(records), pack(outside));
        Self { subjects, members, records, gateways, outside, backbone, known }
    }
}

impl Line {
    fn pack(record: Record, subjects: &[Subject]) -> Self {
        let Record { node, version, progress, subject, origin, arc, filled, leaving, signature } = record;
        let subject = subjects.binary_search(&subject).expect("all are in it");
        Self { node, subject, version, progress, origin, arc, filled, leaving, signature }
    }

    fn unpack(self, subjects: &[Shared<Subject>]) -> Result<Record, &'static str> {
        let Self { node, subject, version, progress, origin, arc, filled, leaving, signature } = self;
        let subject = Shared::clone(subjects.get(subject).ok_or("a record of no image")?);
        Ok(Record { node, version, progress, subject, origin, arc, filled, leaving, signature })
    }
}

impl TryFrom<Packed> for Snapshot {
    type Error = &'static str;

    fn try_from(packed: Packed) -> Result<Self, Self::Error> {
        let Packed { subjects, members, records, gateways, outside, backbone, known } = packed;
        if !subjects.iter().all(|subject| subject.names.is_sound()) {
            return Err("an image without a sound name");
        }
        let subjects: Vec<Shared<Subject>> = subjects.into_iter().map(Shared::new).collect();
        let unpack = |lines: Vec<Line>| {
            if lines.len() > RECORDS_MAX {
                return Err("too many records");
            }
            lines.into_iter().map(|line| line.unpack(&subjects)).collect::<Result<Vec<Record>, _>>()
        };
        let (records, outside) = (unpack(records)?, unpack(outside)?);
        Ok(Self { members, records, gateways, outside, backbone, known })
    }
}
