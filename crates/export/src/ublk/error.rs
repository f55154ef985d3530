//! Errors of a ublk device.
//!
//! Owns the error enum; called by the rest of `ublk` and by the command line, which adds what to do
//! about it.

use std::io;
use std::path::PathBuf;

/// Why an image could not be made a ublk device, or a device not be removed.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The driver is not in the kernel, or not loaded.
    #[error("this kernel has no ublk: /dev/ublk-control does not exist")]
    NotThere,
    /// This process may not use it.
    #[error("no permission to use ublk: /dev/ublk-control is for root")]
    NotAllowed,
    /// The driver lacks something that is needed.
    #[error("this kernel's ublk is too old: it lacks features {missing:#x}")]
    TooOld {
        /// The flags that are missing, as the kernel numbers them.
        missing: u64,
    },
    /// There is no io_uring, or it is switched off.
    #[error("ublk needs io_uring, which is not available: {0}")]
    NoRing(io::Error),
    /// Another process serves a device of this image.
    #[error("image {name:?} is already {} of process {server}", path.display())]
    InUse {
        /// The image's name.
        name: String,
        /// Its block device.
        path: PathBuf,
        /// The process id of its server.
        server: i32,
    },
    /// An image is longer than a block device can be.
    #[error("image {name:?} of {size_bytes} bytes is longer than a block device can be")]
    TooLong {
        /// The source's name.
        name: String,
        /// Its length in bytes.
        size_bytes: u64,
    },
    /// A device that a dead server left behind could not be taken over.
    #[error("taking over {} failed: {source}", path.display())]
    NotTakenOver {
        /// The block device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused something.
    #[error("ublk refused to {what}: {source}")]
    Refused {
        /// The failed step.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
