//! What a block export reads and writes.
//!
//! [`source`] is read, [`device`] is written as well, and an [`extent`] says which bytes of either.
//! [`gather`] makes sets and maps of little code.
//! An [`object`] is what a node reads from a store on the network.
//! The crate opens no file and makes no system call.
//! Nodes and overlays implement the traits, and exports call them.

pub mod device;
pub mod extent;
pub mod gather;
pub mod object;
pub mod source;
