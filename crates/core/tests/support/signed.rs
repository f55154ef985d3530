//! Statements with simulated signatures, true ones and forged ones.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::membership::{Member, State};
use vfield_core::record::Record;
use vfield_core::signing::{Signatures, Simulated};

/// The keys of a node.
pub fn keys(node: NodeId) -> Arc<dyn Signatures> {
    Arc::new(Simulated(node))
}

/// A statement that the member signed, but for its state, which others may add.
pub fn said(identity: Identity, incarnation: u32, state: State) -> Member {
    let by = Simulated(identity.node);
    Member { state, ..Member::signed(identity, incarnation, state == State::Left, &by) }
}

/// The statement of a live member about itself.
pub fn alive(identity: Identity) -> Member {
    said(identity, 0, State::Alive)
}

/// A statement that somebody else signed, under the member's key.
pub fn forged(identity: Identity, incarnation: u32, state: State) -> Member {
    let liar = Member::signed(identity, incarnation, state == State::Left, &Simulated(NodeId(!identity.node.0)));
    Member { state, key: Simulated::key_of(identity.node), ..liar }
}

/// A record that its node signed.
pub fn signed(record: Record) -> Record {
    let by = Simulated(record.node);
    record.signed(&by)
}
