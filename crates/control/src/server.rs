//! The daemon's side of the control socket: bounded lines, bounded connections, bounded patience.
//!
//! Knows the protocol and not the node: what orders do is behind [`Daemon`], which a test
//! implements over bytes in memory. One task for each connection, one request for each connection.

use super::events::EventStatus;
use super::message::{DaemonStatus, Reply, Request, Serve};
use super::order;
use super::recording::{self, Recording};
use crate::values::until::Until;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, Piece};
use vfield_core::tags::SignedTag;

/// More clients than this wait until one is done: scripts need a few, and each costs about 100 KiB.
pub const CONNECTIONS_MAX: usize = 64;
/// A client that has not sent its line by then is cut off.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of the daemon waits for clients to take their last answers.
const FINISH_BOUND: Duration = Duration::from_secs(1);
/// Bytes of an image that `cat` asks for at a time: enough to keep several peers busy.
const CAT_WINDOW: u64 = 4 << 20;
/// Bytes copied at a time out of a file or of nothing.
const COPY_BYTES: usize = 128 << 10;

/// What `wait` and `leave` give back.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An image for a client to read.
pub struct Lent {
    /// Lives as long as the client reads.
    pub source: Arc<dyn BlockSource>,
    /// Tells the daemon by its end that the client has read.
    pub until: Box<dyn Send>,
}

/// The daemon behind the socket.
pub trait Daemon: Send + Sync + 'static {
    /// Its view, or what it does instead of having one.
    fn status(&self) -> Pending<'_, Result<DaemonStatus, Reply>>;

    /// Returns once `until` holds, or with the reason why it never will.
    fn wait(&self, until: Until) -> Pending<'_, Result<(), Reply>>;

    /// Its events with numbers above `after`, the oldest first; of those the last `most`.
    fn events(&self, after: u64, most: usize) -> Vec<EventStatus>;

    /// Returns once there is such an event.
    fn await_events(&self, after: u64) -> Pending<'_, ()>;

    /// An image by name, id, or the beginning of an id.
    fn image(&self, wanted: &str) -> Result<Lent, Reply>;

    /// Saves the overlay of an image, of the only one if none is named, in a file that is new and
    /// empty, if its sender is honest.
    fn overlay_save(&self, image: Option<String>, file: File) -> Pending<'_, Reply>;

    /// Drops the changes in the overlay of an image, of the only one if none is named; also while
    /// it is in use if forced.
    fn overlay_reset(&self, image: Option<String>, force: bool) -> Pending<'_, Reply>;

    /// Takes part in one more image of the field, and holds as much of it as `store` says.
    fn add_image(&self, image: String, store: Option<String>) -> Pending<'_, Reply>;

    /// Serves one more file, which is open for reading if its sender is honest.
    fn add_file(&self, file: File, hashes: Option<File>, serve: Serve) -> Pending<'_, Reply>;

    /// Takes part in an image no more; also while it is used, or holds what nobody else does, if
    /// forced.
    fn drop_image(&self, image: String, force: bool) -> Pending<'_, Reply>;

    /// Keeps an image though no tag keeps it, or releases it.
    fn pin(&self, image: &str, release: bool) -> Reply;

    /// Takes away the images that nobody needs, without their grace; the reply says which.
    fn collect(&self) -> Pending<'_, Reply>;

    /// What machines read first of an image; without a name of the only one.
    fn learned(&self, image: Option<&str>) -> Reply;

    /// Why the chunk at an offset of an image is not here, or without both why readers wait. If it
    /// is to follow, other nodes are asked as well.
    fn explain(&self, image: Option<String>, offset: Option<u64>, follow: bool) -> Pending<'_, Reply>;

    /// Begins to record what the node does, or refuses.
    fn record(&self) -> Result<Recording, Reply>;

    /// Sets the limits that are given, of an image or of the whole node; the reply shows all.
    fn limit(&self, image: Option<&str>, up: Option<&str>, down: Option<&str>) -> Reply;

    /// Reads the field keys' files again; the reply names the keys in force.
    fn reload_keys(&self) -> Pending<'_, Reply>;

    /// Tells the field of a tag.
    fn tag(&self, tag: SignedTag) -> Reply;

    /// What an image shares with another one.
    fn compare(&self, image: &str, with: &str) -> Pending<'_, Reply>;

    /// Hands over to a successor: a process of the program that is installed, or of one that the
    /// client names over a socket. The reply says that it begins, or why it cannot.
    fn upgrade(&self, witness: Option<File>) -> Pending<'_, Reply>;

    /// What would be lost if it left.
    fn rehearse_leave(&self) -> Pending<'_, Reply>;

    /// Has peers ask this node last, and its exports take no new clients. The reply says what still
    /// hangs on it after at most `bound`.
    fn drain(&self, bound: Duration) -> Pending<'_, Reply>;

    /// Takes part again as before.
    fn undrain(&self) -> Pending<'_, Reply>;

    /// Leaves, or stays if chunks would be lost and nobody forces it; the reply says how it went.
    fn leave(&self, bound: Duration, force: bool) -> Pending<'_, Reply>;
}

/// Answers clients in tasks of its own until it is finished.
#[derive(Debug)]
pub struct Server {
    places: Arc<Semaphore>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Starts to answer. Has to be called within a tokio runtime.
    pub fn start(listener: UnixListener, daemon: Arc<dyn Daemon>) -> Self {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { accepting: tokio::spawn(accept(listener, daemon, Arc::clone(&places))), places }
    }

    /// Accepts nobody any more; returns when all answers are sent, or after [`FINISH_BOUND`].
    pub async fn finish(self) {
        self.accepting.abort();
        // Both ends of the wait are fine: a client that does not read its answer gets none.
        let _ = tokio::time::timeout(FINISH_BOUND, self.places.acquire_many(CONNECTIONS_MAX as u32)).await;
    }
}

async fn accept(listener: UnixListener, daemon: Arc<dyn Daemon>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let daemon = Arc::clone(&daemon);
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, daemon.as_ref()).await {
                        tracing::debug!(%error, "control connection");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: give others the time to free some.
                tracing::warn!(%error, "control socket");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(mut stream: UnixStream, daemon: &dyn Daemon) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let order = tokio::time::timeout(REQUEST_PATIENCE, order::receive(reader.as_ref())).await??;
    let Some(order) = order else { return Ok(()) };
    // So that a test can see what follows a defect; in a task, as most of the daemon is.
    #[cfg(debug_assertions)]
    assert_ne!(order.line, b"panic", "a test wants it");
    let request = match Request::parse(&order.line) {
        Ok(request) => request,
        Err(refusal) => return writer.write_all(&refusal.line()).await,
    };
    tokio::select! {
        // In this order: a client may close its sending side as soon as it has asked.
        biased;
        done = answer(request, order.files, daemon, &mut writer) => done,
        () = order::anything_more(reader.as_ref()) => Ok(()),
    }
}

async fn answer(
    request: Request,
    mut files: Vec<File>,
    daemon: &dyn Daemon,
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let (file, before) = (files.pop(), files.pop());
    let reply = match request {
        Request::Status => match daemon.status().await {
            Ok(status) => Reply::Status { status: Box::new(status) },
            Err(reply) => reply,
        },
        Request::Events { after, most, follow } => return tell_events(daemon, (after, most), follow, writer).await,
        Request::Wait { until, timeout_ms } => {
            let reached = async { daemon.wait(until).await.map_or_else(|reply| reply, |()| Reply::Reached) };
            match timeout_ms.map(Duration::from_millis) {
                None => reached.await,
                Some(timeout) => tokio::time::timeout(timeout, reached).await.unwrap_or(Reply::TimedOut),
            }
        }
        Request::OverlaySave { image } => match file {
            Some(file) => daemon.overlay_save(image, file).await,
            None => Reply::refused("a save without a file", "use the vfield program of the daemon's version"),
        },
        Request::OverlayReset { image, force } => daemon.overlay_reset(image, force).await,
        Request::Add { image, store } => daemon.add_image(image, store).await,
        Request::Serve(serve) => match file {
            Some(file) => daemon.add_file(file, before, serve).await,
            None => Reply::refused("the file to serve is missing", "use the vfield program of the daemon's version"),
        },
        Request::Drop { image, force } => daemon.drop_image(image, force).await,
        Request::Pin { image, release } => daemon.pin(&image, release),
        Request::Collect => daemon.collect().await,
        Request::Learned { image } => daemon.learned(image.as_deref()),
        Request::Explain { image, offset, follow } => daemon.explain(image, offset, follow).await,
        Request::Trace { duration_ms } => {
            let duration = Duration::from_millis(duration_ms);
            match recording::refusal(duration).map_or_else(|| daemon.record(), Err) {
                Ok(recording) => return recording::send(recording, duration, writer).await,
                Err(reply) => reply,
            }
        }
        Request::Limit { up, down } => daemon.limit(None, up.as_deref(), down.as_deref()),
        Request::LimitImage { image, up, down } => daemon.limit(Some(&image), up.as_deref(), down.as_deref()),
        Request::ReloadKeys => daemon.reload_keys().await,
        Request::Tag(tag) => daemon.tag(tag),
        Request::Compare { image, with } => daemon.compare(&image, &with).await,
        Request::Upgrade => daemon.upgrade(file).await,
        Request::Drain { timeout_ms } => daemon.drain(Duration::from_millis(timeout_ms)).await,
        Request::Undrain => daemon.undrain().await,
        Request::Leave { dry_run: true, .. } => daemon.rehearse_leave().await,
        Request::Leave { timeout_ms, force, .. } => daemon.leave(Duration::from_millis(timeout_ms), force).await,
        Request::Cat { image, offset, length } => match daemon.image(&image) {
            Ok(lent) => cat(lent.source.as_ref(), offset, length, writer).await?,
            Err(reply) => reply,
        },
    };
    writer.write_all(&reply.line()).await
}

/// Sends the events, and those to come for as long as the client listens.
async fn tell_events(
    daemon: &dyn Daemon,
    (mut after, most): (u64, usize),
    follow: bool,
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut events = daemon.events(after, most);
    loop {
        after = events.last().map_or(after, |event| event.number);
        writer.write_all(&Reply::Events { events }.line()).await?;
        if !follow {
            return Ok(());
        }
        daemon.await_events(after).await;
        events = daemon.events(after, usize::MAX);
    }
}

/// Sends a part of an image; the reply that closes it.
async fn cat(
    source: &dyn BlockSource,
    offset: u64,
    length: Option<u64>,
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<Reply> {
    let size = source.size_bytes();
    let asked = length.unwrap_or(size.saturating_sub(offset));
    let end = offset.checked_add(asked).filter(|end| offset <= size && *end <= size);
    let Some(end) = end else {
        let part = length.map_or_else(|| format!("offset {offset}"), |length| format!("{length} bytes at {offset}"));
        let bytes = if size == 1 { "byte" } else { "bytes" };
        let fact = format!("image {:?} has {size} {bytes}: {part} is past its end", source.name());
        return Ok(Reply::refused(fact, "choose --offset and --length within the image"));
    };
    let mut rest = Extent::from(offset..end);
    let mut buffer = vec![0; COPY_BYTES];
    while !rest.is_empty() {
        let pieces = match source.read(rest.take(CAT_WINDOW)).await {
            Ok(pieces) => pieces,
            Err(error) => {
                return Ok(Reply::refused(format!("image {:?}: {error}", source.name()), "see `vfield status`"));
            }
        };
        let bytes: u64 = pieces.iter().map(Piece::len).sum();
        assert!(bytes > 0 && bytes <= rest.len(), "a source answers with a part of what was asked");
        writer.write_all(&Reply::Data { bytes }.line()).await?;
        for piece in pieces {
            send(piece, &mut buffer, writer).await?;
        }
        rest = rest.skip(bytes);
    }
    Ok(Reply::Done)
}

async fn send(piece: Piece, buffer: &mut [u8], writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let file = match piece {
        Piece::Bytes(bytes) => return writer.write_all(&bytes).await,
        Piece::Zero(mut left) => {
            buffer.fill(0);
            while left > 0 {
                let part = left.min(buffer.len() as u64) as usize;
                writer.write_all(&buffer[..part]).await?;
                left -= part as u64;
            }
            return Ok(());
        }
        Piece::File(file) => file,
    };
    let mut sent = 0;
    // A second descriptor for the time of the copy: reading through std wants a File of its own.
    let handle = File::from(file.fd().try_clone_to_owned()?);
    while sent < file.len() {
        let part = (file.len() - sent).min(buffer.len() as u64) as usize;
        handle.read_exact_at(&mut buffer[..part], file.offset() + sent)?;
        writer.write_all(&buffer[..part]).await?;
        sent += part as u64;
    }
    Ok(())
}
