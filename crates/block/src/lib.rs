//! What a block export reads and writes.
//!
//! [`source`] is read, [`device`] is written as well, and an [`extent`] says which bytes of either.
//! The crate opens no file and makes no system call.
//! Nodes and overlays implement the traits, and exports call them.

pub mod device;
pub mod extent;
pub mod source;
