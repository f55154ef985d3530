//! The overlay against a vector of bytes with the same writes.

mod folder;
mod model;
mod saved;
mod support;
mod waiting;
