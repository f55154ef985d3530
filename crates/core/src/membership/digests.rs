//! Digests: two members compare them before they tell each other the rest.
//!
//! A digest covers a statement's words and signature, not only its number. Else a statement that
//! somebody else invented, under the number of the true one, would look like that, and nobody who
//! knows better would say so.

use super::Membership;
use super::member::Member;
use crate::identity::Identity;
use crate::placement::mix;
use crate::record::Record;
use crate::snapshot::Known;
use std::net::IpAddr;

impl Membership {
    /// The digest of the statements about a member, and of its records while it lives.
    pub(super) fn digest(&self, member: &Member) -> Known {
        let node = member.identity.node;
        let records = self.records.of(node).iter().filter(|_| member.state.is_live());
        let digest = records.fold(of_member(&member.told()), of_record);
        Known { node, digest: (digest >> 32) as u32 }
    }
}

fn of_member(said: &Member) -> u64 {
    let Member { identity: Identity { addr, generation, zone, .. }, incarnation, state, signature, .. } = said;
    let life = fold(mix(*generation), &[u64::from(*incarnation) << 8 | *state as u64, u64::from(addr.port())]);
    let life = match addr.ip() {
        IpAddr::V4(ip) => fold_bytes(life, &ip.octets()),
        IpAddr::V6(ip) => fold_bytes(life, &ip.octets()),
    };
    fold_bytes(fold_bytes(life, zone.name().as_bytes()), signature.0.as_flattened())
}

/// A record's progress does not count, apart from its end: gossip tells of it all the time.
fn of_record(digest: u64, record: &Record) -> u64 {
    let Record { version, subject, origin, arc, leaving, signature, .. } = record;
    let flags = u64::from(record.is_whole()) | u64::from(*origin) << 1 | u64::from(*leaving) << 2;
    let digest = fold(digest, &[*version, flags, arc.start, arc.length]);
    let digest = subject.names.iter().fold(digest, |digest, name| fold_bytes(digest, name.as_bytes()));
    [&subject.image.0[..], &subject.header, signature.0.as_flattened()].into_iter().fold(digest, fold_bytes)
}

fn fold(digest: u64, numbers: &[u64]) -> u64 {
    numbers.iter().fold(digest, |digest, number| mix(digest ^ number))
}

/// The same of bytes, their number included.
fn fold_bytes(digest: u64, bytes: &[u8]) -> u64 {
    let number = |part: &[u8]| part.iter().rfold(0, |number, byte| number << 8 | u64::from(*byte));
    bytes.chunks(8).fold(mix(digest ^ bytes.len() as u64), |digest, part| mix(digest ^ number(part)))
}
