//! Serves any [`vfield_block::source::BlockSource`] as NBD, FUSE or ublk. Knows nothing of peers.

mod claim;
pub mod fuse;
pub mod nbd;
pub mod private_socket;
pub mod ublk;

pub use claim::is_claimed;
