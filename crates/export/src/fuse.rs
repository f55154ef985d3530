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
//! It does not unmount when the process is killed. If a keeper has the files of [`Mounted::kept`],
//! readers wait, and the next process goes on with [`take_over()`]. Otherwise the next [`mount`] on
//! that directory clears the dead mount away. It does not use FUSE passthrough: a source does not
//! promise that its file is complete.

mod answer;
mod change;
mod directory;
mod error;
mod files;
mod holes;
mod mount_point;
mod session;
mod table;
mod take_over;

pub use error::{MountError, TakeOverError, UnmountError};
pub use session::{Kept, Mounted, Removed, Unmounted};

use answer::Waiting;
use directory::Directory;
use files::Files;
use fuser::{Config, MountOption, SessionACL};
use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use table::{Known, Record};
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
    let files_of = Directory::new(files.clone(), waiting.clone());
    let resends = files_of.resends();
    let refused = |source| MountError::Refused { path: path.clone(), source };
    let session = fuser::Session::new(files_of, &path, &options.config(writable)).map_err(refused)?;
    // What writers have written lies in this process, and ends with it.
    let mount = mount_point::top(&path).filter(|_| !writable && resends.load(Ordering::Relaxed));
    let connection = mount.and_then(|mount| {
        let asked = std::path::absolute(directory).ok()?;
        files.keep(Record::new().ok()?, Known { asked, path: path.clone(), device: mount.device, ..Known::default() });
        session.as_fd().try_clone_to_owned().ok()
    });
    let mounted = Mounted::start(session, path.clone(), (files, waiting), connection, &options).map_err(refused)?;
    Ok(mounted)
}

/// Goes on with the mount on `directory` that an earlier process has left. Its readers have waited,
/// and notice nothing else.
///
/// # Errors
/// [`TakeOverError`] if it is no such mount. It then ends with `kept`; [`mount`] clears it away.
pub fn take_over(
    directory: &Path,
    sources: Vec<Arc<dyn BlockSource>>,
    kept: Kept,
    options: Options,
) -> Result<Mounted, TakeOverError> {
    let Kept { connection, table } = kept;
    let (record, known) = Record::found(table).ok_or(TakeOverError::Unknown)?;
    let path = known.path.clone();
    let there = mount_point::top(&path).is_some_and(|mount| mount.is_ours() && mount.device == known.device);
    if !there || std::path::absolute(directory).ok().as_ref() != Some(&known.asked) {
        return Err(TakeOverError::Elsewhere(path));
    }
    let waiting = Arc::new(Waiting::new(options.runtime.clone(), options.waiting_bytes_max));
    let files = Arc::new(Files::known(sources, record, known).map_err(TakeOverError::Files)?);
    let refused = |source| TakeOverError::Refused { path: path.clone(), source };
    let directory = Directory::new(files.clone(), waiting.clone());
    let session = take_over::session(directory, &connection, &options.config(false)).map_err(refused)?;
    take_over::ask_again(connection.as_fd()).map_err(refused)?;
    Mounted::start(session, path.clone(), (files, waiting), Some(connection), &options).map_err(refused)
}
