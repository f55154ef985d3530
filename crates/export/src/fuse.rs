//! The FUSE export: a directory with one regular file for each image, read-only unless its source
//! can be written.
//!
//! Owns a mount from [`mount`] to [`Mounted::unmount`]. Invariant: while a [`Mounted`] lives the
//! images can be read below its directory, and when it is gone nothing is mounted there. Called by
//! the command line; sees images only as [`BlockSource`]s, and knows nothing of nodes and peers.
//!
//! A read of present bytes is answered by the thread that took it from the kernel. A read that has
//! to wait becomes a task of the runtime and blocks no other read (`answer`). As images never
//! change, the kernel may keep every page it read; of a file that can be written (`change`) it
//! keeps them until the file is opened again, since it may be changed elsewhere.
//!
//! It does not unmount when the process is killed (the next [`mount`] on that directory
//! clears the dead mount away), and does not use FUSE passthrough: a source does not promise that
//! its file is complete.

mod answer;
mod change;
mod directory;
mod error;
mod files;
mod holes;
mod mount_point;
mod session;

pub use error::{MountError, UnmountError};
pub use session::{Mounted, Removed, Unmounted};

use answer::Waiting;
use directory::Directory;
use files::Files;
use fuser::{Config, MountOption, SessionACL};
use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;

/// How images are exported.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Where reads that wait are driven; must outlive the mount, else they fail with `EIO`.
    pub runtime: Handle,
    /// Lets other users than the one who mounts read the files. Not root needs `user_allow_other`
    /// in `/etc/fuse.conf` for it.
    pub allow_other: bool,
    /// Threads that take requests from the kernel and answer hits.
    pub threads: NonZeroUsize,
    /// Bound of the buffers of reads that wait, in bytes; more reads queue for one. At least 1 MiB.
    pub waiting_bytes_max: u32,
    /// Time in which [`Mounted::unmount`] lets clients close their files before it disconnects
    /// them.
    pub unmount_grace: Duration,
}

impl Options {
    /// The defaults, with the reason for each number.
    pub fn new(runtime: Handle) -> Self {
        // Two threads beat one by 10-20 % in sequence; four do no better on two cores.
        // docs/decisions/0023-fuse-two-threads.md has the measurement.
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            runtime,
            allow_other: false,
            threads: NonZeroUsize::new(cores.clamp(2, 4)).unwrap_or(NonZeroUsize::MIN),
            // As many longest reads as the kernel keeps under way on its own.
            waiting_bytes_max: 64 << 20,
            // Long enough for a copy's last read, short enough not to hold up a shutdown.
            unmount_grace: Duration::from_millis(500),
        }
    }

    fn config(&self, writable: bool) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(mount_point::SUBTYPE.into()),
            // Not `Subtype`, which fuser keeps from the kernel when it mounts without the helper.
            MountOption::CUSTOM(format!("subtype={}", mount_point::SUBTYPE)),
            MountOption::DefaultPermissions,
            if writable { MountOption::RW } else { MountOption::RO },
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        config.acl = if self.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.threads.get());
        config
    }
}

/// Mounts `sources` as files of `directory`, which must exist and be empty. A mount that an export
/// left there by dying is cleared away first.
///
/// Root mounts by itself; others need `fusermount3` in the path. Blocks for as long as mounting
/// takes, not for any source.
///
/// # Errors
/// See [`MountError`]; nothing is mounted then.
pub fn mount(directory: &Path, sources: Vec<Arc<dyn BlockSource>>, options: Options) -> Result<Mounted, MountError> {
    let writable = sources.iter().any(|source| source.device().is_some());
    let waiting = Arc::new(Waiting::new(options.runtime.clone(), options.waiting_bytes_max));
    let files = Arc::new(Files::of(sources)?);
    let path = mount_point::prepare(directory)?;
    OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(MountError::FuseUnavailable)?;
    let directory = Directory::new(files.clone(), waiting.clone());
    let refused = |source| MountError::Refused { path: path.clone(), source };
    let session = fuser::Session::new(directory, &path, &options.config(writable)).map_err(refused)?;
    let mounted = Mounted::start(session, path.clone(), (files, waiting), &options).map_err(refused)?;
    Ok(mounted)
}
