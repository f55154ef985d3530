//! Placement: which node is to hold which chunk, known to all without asking anybody.
//!
//! The chunks of an image stand on a ring in a fixed scattered order ([`Ring`]). A node's store is an
//! [`Arc`] of that ring, filled in the order of the image ([`Filled`]), so four integers say what it
//! holds ([`Holding`]), whatever the image's size. [`Map`] puts the holdings of all live nodes of a zone together:
//! who are the homes of a chunk, in which order; who has it already; where the next node should go. [`Crowd`] is
//! the order in which those who read in step pass a chunk on; [`Gateways`] are those through whom it comes into a zone,
//! and [`Zones`] the way there.

mod counts;
pub mod coverage;
pub mod crowd;
pub mod gateways;
mod loss;
pub mod map;
pub mod ring;
pub mod zones;

pub use crowd::{Crowd, Place};
pub use gateways::Gateways;
pub use map::{Holding, Map, mix};
pub use ring::{Arc, Filled, Ring};
pub use zones::Zones;
