//! End to end: real processes on hosts of their own, real clients, every byte compared.
//!
//! As root each host is a network namespace; without root it is a loopback address, and the tests
//! that need more say so and are skipped.

mod bench;
mod buckets;
mod bullies;
mod compression;
mod dashboard;
mod day;
mod disk;
mod doctor;
mod draining;
mod explain;
mod faults;
mod following;
mod hostile;
mod identities;
mod images;
mod joining;
mod kept;
mod keys;
mod learned;
mod leaving;
mod liars;
mod limits;
mod link_memory;
mod local;
mod loss;
mod moves;
mod names;
mod netboot;
mod object_stores;
mod objects;
mod overlay;
mod pacing;
mod packed;
mod page;
mod reach;
mod returning;
mod rolling;
mod rubbish;
mod sandbox;
mod signatures;
mod slices;
mod starting;
mod storms;
mod stuck;
mod tags;
mod telling;
mod trace;
mod units;
mod upgrades;
mod versions;
mod viewer;
mod waiting;
mod zones;
