//! What a daemon shows over HTTP: a page for people, metrics for Prometheus, health for those that
//! start and stop daemons.
//!
//! Owns the paths ([`site`]), the names of the metrics ([`metrics`]) and the page with its object
//! ([`field`]). Nothing can be changed through it, and it makes no request to anybody. What peers
//! say, such as names, is text in all of it, never markup. Called by the daemon, which gives it
//! [`view::View`]s.

pub mod field;
pub mod metrics;
pub mod site;
pub mod view;
