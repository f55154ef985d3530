//! End to end: real processes on hosts of their own, real clients, every byte compared.
//!
//! As root each host is a network namespace; without root it is a loopback address, and the tests that need
//! more say so and are skipped.

mod bench;
mod bullies;
mod faults;
mod hostile;
mod joining;
mod kept;
mod keys;
mod liars;
mod limits;
mod loss;
mod names;
mod netboot;
mod overlay;
mod returning;
mod sandbox;
mod signatures;
mod storms;
mod stuck;
mod waiting;
mod zones;
