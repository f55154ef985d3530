//! Placement: which node is to hold which chunk. Every node computes it alone.
//!
//! The chunks of an image are on a ring in a fixed scattered order ([`Ring`]). A node's store is an
//! [`Arc`] of that ring, filled in the order of the image ([`Filled`]). So four integers say what
//! it holds ([`Holding`]), whatever the image's size.
//!
//! - [`Map`] joins the holdings of all live nodes of a zone: the homes of a chunk and their order,
//!   the holders, the best place for the next node.
//! - [`Chain`] is the order in which lockstep readers serve each other.
//! - [`Gateways`] are the nodes through which chunks enter a zone, and [`Zones`] the way there.

pub mod chain;
mod counts;
pub mod coverage;
pub mod gateways;
mod loss;
pub mod map;
pub mod ring;
pub mod zones;

pub use chain::{Chain, Place};
pub use gateways::Gateways;
pub use map::{Holding, Map, mix};
pub use ring::{Arc, Filled, Ring};
pub use zones::Zones;
