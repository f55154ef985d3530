//! A mount in use: the thread that serves it, and its end.
//!
//! Owns the session's thread and the order of unmounting: ask, wait a little, cut off, detach.
//! Invariant: unmounting ends within the grace period and [`STOP_MAX`], whatever the readers do.
//! Made by [`super::mount`]; the session itself is `fuser`'s.

use super::Options;
use super::answer::Waiting;
use super::directory::Directory;
use super::error::{MountError, UnmountError};
use super::files::Files;
use super::mount_point;
use fuser::INodeNo;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use vfield_block::source::BlockSource;

/// How long the session may take to stop after it was unmounted. It takes microseconds unless the
/// mount lives on in another namespace, where it stops with the process at the latest.
const STOP_MAX: Duration = Duration::from_secs(1);

/// How often unmounting is tried again while files are open: the kernel does not say when they are
/// closed.
const RETRY: Duration = Duration::from_millis(10);

/// A mount without its process: the kernel's end of it, and a table of what the kernel knows.
#[derive(Debug)]
pub struct Kept {
    /// The descriptor of `/dev/fuse`. While somebody has it, requests wait.
    pub connection: OwnedFd,
    /// A memory file.
    pub table: OwnedFd,
}

/// Images that are mounted. Dropping it unmounts without grace.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    /// What the mount table called it; `None` if it was not found there.
    device: Option<String>,
    /// The kernel's end of it, for the next process; `None` if that could not go on with it.
    connection: Option<OwnedFd>,
    files: Arc<Files>,
    notifier: fuser::Notifier,
    waiting: Arc<Waiting>,
    ended: Arc<Ended>,
    grace: Duration,
}

/// A file that was taken away, and that the kernel may still know.
#[derive(Debug)]
#[must_use = "the kernel has to be told"]
pub struct Removed {
    notifier: fuser::Notifier,
    inode: INodeNo,
    names: Vec<String>,
}

impl Removed {
    /// Has the kernel forget it. Blocks for as long as reads of it are under way.
    pub fn tell(self) {
        // The kernel may know none of it, which is an error, and as good.
        for name in &self.names {
            let _ = self.notifier.inval_entry(INodeNo::ROOT, OsStr::new(name));
        }
        let _ = self.notifier.inval_inode(self.inode, 0, 0);
    }
}

/// How a mount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody had anything open, or somebody had unmounted before.
    Idle,
    /// Readers were cut off: they see errors from now on.
    Forced,
    /// It is gone from here, but somebody still holds it: an open file that could not be cut off,
    /// or another mount namespace. Reads there fail until they let go of it, at the latest when
    /// this process ends.
    Held,
}

impl Mounted {
    /// Serves a mounted session from threads of its own.
    pub(super) fn start(
        session: fuser::Session<Directory>,
        path: PathBuf,
        (files, waiting): (Arc<Files>, Arc<Waiting>),
        connection: Option<OwnedFd>,
        options: &Options,
    ) -> io::Result<Self> {
        let device = mount_point::top(&path).map(|mount| mount.device);
        let notifier = session.notifier();
        let ended = Arc::new(Ended::default());
        let guard = EndGuard(ended.clone());
        std::thread::Builder::new().name("fuse".into()).spawn(move || {
            let _guard = guard;
            if let Err(error) = session.run() {
                tracing::error!(%error, "the FUSE session failed");
            }
        })?;
        Ok(Self { path, device, connection, files, notifier, waiting, ended, grace: options.unmount_grace })
    }

    /// The mount point, as a canonical path.
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// The files with which the next process goes on with the mount, by [`super::take_over()`].
    /// `None` if no process can: the kernel is older than Linux 6.9, or a file can be written.
    pub fn kept(&self) -> Option<Kept> {
        let connection = self.connection.as_ref()?.try_clone().ok()?;
        Some(Kept { connection, table: self.files.kept()? })
    }

    /// One more file, for `source`.
    ///
    /// # Errors
    /// If it cannot be a file, or another one has one of its names.
    pub fn add(&self, source: Arc<dyn BlockSource>) -> Result<(), MountError> {
        self.files.add(source)
    }

    /// Has a symbolic link of this name lead to the file `to` from now on. A file that has the name
    /// itself goes first.
    pub fn lead(&self, name: &str, to: &str) {
        self.files.lead(name, to);
    }

    /// Has files opened no more (`ESHUTDOWN`), or again. Those that are open stay so.
    pub fn shut(&self, is_shut: bool) {
        self.files.shut(is_shut);
    }

    /// How often the file of this name is open.
    pub fn opens(&self, name: &str) -> usize {
        self.files.opens(name)
    }

    /// Removes the file of this name under all its names: its readers get errors for bytes that the
    /// kernel has not read. The kernel has to be told afterwards. `None` if there is none.
    pub fn remove(&self, name: &str) -> Option<Removed> {
        let (inode, names) = self.files.remove(name)?;
        Some(Removed { notifier: self.notifier.clone(), inode, names })
    }

    /// Waits until the mount has ended, also by somebody else's `umount`.
    pub async fn ended(&self) {
        self.ended.wait().await;
    }

    /// Unmounts. Clients get [`Options::unmount_grace`] to close their files; then their reads
    /// fail. Blocks for that time and a second at most; in async code, call it from
    /// `spawn_blocking`.
    ///
    /// # Errors
    /// If the system refuses. Reads fail all the same, and the mount ends with the process.
    pub fn unmount(mut self) -> Result<Unmounted, UnmountError> {
        self.end(self.grace)
    }

    fn end(&mut self, grace: Duration) -> Result<Unmounted, UnmountError> {
        let end = if self.ended.is_set() { Ok(Unmounted::Idle) } else { self.take_away(grace) };
        self.waiting.close();
        let end = end.map_err(|source| UnmountError { path: self.path.clone(), source })?;
        if self.ended.wait_for(STOP_MAX) {
            return Ok(end);
        }
        let aborted = self.device.as_deref().is_some_and(|device| mount_point::abort_connection(device).is_ok());
        let forced = aborted && self.ended.wait_for(STOP_MAX);
        Ok(if forced { Unmounted::Forced } else { Unmounted::Held })
    }

    /// Takes the mount out of the tree: when it is idle, or by force when `grace` is over.
    fn take_away(&self, grace: Duration) -> io::Result<Unmounted> {
        let deadline = Instant::now() + grace;
        loop {
            if !self.is_on_top() {
                // Unmounted by somebody else, or covered by another mount, which is not ours to
                // remove.
                return Ok(Unmounted::Idle);
            }
            match mount_point::unmount(&self.path) {
                Ok(()) => return Ok(Unmounted::Idle),
                Err(error) if error.kind() != io::ErrorKind::ResourceBusy => return Err(error),
                Err(_) if Instant::now() >= deadline => break,
                Err(_) => std::thread::sleep(RETRY),
            }
        }
        tracing::debug!(path = %self.path.display(), "files are still open: cutting off their readers");
        mount_point::abort(&self.path)?;
        Ok(Unmounted::Forced)
    }

    fn is_on_top(&self) -> bool {
        self.device.is_none() || mount_point::top(&self.path).map(|mount| mount.device) == self.device
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.waiting.is_closed() {
            return;
        }
        if let Err(error) = self.end(Duration::ZERO) {
            tracing::error!(%error, "the mount stays until the process ends");
        }
    }
}

/// Whether the session has ended, for threads and tasks that wait for it.
#[derive(Debug, Default)]
struct Ended {
    set: Mutex<bool>,
    for_threads: Condvar,
    for_tasks: Notify,
}

impl Ended {
    fn set(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.for_threads.notify_all();
        self.for_tasks.notify_waiters();
    }

    fn is_set(&self) -> bool {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it ended within `time`.
    fn wait_for(&self, time: Duration) -> bool {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.for_threads.wait_timeout_while(set, time, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    async fn wait(&self) {
        let notified = self.for_tasks.notified();
        // Made before the look, so that an end between the two is not missed.
        if !self.is_set() {
            notified.await;
        }
    }
}

/// Says that the session has ended, also if its thread panicked.
struct EndGuard(Arc<Ended>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}
