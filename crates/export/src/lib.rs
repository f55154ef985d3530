//! Serves any [`vfield_core::source::BlockSource`] as NBD or FUSE. Knows nothing of peers.

pub mod fuse;
pub mod nbd;
