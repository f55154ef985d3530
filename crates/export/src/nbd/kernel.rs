//! The kernel's own NBD client, attached to this process: an image as a block device without a program in between.
//!
//! Owns a device, `/dev/nbd0` for example, from [`attach`] to [`KernelDevice::stop`], and the connections over which this
//! process serves it: pairs of sockets, one end of each given to the kernel. As with ublk, a device outlives its process:
//! what is asked of it waits, and the next [`attach`] of the same image gives it new connections. The kernel
//! keeps for that whose device it is. Called by the command line, where there is no ublk.

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
use tokio::task::JoinSet;
use vfield_core::source::BlockSource;

/// Connections of a device, each a queue of the kernel's: as many as answer in parallel on most machines.
const CONNECTIONS_MAX: usize = 4;
/// The unit of a device's length.
const BLOCK_BYTES: u64 = 512;
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

/// An image as a block device of the kernel's NBD client. Dropping it breaks its connections: the device waits for the next.
#[derive(Debug)]
pub struct KernelDevice {
    index: u32,
    image: String,
    taken_over: bool,
    connections: JoinSet<()>,
    draining: watch::Sender<bool>,
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
    let mut device = Pending { shared, connections: JoinSet::new(), draining: watch::Sender::new(false) };
    if let Some(index) = left_behind(&backend) {
        let path = block_path(index);
        let lock = lock(index).map_err(|error| match error {
            Errno::WOULDBLOCK => AttachError::InUse { name: image.clone(), path },
            other => refused("lock its device")(other.into()),
        })?;
        device.take_over(index, &backend).await?;
        return Ok(device.done(index, image, true, lock));
    }
    let (sockets, size_bytes, flags) = device.connect(connections()).await?;
    let made = blocking(move || {
        let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        let dead_s = (!volatile).then_some(DEAD_S);
        let wanted = Wanted { size_bytes, block_bytes: BLOCK_BYTES, flags, dead_s, backend: &backend };
        Netlink::open()?.connect(&wanted, &fds)
    });
    let index = made.await.map_err(refused("make a device"))?;
    let lock = lock(index).map_err(|error| refused("lock a device")(error.into()))?;
    Ok(device.done(index, image, false, lock))
}

/// Connections that have no device yet.
struct Pending {
    shared: Arc<Shared>,
    connections: JoinSet<()>,
    draining: watch::Sender<bool>,
}

impl Pending {
    /// Serves so many new connections; returns their other ends, and what a client is told of the export.
    async fn connect(&mut self, count: usize) -> Result<(Vec<OwnedFd>, u64, u16), AttachError> {
        let mut ends = Vec::new();
        let (mut size_bytes, mut flags) = (0, 0);
        for _ in 0..count {
            let (ours, theirs) = UnixStream::pair().map_err(refused("get a connection"))?;
            let (shared, mut draining) = (self.shared.clone(), self.draining.subscribe());
            self.connections.spawn(async move {
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

    /// Gives a device whose connections have broken as many new ones as it had.
    async fn take_over(&mut self, index: u32, backend: &str) -> Result<(), AttachError> {
        let deadline = Instant::now() + NOTICE_MAX;
        loop {
            let missing = connections() - self.connections.len();
            let (sockets, ..) = self.connect(missing).await?;
            let backend = backend.to_owned();
            let done = blocking(move || {
                let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
                // Whatever the kernel does not take is closed with this call.
                Netlink::open()?.reconnect(index, &backend, &fds)
            });
            done.await.map_err(refused("take new connections"))?;
            while let Ok(Some(_)) = tokio::time::timeout(TAKEN_AFTER, self.connections.join_next()).await {}
            if self.connections.len() == connections() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                // A process with more connections left it, which is no harm.
                return match self.connections.len() {
                    0 => Err(refused("take new connections")(io::ErrorKind::TimedOut.into())),
                    _ => Ok(()),
                };
            }
        }
    }

    fn done(self, index: u32, image: String, taken_over: bool, lock: OwnedFd) -> KernelDevice {
        let Self { connections, draining, .. } = self;
        KernelDevice { index, image, taken_over, connections, draining, _lock: lock }
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
    pub async fn stop(mut self) -> Result<bool, AttachError> {
        let deadline = Instant::now() + GRACE;
        while is_in_use(&self.path()) && Instant::now() < deadline {
            tokio::time::sleep(RETRY).await;
        }
        let idle = !is_in_use(&self.path());
        let index = self.index;
        blocking(move || Netlink::open()?.disconnect(index)).await.map_err(refused("remove a device"))?;
        self.draining.send_replace(true);
        while self.connections.join_next().await.is_some() {}
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

fn connections() -> usize {
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
