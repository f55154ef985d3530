//! The V-FIELD protocol as pure state machines: no sockets, clocks, threads or randomness of its
//! own.
//!
//! Start with [`node`], the machine that the daemon and the simulator drive, and [`placement`], the
//! idea that makes it fast. Everything else trusts [`hash_tree`] and [`image`].

pub mod admission;
pub mod bits;
pub mod bucket;
pub mod budget;
pub mod chunk;
pub mod config;
pub mod directory;
pub mod doubling;
pub mod fetch;
pub mod fill;
pub mod follow;
pub mod greeting;
pub mod hash_tree;
pub mod header_proof;
pub mod hex;
pub mod identity;
pub mod image;
pub mod inquiry;
pub mod inventory;
pub mod lately;
pub mod latest;
pub mod membership;
pub mod misdeed;
pub mod names;
pub mod node;
pub mod numbered;
pub mod outbid;
pub mod pace;
pub mod peers;
pub mod placement;
pub mod plan;
pub mod prefetch;
pub mod pursuit;
pub mod reach;
pub mod read_ahead;
pub mod record;
pub mod rubbish;
pub mod send_queue;
pub mod signing;
pub mod slice;
pub mod sliced;
pub mod slicing;
pub mod slow_reads;
pub mod slowest;
pub mod small_list;
pub mod snapshot;
pub mod speed;
pub mod standing;
pub mod statement;
pub mod tag;
pub mod tags;
pub mod time;
pub mod tuning;
pub mod verified;
pub mod window;
pub mod wire;
