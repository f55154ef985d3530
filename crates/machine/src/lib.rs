//! What this machine has for a daemon: memory, and addresses.
//!
//! Asks the kernel, and sends nothing.

pub mod memory;
pub mod network;
