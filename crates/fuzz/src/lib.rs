//! Input from outside, as targets of a fuzzer.
//!
//! A target is a function of bytes: it takes them as a stranger's input, or builds such input from
//! them, feeds it to the code under test, and panics if a promise is broken. That is more than not
//! to panic: parsed input is encoded and parsed again, refused input leaves no trace, and memory
//! does not grow with claimed lengths. Each target says its promises on top of its file.
//!
//! `tests/replay.rs` gives each target its seeds and its corpus (`corpus/NAME`) in every test run;
//! `scripts/fuzz` looks for new inputs for hours. A target has no state that outlives a call.

pub mod bucket;
pub mod command_line;
pub mod control;
pub mod field;
pub mod gossip;
pub mod handshake;
pub mod header_proof;
pub mod image;
pub mod journal;
pub mod key_file;
pub mod nbd_negotiation;
pub mod nbd_requests;
pub mod nbd_server;
pub mod netlink;
pub mod object;
pub mod oci_layout;
pub mod pages;
pub mod saved_overlay;
pub mod sealed_gossip;
pub mod settings;
pub mod signature;
pub mod source;
pub mod tag;
pub mod tar;
pub mod tree_file;
pub mod values;
pub mod wire;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What one input may allocate, all in all: a few chunks of 1 MiB and their pages, far below the 4
/// GiB and more that a frame can claim.
const MEMORY_MAX: usize = 32 << 20;

/// One kind of bytes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder below `corpus`.
    pub name: &'static str,
    /// Panics if a promise is broken.
    run: fn(&[u8]),
    /// What our own encoders make: where a fuzzer begins.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// Gives it one input.
    ///
    /// # Panics
    /// If a promise is broken, that of bounded memory among them.
    pub fn run(&self, bytes: &[u8]) {
        let region = Region::new(ALLOCATOR);
        (self.run)(bytes);
        let allocated = region.change().bytes_allocated;
        assert!(allocated <= MEMORY_MAX, "{}: {} bytes made it allocate {allocated}", self.name, bytes.len());
    }
}

/// All targets of the fuzzer.
pub const TARGETS: [Target; 26] = [
    Target { name: "bucket", run: bucket::target, seeds: bucket::seeds },
    Target { name: "command_line", run: command_line::target, seeds: command_line::seeds },
    Target { name: "control", run: control::target, seeds: control::seeds },
    Target { name: "field", run: field::target, seeds: field::seeds },
    Target { name: "gossip", run: gossip::target, seeds: gossip::seeds },
    Target { name: "handshake", run: handshake::target, seeds: handshake::seeds },
    Target { name: "header_proof", run: header_proof::target, seeds: header_proof::seeds },
    Target { name: "image", run: image::target, seeds: image::seeds },
    Target { name: "journal", run: journal::target, seeds: journal::seeds },
    Target { name: "key_file", run: key_file::target, seeds: key_file::seeds },
    Target { name: "nbd_negotiation", run: nbd_negotiation::target, seeds: nbd_negotiation::seeds },
    Target { name: "nbd_requests", run: nbd_requests::target, seeds: nbd_requests::seeds },
    Target { name: "nbd_server", run: nbd_server::target, seeds: nbd_server::seeds },
    Target { name: "netlink", run: netlink::target, seeds: netlink::seeds },
    Target { name: "object", run: object::target, seeds: object::seeds },
    Target { name: "oci_layout", run: oci_layout::target, seeds: oci_layout::seeds },
    Target { name: "pages", run: pages::target, seeds: pages::seeds },
    Target { name: "saved_overlay", run: saved_overlay::target, seeds: saved_overlay::seeds },
    Target { name: "sealed_gossip", run: sealed_gossip::target, seeds: sealed_gossip::seeds },
    Target { name: "settings", run: settings::target, seeds: settings::seeds },
    Target { name: "signature", run: signature::target, seeds: signature::seeds },
    Target { name: "tag", run: tag::target, seeds: tag::seeds },
    Target { name: "tar", run: tar::target, seeds: tar::seeds },
    Target { name: "tree_file", run: tree_file::target, seeds: tree_file::seeds },
    Target { name: "values", run: values::target, seeds: values::seeds },
    Target { name: "wire", run: wire::target, seeds: wire::seeds },
];

/// The target of this name. For constants too: a program that names its target so has nothing of
/// the others in it.
pub const fn named(name: &str) -> Option<Target> {
    let mut at = 0;
    while at < TARGETS.len() {
        if same(TARGETS[at].name.as_bytes(), name.as_bytes()) {
            return Some(TARGETS[at]);
        }
        at += 1;
    }
    None
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}
