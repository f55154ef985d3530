//! The FUSE export against the real kernel and its tools.
//!
//! Needs root, `/dev/fuse`, and for some tests loop devices and the tools that make file systems;
//! the missing tool is printed and the test passes, except where `CI=true`: there it fails.

mod clients;
mod life;
mod reads;
mod support;
mod writes;
