//! The ublk export: each image as a block device of the kernel, without NBD, FUSE or loop in
//! between.
//!
//! Owns a block device from [`export`] to [`Device::stop`]. The kernel's ublk driver hands requests
//! out over io_uring and takes their bytes by pwrite on a character device. Called by the command
//! line; sees images only as [`BlockSource`]s, and knows nothing of nodes and peers.
//!
//! From the kernel and back: `abi` has its numbers and layouts, `ring` speaks to it, `control`
//! makes and removes devices in the order that `device` knows; `queue` takes a request, asks the
//! source, and `gather` puts the bytes into the request's pages straight from those of the source's
//! file: one copy, which is the fewest that memory held by this process can have. The driver's own
//! "zero copy" would make the same one.
//!
//! A read of present bytes is answered by the thread that took it. A read that has to wait becomes
//! a task of the runtime. A source that can be written makes a device that can be: `change` makes
//! its changes. If this process dies, the device stays and its requests wait; the next
//! [`export`] of the same image takes it over, and nobody sees an error. Only a device whose
//! changes died with the process fails with it.

mod abi;
mod change;
mod control;
mod device;
mod error;
mod gather;
mod queue;
mod ring;

pub use device::Device;
pub use error::UblkError;

use std::num::NonZeroU16;
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;

/// The unit of a device's length, and the smallest read.
const SECTOR_BYTES: u64 = 512;
/// Longest request: what the kernel's read-ahead and copies of files ask for at most by default is
/// 1280 KiB, and a longer one would only leave the cache of a core between the source and the
/// reader.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Longest discard: 16384 granules, which take the thread of a queue a few milliseconds.
const DISCARD_BYTES_MAX: u32 = 64 << 20;

/// How an image is exported.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Where reads that wait are driven; must outlive the device, else they fail.
    pub runtime: Handle,
    /// Queues, each with a thread: the kernel takes answers only from the thread that asked for the
    /// request. At most as many as there are processors.
    pub queues: NonZeroU16,
    /// Requests under way in each queue, at most 4096.
    pub depth: NonZeroU16,
}

impl Options {
    /// The defaults, with the reason for each number.
    pub fn new(runtime: Handle) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            runtime,
            // A queue answers about 10^5 requests a second: what more than four would bring has
            // nobody measured here.
            queues: u16::try_from(cores.min(4)).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN),
            // What the kernel's own drivers have: enough that readers queue before the device, not
            // in it.
            depth: NonZeroU16::MIN.saturating_add(127),
        }
    }
}

/// Makes `source` a block device, read-only unless it can be written, or takes over the one that a
/// dead process left for it.
///
/// Blocks until the kernel has looked for partitions on it, which reads through `options.runtime`
/// if need be: in async code, call it from `spawn_blocking`.
///
/// # Errors
/// See [`UblkError`]; no new device is left then, and a device to be taken over waits for the next
/// attempt.
pub fn export(source: Arc<dyn BlockSource>, options: &Options) -> Result<Device, UblkError> {
    Device::open(source, options)
}

/// Whether [`export`] can be expected to work: the kernel has the driver, and this process may use
/// it.
///
/// # Errors
/// As [`export`], as far as that can be found out without an image.
pub fn check() -> Result<(), UblkError> {
    control::ControlDevice::open().map(drop)
}
