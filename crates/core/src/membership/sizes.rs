//! The sizes of the tables that others fill with what they say of members and images.

use super::Membership;
use super::roster::{LIVE_MAX, MEMBERS_MAX, UNMET_MAX};
use crate::record;

/// How many entries each table has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Entries for members, the dead among them.
    pub members: usize,
    /// Members that are alive or suspect.
    pub live: usize,
    /// Live members known by hearsay only.
    pub hearsay: usize,
    /// Records of all members.
    pub records: usize,
    /// Most records of one member.
    pub records_of_one: usize,
    /// Verified lives and records.
    pub verified: usize,
}

impl Sizes {
    /// The bound of each: what a membership may have, whatever others say.
    pub const MOST: Self = Self {
        members: MEMBERS_MAX,
        live: LIVE_MAX,
        hearsay: UNMET_MAX,
        records: record::RECORDS_MAX,
        records_of_one: record::RECORDS_OF_ONE_MAX,
        // Entries of former members and records go with the next sweep.
        verified: 2 * (MEMBERS_MAX + record::RECORDS_MAX),
    };

    /// Each size with its name, for a checker.
    pub const fn named(&self) -> [(&'static str, usize); 6] {
        [
            ("members", self.members),
            ("live members", self.live),
            ("members known by hearsay", self.hearsay),
            ("records", self.records),
            ("records of one member", self.records_of_one),
            ("verified statements", self.verified),
        ]
    }
}

impl Membership {
    /// See [`Sizes`]; looks at each member.
    pub fn sizes(&self) -> Sizes {
        let live = self.live();
        let nodes = self.roster.iter().map(|member| member.identity.node);
        Sizes {
            members: self.roster.iter().count(),
            live: live.len(),
            hearsay: live.values().filter(|member| !self.roster.has_met(member.node)).count(),
            records: self.records.len(),
            records_of_one: nodes.map(|node| self.records.of(node).len()).max().unwrap_or_default(),
            verified: self.verified.len() + self.verified_records.len(),
        }
    }
}
