//! The overlay against a vector of bytes that is written the same way.

mod folder;
mod model;
mod saved;
mod support;
mod waiting;
