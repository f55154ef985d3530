//! The keys of a malicious member: its own, and some that it makes up.
//!
//! [`Simulated`] would sign for anybody. All other code of malicious members has this type only. It
//! signs for its member, and for members that do not exist. Invariant: nothing that it signs is
//! genuine for another machine of the field.

use std::net::SocketAddr;
use vfield_core::greeting::Transcript;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::membership::{Member, State};
use vfield_core::record::Record;
use vfield_core::signing::{Signature, Simulated};

use crate::machine::MACHINES_MAX;

/// Most members that one malicious member makes up: their numbers are the last ones of a field, and
/// simulated fields are far smaller.
pub const GHOSTS_MAX: u64 = 1 << 16;

/// The keys of one malicious member.
#[derive(Debug)]
pub struct Own(Simulated);

impl Own {
    /// The key of a machine, and all that it makes up from now on.
    pub const fn of(me: &Identity) -> Self {
        Self(Simulated(me.node))
    }

    /// The id of its member, which is honest about that alone.
    pub const fn id(&self) -> NodeId {
        self.0.0
    }

    /// The id of a member that does not exist. Its low bits are no number of a machine. With `low`
    /// the id is below those of all machines.
    pub fn ghost(&self, number: u64, low: bool) -> NodeId {
        assert!(number < GHOSTS_MAX, "{number} are too many");
        let of_mine = if low { number } else { (self.id().0 >> 24).wrapping_mul(0x9E37_79B9).wrapping_add(number) };
        NodeId(of_mine << 24 | (MACHINES_MAX as u64 - 1 - number))
    }

    /// The statement of a member that does not exist: its key is real, since keys are free.
    pub fn invented(&self, ghost: Identity) -> Member {
        Member::signed(ghost, 0, false, &Self::key_of_ghost(ghost.node))
    }

    /// A record, signed by its node if that does not exist or is this one, else by this one.
    pub fn record(&self, record: Record) -> Record {
        let key = if is_ghost(record.node) { Self::key_of_ghost(record.node) } else { self.0 };
        record.signed(&key)
    }

    /// A statement about another member, under that one's key and signed with this one's.
    pub fn forged(&self, identity: Identity, incarnation: u32, state: State) -> Member {
        let mine = Member::signed(identity, incarnation, state == State::Left, &self.0);
        Member { state, key: Simulated::key_of(identity.node), ..mine }
    }

    /// Its proof that it is itself, on this connection.
    pub fn prove(&self, transcript: &Transcript, dialled: bool) -> Signature {
        transcript.prove(dialled, &self.0)
    }

    fn key_of_ghost(ghost: NodeId) -> Simulated {
        assert!(is_ghost(ghost), "{ghost} exists");
        Simulated(ghost)
    }
}

/// True for the id of a member that a malicious one made up.
pub const fn is_ghost(node: NodeId) -> bool {
    crate::machine::number_of(node) >= MACHINES_MAX - GHOSTS_MAX as usize
}

/// An address at which no machine of the field is.
pub fn abroad(number: u64) -> SocketAddr {
    // Addresses for benchmarks (RFC 2544), 131 072 of them.
    SocketAddr::from((std::net::Ipv4Addr::from(0xC612_0000 | number as u32 & 0x1_FFFF), 4000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::identity::Zone;

    fn identity(node: u64) -> Identity {
        Identity { addr: abroad(1), node: NodeId(node), generation: 7, zone: Zone::default() }
    }

    #[test]
    fn what_it_signs_for_others_is_not_genuine() {
        let own = Own::of(&identity(3 << 24 | 1));
        let other = identity(5 << 48 | 2);
        for state in [State::Alive, State::Suspect, State::Down, State::Left] {
            assert!(!own.forged(other, 1, state).is_genuine(&own.0), "{state:?}");
            assert!(own.forged(identity(own.id().0), 1, state).is_genuine(&own.0), "{state:?}");
        }
        for (number, low) in [(0, true), (39, true), (0, false), (GHOSTS_MAX - 1, false)] {
            let ghost = own.ghost(number, low);
            assert!(is_ghost(ghost) && own.invented(identity(ghost.0)).is_genuine(&own.0));
        }
        assert!(!is_ghost(other.node) && own.ghost(39, true) < other.node);
    }

    #[test]
    #[should_panic(expected = "exists")]
    fn it_invents_no_machine() {
        let own = Own::of(&identity(3 << 24 | 1));
        let _ = own.invented(identity(5 << 24 | 2));
    }
}
