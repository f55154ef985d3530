//! The FUSE export against the real kernel and its tools.
//!
//! Needs root, `/dev/fuse`, and for some tests loop devices and the tools that make file systems;
//! the missing tool is printed and the test passes, except where `CI=true`: there it fails.

#[path = "fuse/clients.rs"]
mod clients;
#[path = "fuse/life.rs"]
mod life;
#[path = "fuse/reads.rs"]
mod reads;
#[path = "fuse/support.rs"]
mod support;
#[path = "fuse/writes.rs"]
mod writes;
