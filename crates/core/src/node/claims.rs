//! Claims: what is said of images in the field, and by whom.
//!
//! A claim binds a name and a header to an id. Nothing of it is believed here: one id may be claimed with several
//! headers, and one name for several ids. Invariant: a claim that came later does not displace another one. The shell
//! finds out which claims are true before the node takes part in an image.

use super::Node;
use crate::identity::Identity;
use crate::image::ImageId;
use crate::record::{Record, Subject};
use std::collections::BTreeMap;
use std::sync::Arc as Shared;

/// So many subjects are remembered that only other zones have: 100 KB.
const OUTSIDE_MAX: usize = 1024;
/// So many of them are about one image, which so cannot fill the table: some names, and some headers that are wrong.
const OF_ONE_IMAGE_MAX: usize = 8;
/// So many of those who make a claim are named: more are not asked for what one of them has.
const TELLERS_MAX: usize = 256;

/// A live member that says something of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Teller {
    /// Who is said to say it; whoever spoke may have said so in the name of another.
    pub identity: Identity,
    /// True if it says that it can read all of the image from a file.
    pub origin: bool,
    /// How many chunk numbers its store has gone through, as it says.
    pub filled: u64,
}

/// What is said of an image.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The id, and which name and header it has.
    pub subject: Shared<Subject>,
    /// Members that say so, this node not among them; nobody if those are of other zones.
    pub tellers: Vec<Teller>,
}

impl Node {
    /// All claims about images that are made in the field, in the order of the ids.
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

    /// What is known of images, of whatever zone; origins last.
    fn known_records(&self) -> impl Iterator<Item = &Record> {
        let (origins, others): (Vec<&Record>, Vec<&Record>) = self
            .membership
            .records()
            .iter()
            .filter(|record| !record.offers_nothing())
            .partition(|record| record.origin);
        self.outside.images.values().chain(others).chain(origins)
    }

    /// One record of each subject, for those of other zones; the most told ones of each image.
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
        let most_told = |mut records: Vec<(usize, &Record)>| {
            records.sort_by_key(|(told, _)| std::cmp::Reverse(*told));
            records.into_iter().take(OF_ONE_IMAGE_MAX).map(|(_, record)| record.clone()).collect::<Vec<_>>()
        };
        of_images.into_values().flat_map(most_told).collect()
    }

    /// Remembers what somebody of another zone says of an image.
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
