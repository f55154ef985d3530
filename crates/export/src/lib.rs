//! Serves any [`vfield_core::source::BlockSource`] as NBD, FUSE or ublk. Knows nothing of peers.

pub mod fuse;
pub mod nbd;
pub mod private_socket;
pub mod ublk;
