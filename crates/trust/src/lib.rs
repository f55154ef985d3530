//! Membership and trust: field keys, their files, handshakes, sealed records, sealed gossip,
//! signatures.
//!
//! Everything but reading keys ([`key_file`], [`identity_file`], [`signature`]) is free of I/O:
//! bytes go in and come out, and sockets are the caller's. The node uses it for its links and its
//! gossip, the command line for making and reading key files. It knows nothing of images, chunks or
//! peers.
//! docs/explanation/security-model.md argues for the scheme.

pub mod admission;
mod derive;
pub mod envelope;
pub mod field_key;
pub mod handshake;
pub mod identity_file;
pub mod key_file;
pub mod key_ring;
mod knock;
pub mod node_key;
pub mod private_file;
pub mod record;
mod replay;
pub mod signature;
mod traffic;

pub use field_key::{FieldKey, KeyId};
pub use key_ring::KeyRing;
pub use node_key::NodeKey;
