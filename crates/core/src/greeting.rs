//! Greetings: the first bytes of a connection between nodes, by which each proves who it is.
//!
//! Both sides send a [`Greeting`] without waiting for the other's. It has the sender's key and its
//! statement about itself. Then each signs a hash of both greetings ([`Transcript`]). Nobody can
//! repeat another's greeting with success, since each greeting has a new random number. In a field
//! with a key the hash covers the sealed channel too, so a member cannot pass on others' proofs.
//!
//! A guest says nothing of itself: it only asks, and is no member. Parsing only; no sockets. The
//! format is in docs/reference/protocol.md.

use crate::identity::NodeId;
use crate::membership::Member;
use crate::signing::{Context, PublicKey, Signature, Signatures};
use crate::wire::{VERSION, VERSION_LEAST, WireError, bounded, encode, u32_at};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// First bytes of a connection between nodes.
pub const MAGIC: [u8; 8] = *b"VFIELD\r\n";
/// The same of a node that has just been started and takes part in nothing yet.
pub const MAGIC_STARTING: [u8; 8] = *b"VF-WAIT\n";
/// Magic, latest version, length of the rest, first version.
pub const HEAD: usize = 16;
/// Most bytes after the head: a member's statement takes about 170, the rest 90.
const BODY_MAX: u32 = 1 << 10;
/// Length of a proof, which follows both greetings.
pub const PROOF: usize = 64;

/// The greeting of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The sender's key, of which its id is a hash.
    pub key: PublicKey,
    /// A random number, another one in each greeting.
    pub nonce: [u8; 32],
    /// The sender's statement about itself; `None` for a guest.
    pub member: Option<Member>,
    /// The receiver's address as the sender sees it: the guess for a node that listens on
    /// `0.0.0.0`.
    pub you: SocketAddr,
    /// The latest generation of a member that the sender knows: a newcomer arrives after it.
    pub latest: u64,
}

/// The bytes of a greeting.
pub fn greeting(greeting: &Greeting) -> Vec<u8> {
    let body = encode(greeting);
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(body.len() as u16).to_le_bytes());
    out.extend_from_slice(&(VERSION_LEAST as u16).to_le_bytes());
    out.extend_from_slice(&body);
    out
}

/// The bytes that a node sends in place of a greeting while it hashes its files.
pub fn starting(percent: u32) -> [u8; HEAD] {
    let mut out = [0; HEAD];
    out[..8].copy_from_slice(&MAGIC_STARTING);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..].copy_from_slice(&percent.to_le_bytes());
    out
}

/// Checks the head of a greeting and says how many bytes follow it.
///
/// # Errors
///
/// If the other side is no node, is starting, or speaks no version that this program speaks.
pub fn length(head: &[u8; HEAD]) -> Result<usize, WireError> {
    if head[..8] == MAGIC_STARTING {
        return Err(WireError::Starting { percent: u32_at(head, 12).min(100) });
    }
    if head[..8] != MAGIC {
        return Err(WireError::NotVfield);
    }
    let (latest, rest) = (u32_at(head, 8), u32_at(head, 12));
    let (length, least) = (rest & 0xFFFF, rest >> 16);
    // A version that has only one number, as before version 8, writes zeros there.
    if latest < VERSION_LEAST || least.max(1) > VERSION {
        return Err(WireError::Version { theirs: latest });
    }
    bounded(length, BODY_MAX)
}

/// The latest version that this program and the sender of a head speak, if [`length`] is right with
/// it.
pub fn version(head: &[u8; HEAD]) -> u32 {
    u32_at(head, 8).min(VERSION)
}

/// Reads what follows the head of a greeting. Fields that a later version adds at its end are
/// skipped.
///
/// # Errors
///
/// If it does not parse, or its statement is of another key or of no member.
pub fn decode(body: &[u8]) -> Result<Greeting, WireError> {
    let (greeting, _): (Greeting, &[u8]) = postcard::take_from_bytes(body).map_err(|_| WireError::Payload)?;
    let own = |member: &Member| member.key == greeting.key && member.is_sound() && member.state.is_live();
    if greeting.member.as_ref().is_none_or(own) { Ok(greeting) } else { Err(WireError::Payload) }
}

/// The two greetings of a connection, and the channel that they passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transcript([u8; 32]);

impl Transcript {
    /// Of both greetings as they were sent, with their heads, so nobody on the way changes their
    /// versions. `channel` is a secret of the sealed channel that only its two ends know. In an
    /// open field it is zeros.
    pub fn new(channel: &[u8; 32], dialled: &[u8], answered: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(channel);
        for part in [dialled, answered] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The proof of one side.
    pub fn prove(&self, dialled: bool, by: &dyn Signatures) -> Signature {
        by.sign(&self.message(dialled))
    }

    /// The id of the side that proved that it has the key of its greeting. The proof covers its
    /// statement about itself too.
    pub fn prover(&self, dialled: bool, said: &Greeting, proof: &Signature, keys: &dyn Signatures) -> Option<NodeId> {
        let named = said.member.as_ref().is_none_or(|member| member.is_named(keys));
        let proved = named && keys.verify(&said.key, &self.message(dialled), proof);
        proved.then(|| keys.id_of(&said.key))
    }

    fn message(&self, dialled: bool) -> Vec<u8> {
        let context = if dialled { Context::Dialled } else { Context::Answered };
        context.message(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Identity, Zone};
    use crate::signing::Simulated;

    fn said(node: u64, nonce: u8) -> Greeting {
        let (addr, node) = (([198, 18, 0, 1], 4000).into(), NodeId(node));
        let identity = Identity { addr, node, generation: 1_700_000_000_000, zone: Zone::default() };
        let member = Some(Member::signed(identity, 0, false, &Simulated(node)));
        Greeting { key: Simulated::key_of(node), nonce: [nonce; 32], member, you: addr, latest: 7 }
    }

    fn body(said: &Greeting) -> Vec<u8> {
        greeting(said)[HEAD..].to_vec()
    }

    #[test]
    fn a_greeting_survives_a_round_trip_and_later_fields_are_skipped() {
        let said = said(1, 2);
        let bytes = greeting(&said);
        let (head, body) = bytes.split_first_chunk().unwrap();
        assert_eq!(length(head), Ok(body.len()));
        assert_eq!(decode(body), Ok(said));
        assert_eq!(decode(&[body, b"later"].concat()), Ok(said));
        assert!((0..body.len()).all(|length| decode(&body[..length]).is_err()));
    }

    #[test]
    fn versions_that_overlap_talk() {
        let head = |latest: u32, least: u16| {
            let mut head: [u8; HEAD] = *greeting(&said(1, 2)).first_chunk().unwrap();
            head[8..12].copy_from_slice(&latest.to_le_bytes());
            head[14..].copy_from_slice(&least.to_le_bytes());
            length(&head)
        };
        assert!(head(VERSION + 5, VERSION as u16).is_ok());
        assert_eq!(head(VERSION_LEAST - 1, 0), Err(WireError::Version { theirs: VERSION_LEAST - 1 }));
        assert_eq!(head(VERSION + 5, VERSION as u16 + 1), Err(WireError::Version { theirs: VERSION + 5 }));
    }

    #[test]
    fn only_the_holder_of_the_key_proves_it_and_only_here() {
        let (a, b) = (said(1, 2), said(3, 4));
        let channel = [0; 32];
        let here = Transcript::new(&channel, &body(&a), &body(&b));
        let proof = here.prove(true, &Simulated(NodeId(1)));
        let keys = Simulated(NodeId(9));
        assert_eq!(here.prover(true, &a, &proof, &keys), Some(NodeId(1)));
        // As the other side, by another key, for another, on another connection, in another
        // channel.
        assert_eq!(here.prover(false, &a, &proof, &keys), None);
        assert_eq!(here.prover(true, &a, &here.prove(true, &Simulated(NodeId(3))), &keys), None);
        assert_eq!(here.prover(true, &b, &proof, &keys), None);
        for there in [
            Transcript::new(&channel, &body(&a), &body(&said(3, 5))),
            Transcript::new(&[1; 32], &body(&a), &body(&b)),
            Transcript::new(&channel, &body(&b), &body(&a)),
        ] {
            assert_eq!(there.prover(true, &a, &proof, &keys), None);
        }
    }

    #[test]
    fn a_statement_of_another_is_no_greeting() {
        let (mine, other) = (said(1, 2), said(3, 4));
        let borrowed = Greeting { member: other.member, ..mine };
        assert_eq!(decode(&body(&borrowed)), Err(WireError::Payload));
        // The right key, and an id that is not its hash.
        let mut named = mine;
        named.member.as_mut().unwrap().identity.node = NodeId(3);
        let here = Transcript::new(&[0; 32], &body(&named), &body(&other));
        let proof = here.prove(true, &Simulated(NodeId(1)));
        assert_eq!(here.prover(true, &named, &proof, &Simulated(NodeId(9))), None);
        // A guest says nothing of itself.
        let guest = Greeting { member: None, ..mine };
        let here = Transcript::new(&[0; 32], &body(&guest), &body(&other));
        let proof = here.prove(true, &Simulated(NodeId(1)));
        assert_eq!(here.prover(true, &guest, &proof, &Simulated(NodeId(9))), Some(NodeId(1)));
    }
}
