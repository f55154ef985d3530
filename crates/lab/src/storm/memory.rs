//! Memory that this machine has, before a race is about it.
//!
//! The host of a virtual machine may take back what lies free there, and give it again page by page when it is written for
//! the first time: 3.3 s for each GB on one such machine, where the kernel itself takes 0.4 s. Cold stores are all such
//! pages, and machines of a real field do not share a host. So as much as the stores will take is written just before
//! the start, and given back to the kernel, which hands it out again before the host has asked for it.

use super::plan::{Plan, System};
use crate::LabError;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Beside stores: sockets' buffers, and what daemons themselves need.
const BYTES_PER_HOST: u64 = 24 << 20;

/// Writes as much memory as the nodes of a cold storm will, or as this machine has, and frees it.
///
/// # Errors
/// If there is no memory file to be had.
pub(super) fn touch(plan: &Plan) -> Result<(), LabError> {
    if plan.warm || plan.system != System::Vfield {
        return Ok(());
    }
    // Twice, as the kernel need not hand out first what was freed last.
    let wanted = 2 * (plan.size_bytes + BYTES_PER_HOST) * plan.readers as u64;
    let file = memfd_create("touched", MemfdFlags::CLOEXEC).map(File::from);
    let written = file.map_err(io::Error::from).and_then(|mut file| {
        // What is left to all others is enough to be no less than they had.
        io::copy(&mut io::repeat(1).take(wanted.min(available_bytes() / 4 * 3)), &mut file)
    });
    written.map(drop).map_err(LabError::at(Path::new("a memory file")))
}

/// What the kernel says could be had without swapping.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}
