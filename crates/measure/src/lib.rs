//! Measures fields of real processes in a lab: storms of readers, and faults that befall them.
//!
//! A [`storm`] races readers on all hosts, and a [`fault`] strikes while they read.
//! [`cycles`] says what a byte costs on one machine, beside bare sockets.
//! The lab belongs to [`vfield_lab`].
//! Used by the programs `storm`, `faults`, `cycles` and `boots`, and by the end-to-end tests.

pub mod cycles;
pub mod fault;
pub mod program;
pub mod storm;
