//! Claims: statements of members about images.
//!
//! A claim binds a name and a header to an id. This module believes none of it: there may be claims
//! of one id with several headers, and of one name for several ids. Invariant: a later claim does
//! not displace an earlier one. The shell finds out which claims are true before the node joins an
//! image.

use super::Node;
use crate::identity::Identity;
use crate::image::ImageId;
use crate::record::{Record, Subject};
use std::collections::BTreeMap;
use std::sync::Arc as Shared;

/// Most remembered subjects that only other zones have: 100 KB.
pub const OUTSIDE_MAX: usize = 1024;
/// Most of them about one image, which so cannot fill the table: some names, some wrong headers.
const OF_ONE_IMAGE_MAX: usize = 8;
/// Most tellers named for one claim. More would not be asked for their proof.
const TELLERS_MAX: usize = 256;

/// A live member that says something of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Teller {
    /// The claimed teller; its statement may be forged.
    pub identity: Identity,
    /// True if it claims to be an origin.
    pub origin: bool,
    /// Chunk numbers that its store claims to have passed.
    pub filled: u64,
}

/// A statement about an image.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The id, and which name and header it has.
    pub subject: Shared<Subject>,
    /// Members that make the claim, without this node; empty for claims of other zones.
    pub tellers: Vec<Teller>,
}

impl Node {
    /// All claims in the field, by image id.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims: BTreeMap<&Shared<Subject>, Vec<Teller>> = BTreeMap::new();
        for record in self.known_records() {
            let tellers = claims.entry(&record.subject).or_default();
            if let Some(identity) = self.identity_of(record.node).filter(|_| tellers.len() < TELLERS_MAX) {
                tellers.push(Teller { identity: *identity, origin: record.origin, filled: record.filled.count });
            }
        }
        claims.into_iter().map(|(subject, tellers)| Claim { subject: Shared::clone(subject), tellers }).collect()
    }

    /// The known records of all zones; those of origins last.
    fn known_records(&self) -> impl Iterator<Item = &Record> {
        let (origins, others): (Vec<&Record>, Vec<&Record>) = self
            .membership
            .records()
            .iter()
            .filter(|record| !record.offers_nothing())
            .partition(|record| record.origin);
        self.outside.images.values().chain(others).chain(origins)
    }

    /// One record of each subject, for members of other zones. Of each image it takes those with
    /// most tellers.
    pub(super) fn one_of_each_subject(&self) -> Vec<Record> {
        let mut subjects: BTreeMap<&Shared<Subject>, (usize, &Record)> = BTreeMap::new();
        for record in self.known_records() {
            let told = subjects.get(&record.subject).map_or(0, |(told, _)| *told);
            subjects.insert(&record.subject, (told + 1, record));
        }
        let mut of_images: BTreeMap<ImageId, Vec<(usize, &Record)>> = BTreeMap::new();
        for (told, record) in subjects.into_values() {
            of_images.entry(record.image()).or_default().push((told, record));
        }
        let most_tellers = |mut records: Vec<(usize, &Record)>| {
            records.sort_by_key(|(told, _)| std::cmp::Reverse(*told));
            records.into_iter().take(OF_ONE_IMAGE_MAX).map(|(_, record)| record.clone()).collect::<Vec<_>>()
        };
        of_images.into_values().flat_map(most_tellers).collect()
    }

    /// Remembers a record of another zone.
    pub(super) fn remember_outside(&mut self, record: &Record) {
        let images = &mut self.outside.images;
        if images.len() >= OUTSIDE_MAX || images.contains_key(&record.subject) || !record.is_sound() {
            return;
        }
        let of_image = images.keys().filter(|subject| subject.image == record.image()).count();
        if of_image < OF_ONE_IMAGE_MAX {
            images.insert(Shared::clone(&record.subject), record.clone());
        }
    }
}
