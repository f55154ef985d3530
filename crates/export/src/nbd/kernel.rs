//! The kernel's own NBD client, attached to this process: an image as a block device without a program in between.
//!
//! Owns a device, `/dev/nbd0` for example, from [`attach`] to [`KernelDevice::stop`], and the connections over which this
//! process serves it: pairs of sockets, one end of each given to the kernel. As with ublk, a device outlives its process:
//! what is asked of it waits, and the next [`attach`] of the same image gives it new connections. The kernel
//! keeps for that whose device it is. Called by the command line, where there is no ublk.

pub mod message;
mod netlink;

use super::codec::{flag, magic};
use super::connection::{self, Shared};
use super::server::shared;
use super::socket::Socket;
use netlink::{Netlink, Wanted};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use vfield_core::source::BlockSource;

/// Connections of a device, each a queue of the kernel's: as many as answer in parallel on most machines.
const CONNECTIONS_MAX: usize = 4;
/// The unit of a device's length.
const BLOCK_BYTES: u64 = 512;
/// After so long without an answer the kernel breaks a connection and asks again over another one. Only so does it ask again
/// what was under way when a process died, so it is how long such a request waits; a live process that is just waiting itself,
/// for a chunk that nobody has, is given a new connection for each that breaks.
const TIMEOUT_S: u64 = 5;
/// How long a device waits for the next process: ten years, which the kernel can count in ticks.
const DEAD_S: u64 = 10 * 365 * 24 * 3600;
/// How long the kernel may take to notice that connections broke; it takes milliseconds.
const NOTICE_MAX: Duration = Duration::from_secs(10);
/// Time for a connection that the kernel did not take to end.
const TAKEN_AFTER: Duration = Duration::from_millis(20);
/// For those who have a device mounted, to unmount it.
const GRACE: Duration = Duration::from_millis(500);
/// How often something is looked at that nobody tells.
const RETRY: Duration = Duration::from_millis(10);

/// Why an image could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The driver is not in the kernel, or not loaded.
    #[error("this kernel has no NBD client: the module nbd is not loaded")]
    NotThere,
    /// This process may not use it.
    #[error("no permission to attach NBD devices, which is for root")]
    NotAllowed,
    /// Another process serves a device of this image.
    #[error("image {name:?} is already {} of another process", path.display())]
    InUse {
        /// The image's name.
        name: String,
        /// Its block device.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("the kernel's NBD client refused to {what}: {source}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// An image as a block device of the kernel's NBD client. One that is not stopped stays when the process ends, and waits for the
/// next.
#[derive(Debug)]
pub struct KernelDevice {
    index: u32,
    image: String,
    taken_over: bool,
    ending: watch::Sender<bool>,
    /// Replaces connections that break.
    keeper: JoinHandle<Connections>,
    /// Says to others that the device has a server.
    _lock: OwnedFd,
}

/// Whether [`attach`] can be expected to work.
///
/// # Errors
/// As [`attach`], as far as that can be found out without an image.
pub fn check() -> Result<(), AttachError> {
    if !rustix::process::geteuid().is_root() {
        return Err(AttachError::NotAllowed);
    }
    Netlink::open().map(drop).map_err(refused("be spoken to"))
}

/// Makes `source` a block device, or takes over the one that a dead process left for it. Has to be called within a runtime,
/// which serves it.
///
/// # Errors
/// See [`AttachError`].
pub async fn attach(source: Arc<dyn BlockSource>) -> Result<KernelDevice, AttachError> {
    let (image, backend) = (source.name().to_owned(), backend(&*source));
    let volatile = source.device().is_some_and(|device| device.is_volatile());
    let shared = Arc::new(shared(vec![source]));
    let mut connections = Connections { shared, tasks: JoinSet::new(), draining: watch::Sender::new(false) };
    if let Some(index) = left_behind(&backend) {
        let path = block_path(index);
        let lock = lock(index).map_err(|error| match error {
            Errno::WOULDBLOCK => AttachError::InUse { name: image.clone(), path },
            other => refused("lock its device")(other.into()),
        })?;
        connections.renew(index, &backend).await?;
        return Ok(connections.keep(index, image, backend, true, lock));
    }
    let (sockets, size_bytes, flags) = connections.open(count()).await?;
    let owner = backend.clone();
    let made = blocking(move || {
        let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        let dead_s = (!volatile).then_some(DEAD_S);
        let wanted =
            Wanted { size_bytes, block_bytes: BLOCK_BYTES, flags, timeout_s: TIMEOUT_S, dead_s, backend: &owner };
        Netlink::open()?.connect(&wanted, &fds)
    });
    let index = made.await.map_err(refused("make a device"))?;
    let lock = lock(index).map_err(|error| refused("lock a device")(error.into()))?;
    Ok(connections.keep(index, image, backend, false, lock))
}

/// The connections of a device, as far as it has them.
#[derive(Debug)]
struct Connections {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    draining: watch::Sender<bool>,
}

impl Connections {
    /// Serves so many new connections; returns their other ends, and what a client is told of the export.
    async fn open(&mut self, count: usize) -> Result<(Vec<OwnedFd>, u64, u16), AttachError> {
        let mut ends = Vec::new();
        let (mut size_bytes, mut flags) = (0, 0);
        for _ in 0..count {
            let (ours, theirs) = UnixStream::pair().map_err(refused("get a connection"))?;
            let (shared, mut draining) = (self.shared.clone(), self.draining.subscribe());
            self.tasks.spawn(async move {
                let drained = async { drop(draining.wait_for(|draining| *draining).await) };
                if let Err(end) = connection::serve(Socket::unix(ours), &shared, drained).await {
                    tracing::debug!(%end, "a connection of the kernel's ended");
                }
            });
            let mut theirs = theirs;
            (size_bytes, flags) = shake_hands(&mut theirs).await.map_err(refused("get a connection"))?;
            ends.push(theirs.into_std().map_err(refused("get a connection"))?.into());
        }
        Ok((ends, size_bytes, flags))
    }

    /// Gives a device new connections for those that have broken.
    async fn renew(&mut self, index: u32, backend: &str) -> Result<(), AttachError> {
        let deadline = Instant::now() + NOTICE_MAX;
        loop {
            let (sockets, ..) = self.open(count() - self.tasks.len()).await?;
            let backend = backend.to_owned();
            let done = blocking(move || {
                let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
                // Whatever the kernel does not take is closed with this call.
                Netlink::open()?.reconnect(index, &backend, &fds)
            });
            done.await.map_err(refused("take new connections"))?;
            while let Ok(Some(_)) = tokio::time::timeout(TAKEN_AFTER, self.tasks.join_next()).await {}
            if self.tasks.len() == count() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                // A process with more connections left it, which is no harm.
                return match self.tasks.len() {
                    0 => Err(refused("take new connections")(io::ErrorKind::TimedOut.into())),
                    _ => Ok(()),
                };
            }
        }
    }

    /// The device that they belong to, with somebody who renews them.
    fn keep(mut self, index: u32, image: String, backend: String, taken_over: bool, lock: OwnedFd) -> KernelDevice {
        let (ending, mut ended) = watch::channel(false);
        let keeper = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = ended.wait_for(|ended| *ended) => return self,
                    Some(_) = self.tasks.join_next() => {}
                }
                tracing::info!(device = index, "a connection of the kernel's broke and is renewed");
                if let Err(error) = self.renew(index, &backend).await {
                    tracing::error!(%error, device = index, "an nbd device cannot be served any more");
                    return self;
                }
            }
        });
        KernelDevice { index, image, taken_over, ending, keeper, _lock: lock }
    }
}

impl KernelDevice {
    /// The block device, `/dev/nbd0` for example.
    pub fn path(&self) -> PathBuf {
        block_path(self.index)
    }

    /// Name of the image.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// True if a process of this image had died and left the device behind, with whatever was asked of it since.
    pub fn taken_over(&self) -> bool {
        self.taken_over
    }

    /// Removes the device. Those who have it mounted get half a second to unmount it, then they are cut off, which
    /// is told by `false`.
    ///
    /// # Errors
    /// If the system refuses.
    pub async fn stop(self) -> Result<bool, AttachError> {
        let deadline = Instant::now() + GRACE;
        while is_in_use(&self.path()) && Instant::now() < deadline {
            tokio::time::sleep(RETRY).await;
        }
        let idle = !is_in_use(&self.path());
        self.ending.send_replace(true);
        let connections = self.keeper.await;
        let index = self.index;
        blocking(move || Netlink::open()?.disconnect(index)).await.map_err(refused("remove a device"))?;
        if let Ok(mut connections) = connections {
            connections.draining.send_replace(true);
            while connections.tasks.join_next().await.is_some() {}
        }
        Ok(idle)
    }
}

/// What the kernel calls the device's server: the image, and whether it can be written.
fn backend(source: &dyn BlockSource) -> String {
    let kind = if source.device().is_some() { "device" } else { "image" };
    format!(
        "vfield-{kind}-{}",
        blake3::hash(source.description().as_bytes()).to_hex().as_str().get(..32).unwrap_or_default()
    )
}

/// The device of that server, if there is one.
fn left_behind(backend: &str) -> Option<u32> {
    let entries = std::fs::read_dir("/sys/block").ok()?;
    let mut found = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let index = entry.file_name().to_str()?.strip_prefix("nbd")?.parse().ok()?;
        let known = std::fs::read_to_string(entry.path().join("backend")).ok()?;
        (known.trim() == backend).then_some(index)
    });
    found.next()
}

/// Locks a device against other processes of ours, for as long as the result lives. Its directory, since a lock of the device
/// itself would keep udev away from it.
fn lock(index: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(format!("/sys/block/nbd{index}"), flags, Mode::empty())?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

/// The client's side of the handshake: takes the only export; returns its length in bytes and its flags.
async fn shake_hands(stream: &mut UnixStream) -> io::Result<(u64, u16)> {
    const EXPORT_NAME: u32 = 1;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).await?;
    let mut choice = Vec::from(u32::from(flag::FIXED_NEWSTYLE | flag::NO_ZEROES).to_be_bytes());
    choice.extend(magic::OPTION.to_be_bytes());
    choice.extend(EXPORT_NAME.to_be_bytes());
    choice.extend(0_u32.to_be_bytes());
    stream.write_all(&choice).await?;
    Ok((stream.read_u64().await?, stream.read_u16().await?))
}

/// How many connections a device has.
fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS_MAX)
}

/// True while somebody has claimed the device for himself.
fn is_in_use(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).err() == Some(Errno::BUSY)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn refused(what: &'static str) -> impl FnOnce(io::Error) -> AttachError {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => AttachError::NotThere,
        io::ErrorKind::PermissionDenied => AttachError::NotAllowed,
        _ => AttachError::Refused { what, source },
    }
}

fn block_path(index: u32) -> PathBuf {
    Path::new("/dev").join(format!("nbd{index}"))
}
