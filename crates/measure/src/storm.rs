//! Storms: many hosts want all of one image at the same moment, over links that are too thin for
//! one server.
//!
//! A [`Plan`] says how many, how fast, the state before the start and the faults on the way;
//! [`run`] lays out the hosts, races them and gives a [`Sample`]. Each host has a process of its
//! own that reads and checks every byte: the program that calls [`run`], started again with a
//! [`Role`] in its environment, so such a program begins with [`play_role`].
//!
//! Beside vfield the same race can be run by nbdkit (one server) and by a chain of relays that
//! choose nothing and ask for nothing: what the lab allows at best. What a figure is worth, the
//! other two tell. Used by the `storm` program and by tests; nothing here knows the protocol
//! between nodes.

pub mod field;
mod memory;
pub mod meter;
pub mod nbd;
pub mod plan;
mod pulse;
pub mod race;
pub mod reader;
pub mod relay;
pub mod report;
pub mod role;

pub use plan::{Mode, Plan, System};
pub use race::run;
pub use report::Sample;
pub use role::{Programs, Role, play_role};
pub use vfield_weather::{self as weather, Event, Trouble};
