//! Memory that this machine has, before a race is about it.
//!
//! The host of a virtual machine may take back what lies free there, and give it again page by page
//! when it is written for the first time: 3.3 s for each GB on one such machine, where the kernel
//! itself takes 0.4 s. Cold stores are all such pages, and machines of a real field do not share a
//! host. So as much as the stores will take is written before the start, and given back to the
//! kernel piece by piece as stores and buffers grow, which takes it again before the host asks for
//! it.

use super::meter::meminfo_bytes;
use super::plan::{Plan, System};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use vfield_lab::LabError;

/// Beside stores: sockets' buffers, and what daemons themselves need.
const BYTES_PER_HOST: u64 = 24 << 20;
/// So much more is given back than nodes have taken: what they take until it is looked at again,
/// and what others take.
const AHEAD_BYTES: u64 = 256 << 20;
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Memory that is held for the nodes of a cold storm; what they have not taken by then is given
/// back with this value.
#[derive(Debug)]
pub(super) struct Memory(
    /// What ends the thread when it is closed, as nobody ever sends, and the thread; none if
    /// nothing is held.
    Option<(Sender<()>, JoinHandle<()>)>,
);

impl Memory {
    /// Writes as much as the nodes will, or three quarters of what this machine has; from now on it
    /// follows what they take.
    ///
    /// # Errors
    /// If there is no memory file to be had.
    pub(super) fn hold(plan: &Plan) -> Result<Self, LabError> {
        if plan.warm || plan.system != System::Vfield {
            return Ok(Self(None));
        }
        let wanted = (plan.size_bytes + BYTES_PER_HOST) * plan.readers as u64 + AHEAD_BYTES;
        let bytes = wanted.min(meminfo_bytes("MemAvailable") / 4 * 3);
        let write = |mut file: File| io::copy(&mut io::repeat(1).take(bytes), &mut file).map(|_| file);
        let file = memfd_create("held", MemfdFlags::CLOEXEC).map_err(io::Error::from).map(File::from).and_then(write);
        let file = file.map_err(LabError::at(Path::new("a memory file")))?;
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let (others, mut given) = (in_use_bytes().saturating_sub(bytes), 0);
            while given < bytes && ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let taken = (in_use_bytes() + given).saturating_sub(bytes + others);
                let due = (taken + AHEAD_BYTES).min(bytes);
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                if due > given && fallocate(&file, mode, given, due - given).is_ok() {
                    given = due;
                }
            }
        });
        Ok(Self(Some((end, thread))))
    }
}

/// Bytes of all memory files, and of what processes have for themselves. The held file is one of
/// them: it shrinks as stores and buffers grow.
fn in_use_bytes() -> u64 {
    meminfo_bytes("Shmem") + meminfo_bytes("AnonPages")
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            // One that panicked has said so, and its memory is free.
            let _ = thread.join();
        }
    }
}
