//! Placement: which node is to hold which chunk, known to all without asking anybody.
//!
//! The chunks of an image stand on a ring in a fixed scattered order ([`Ring`]). A node's store is an
//! [`Arc`] of that ring, filled in the order of the image ([`Filled`]), so four integers say what it
//! holds ([`Holding`]), whatever the image's size. [`Map`] puts the holdings of all live nodes together:
//! who are the homes of a chunk, in which order; who has it already; where the next node should go.

pub mod chain;
pub mod coverage;
pub mod map;
pub mod ring;

pub use chain::Chain;
pub use map::{Holding, Map, mix};
pub use ring::{Arc, Filled, Ring};
