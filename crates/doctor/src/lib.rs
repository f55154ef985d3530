//! `vfield doctor`: what on this machine slows a node down, how much, and what to do.
//!
//! [`read`] gathers [`facts`] from `/proc`, `/sys`, the kernel's ethtool call, files of firewalls
//! and a running daemon. [`checks`] are pure functions from facts to [`finding`]s. [`fix`] writes
//! what a finding says is safe, and [`bundle`] puts all into one tar file. It needs neither root
//! nor a daemon, and says what it could not look at.

pub mod bundle;
pub mod checks;
pub mod facts;
pub mod finding;
pub mod fix;
pub mod read;
pub mod report;
