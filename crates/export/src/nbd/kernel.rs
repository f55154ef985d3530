//! The kernel's own NBD client, attached to this process: an image as a block device without a
//! program in between.
//!
//! Owns a device, `/dev/nbd0` for example, from [`attach`] to [`KernelDevice::stop`], and the
//! connection over which this process serves it: a pair of sockets, one end of it given to the
//! kernel. As with ublk, a device outlives its process: its requests wait, and the next
//! [`attach`] of the same image gives it a new connection. The kernel keeps for that whose device
//! it is. Called by the command line, where there is no ublk.
//!
//! Requests under way when a process died are repeated when the request's own timer ends, not
//! when it has a new connection. Devices with several connections, or with a timeout of the
//! driver's, break a connection whose server does not answer in time, so their timers have to be
//! long. With one connection and no timeout nothing breaks when a timer ends: a request that went
//! to an earlier connection is asked again, any other goes on waiting. So the timer may be short,
//! and there is one connection.

pub mod message;
mod netlink;

use super::catalogue::Catalogue;
use super::codec::{flag, magic};
use super::connection::Shared;
use super::server::shared;
use super::socket::Socket;
use super::visit::{self, Stop};
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
use vfield_block::source::BlockSource;

/// The unit of a device's length.
const BLOCK_BYTES: u64 = 512;
/// How often the kernel looks at a request that has no answer, and so how long one waits that was
/// under way when a process died: long enough for the next process to have begun in most cases, or
/// else it waits for this once more. Of each that waits for the field the kernel's log says as
/// often that it may be stuck.
const ASKED_AGAIN: Duration = Duration::from_millis(750);
/// The driver's own value of that, for whoever uses the device later.
const ASKED_AGAIN_OTHERWISE: Duration = Duration::from_secs(30);
/// How long a device waits for the next process: ten years, which the kernel can count in ticks.
const DEAD_S: u64 = 10 * 365 * 24 * 3600;
/// How long the kernel may take to notice that a connection broke; it takes milliseconds.
const NOTICE_MAX: Duration = Duration::from_secs(10);
/// Time for a connection that the kernel did not take to end.
const TAKEN_AFTER: Duration = Duration::from_millis(20);

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
        /// The failed step.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// An image as a block device of the kernel's NBD client. Unless stopped, the device outlives the
/// process and waits for the next.
#[derive(Debug)]
pub struct KernelDevice {
    index: u32,
    image: String,
    taken_over: bool,
    ending: watch::Sender<bool>,
    /// Replaces a connection that breaks.
    keeper: JoinHandle<Connection>,
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

/// Makes `source` a block device, or takes over the one that a dead process left for it. Has to be
/// called within a runtime, which serves it.
///
/// # Errors
/// See [`AttachError`].
pub async fn attach(source: Arc<dyn BlockSource>) -> Result<KernelDevice, AttachError> {
    let (image, backend) = (source.name().to_owned(), backend(&*source));
    let volatile = source.device().is_some_and(|device| device.is_volatile());
    // It has come because it was attached here; who uses it the device knows.
    let shared = Arc::new(Shared { counts_users: false, ..shared(Catalogue::of_one(source)) });
    let mut connection = Connection { shared, task: JoinSet::new(), draining: watch::Sender::new(false) };
    if let Some(index) = left_behind(&backend) {
        let path = block_path(index);
        let lock = lock(index).map_err(|error| match error {
            Errno::WOULDBLOCK => AttachError::InUse { name: image.clone(), path },
            other => refused("lock its device")(other.into()),
        })?;
        connection.renew(index, &backend).await?;
        return Ok(connection.keep(index, image, backend, true, lock));
    }
    let (socket, size_bytes, flags) = connection.open().await?;
    let owner = backend.clone();
    let made = blocking(move || {
        let dead_s = (!volatile).then_some(DEAD_S);
        let wanted = Wanted { size_bytes, block_bytes: BLOCK_BYTES, flags, dead_s, backend: &owner };
        Netlink::open()?.connect(&wanted, socket.as_fd())
    });
    let index = made.await.map_err(refused("make a device"))?;
    let lock = lock(index).map_err(|error| refused("lock a device")(error.into()))?;
    // Whoever takes the device over finds it so.
    if let Err(error) = set_timer(index, ASKED_AGAIN).await {
        tracing::warn!(%error, device = index, "reads of a device wait for 30 s if this process is killed");
    }
    Ok(connection.keep(index, image, backend, false, lock))
}

/// The connection of a device, if it has one.
#[derive(Debug)]
struct Connection {
    shared: Arc<Shared>,
    /// One at most that stays.
    task: JoinSet<()>,
    draining: watch::Sender<bool>,
}

impl Connection {
    /// Serves a new connection; returns its other end, and what a client is told of the export.
    async fn open(&mut self) -> Result<(OwnedFd, u64, u16), AttachError> {
        let (ours, mut theirs) = UnixStream::pair().map_err(refused("get a connection"))?;
        let (shared, mut draining) = (self.shared.clone(), self.draining.subscribe());
        self.task.spawn(async move {
            let drained = async {
                drop(draining.wait_for(|draining| *draining).await);
                Stop::Drain
            };
            if let Err(end) = visit::serve(Socket::unix(ours), &shared, drained).await {
                tracing::debug!(%end, "a connection of the kernel's ended");
            }
        });
        let (size_bytes, flags) = shake_hands(&mut theirs).await.map_err(refused("get a connection"))?;
        Ok((theirs.into_std().map_err(refused("get a connection"))?.into(), size_bytes, flags))
    }

    /// Replaces a broken connection of a device.
    async fn renew(&mut self, index: u32, backend: &str) -> Result<(), AttachError> {
        let deadline = Instant::now() + NOTICE_MAX;
        loop {
            let (socket, ..) = self.open().await?;
            let backend = backend.to_owned();
            // A socket that the kernel does not take is closed with this call.
            let done = blocking(move || Netlink::open()?.reconnect(index, &backend, socket.as_fd()));
            done.await.map_err(refused("take a new connection"))?;
            if tokio::time::timeout(TAKEN_AFTER, self.task.join_next()).await.is_err() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(refused("take a new connection")(io::ErrorKind::TimedOut.into()));
            }
        }
    }

    /// The device that it belongs to, with somebody who renews it.
    fn keep(mut self, index: u32, image: String, backend: String, taken_over: bool, lock: OwnedFd) -> KernelDevice {
        let (ending, mut ended) = watch::channel(false);
        let keeper = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = ended.wait_for(|ended| *ended) => return self,
                    Some(_) = self.task.join_next() => {}
                }
                tracing::info!(device = index, "the kernel's connection broke and is renewed");
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

    /// True if a process of this image had died and left the device behind, and requests
    /// waited for this one.
    pub fn taken_over(&self) -> bool {
        self.taken_over
    }

    /// Removes the device; reads of it fail from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub async fn stop(self) -> Result<(), AttachError> {
        self.ending.send_replace(true);
        let connection = self.keeper.await;
        let index = self.index;
        blocking(move || Netlink::open()?.disconnect(index)).await.map_err(refused("remove a device"))?;
        if let Ok(mut connection) = connection {
            connection.draining.send_replace(true);
            while connection.task.join_next().await.is_some() {}
        }
        if let Err(error) = set_timer(index, ASKED_AGAIN_OTHERWISE).await {
            tracing::warn!(%error, device = index, "the timer of requests stays as it was");
        }
        Ok(())
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

/// Locks a device against other processes of ours, for as long as the result lives. Its directory,
/// since a lock of the device itself would keep udev away from it.
fn lock(index: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(format!("/sys/block/nbd{index}"), flags, Mode::empty())?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

/// Sets after how long the kernel looks at requests of a device, for those that come. It waits
/// until those under way are answered, so somebody has to answer them meanwhile.
async fn set_timer(index: u32, time: Duration) -> io::Result<()> {
    let path = format!("/sys/block/nbd{index}/queue/io_timeout");
    blocking(move || std::fs::write(path, time.as_millis().to_string())).await
}

/// The client's side of the handshake: takes the only export; returns its length in bytes and its
/// flags.
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
