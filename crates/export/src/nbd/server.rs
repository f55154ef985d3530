//! The server: accepts clients and ends.
//!
//! Owns the listener and the tasks of all connections. Invariants: at most [`Limits::connections`]
//! tasks; after a shutdown no task, no socket and no socket file is left, in a bounded time. The
//! command line and tests call it. It never looks at what clients say.

use super::Limits;
use super::access::Rule;
use super::address::Address;
use super::budget::Budget;
use super::catalogue::Catalogue;
use super::connection::{End, Shared};
use super::handed::Handed;
use super::listener::{BindError, Listener};
use super::lock_step::Turn;
use super::refusals::Refusals;
use super::tls::Tls;
use super::visit::{self, Stop};
use std::future::Future;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use vfield_block::source::BlockSource;

/// How long to leave the listener alone after it failed: out of descriptors, most often, which
/// passes when a client leaves.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// After [`Limits::grace`], how long clients have to take their last answers.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// How long connections have to come to where they can be handed over: the last handshakes, and
/// one look at each.
const HAND_OVER_TIME: Duration = Duration::from_millis(250);

/// A server that listens but does not answer yet. Dropping it removes its socket file.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: Address,
    shared: Shared,
}

/// What a server has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients connected now.
    pub connections: u64,
    /// Requests understood, of all kinds.
    pub requests: u64,
    /// Requests refused because they made no sense or wanted to write.
    pub refused: u64,
    /// Bytes sent after the handshakes, headers included.
    pub sent_bytes: u64,
}

impl Server {
    /// Listens on `address` and offers `sources` by their names; the first one is also the export
    /// called "". Has to be called within a tokio runtime. Clients that connect wait until the
    /// server is run.
    pub fn bind(address: &Address, sources: Vec<Arc<dyn BlockSource>>) -> Result<Self, BindError> {
        Self::of(address, sources, || Listener::bind(address))
    }

    /// As [`Server::bind`], with the socket of another process, wherever that has listened.
    pub fn adopt(address: &Address, sources: Vec<Arc<dyn BlockSource>>, socket: OwnedFd) -> Result<Self, BindError> {
        Self::of(address, sources, || {
            Listener::adopt(socket).map_err(|cause| match address {
                Address::Unix(path) => BindError::Unix { path: path.clone(), cause },
                Address::Tcp(addr) => BindError::Tcp(*addr, cause),
            })
        })
    }

    fn of(
        address: &Address,
        sources: Vec<Arc<dyn BlockSource>>,
        listen: impl FnOnce() -> Result<Listener, BindError>,
    ) -> Result<Self, BindError> {
        if sources.is_empty() {
            return Err(BindError::NoSource);
        }
        let catalogue = Catalogue::of(sources)?;
        let listener = listen()?;
        // Only the port can differ; a socket that was just bound knows its address.
        let address = listener.address().unwrap_or_else(|_| address.clone());
        Ok(Self { listener, address, shared: shared(catalogue) })
    }

    /// With other limits than the usual ones.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.shared.advice = Budget::new(limits.advice_bytes_of_all);
        self.shared.held = Budget::new(limits.held_bytes_of_all);
        self.shared.limits = limits;
        self
    }

    /// With an access list for clients that come over TCP.
    #[must_use]
    pub fn with_access(mut self, access: Vec<Rule>) -> Self {
        self.shared.access = access;
        self
    }

    /// With certificates: TCP clients have to start TLS before they are told anything.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Tls>) -> Self {
        self.shared.tls = tls;
        self
    }

    /// Where it listens, with the port that was found if any would do.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The listening socket, for another process to go on with.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Serves until `shutdown` is done, then ends as [`Serving::shutdown`] does.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stop = async {
            shutdown.await;
            Stop::Drain
        };
        let (_, left) = mpsc::unbounded_channel();
        serve(self.listener, Arc::new(self.shared), Connections::new(None), left, stop).await;
    }

    /// Serves in a task of its own.
    pub fn start(self) -> Serving {
        let shared = Arc::new(self.shared);
        let connections = Connections::new(None);
        let (stop, stopped) = oneshot::channel();
        let (resumed, left) = mpsc::unbounded_channel();
        let stopped = async { stopped.await.unwrap_or(Stop::Drain) };
        let task = tokio::spawn(serve(self.listener, shared.clone(), connections.clone(), left, stopped));
        Serving { address: self.address, shared, connections, resumed, stop, task }
    }
}

/// A running server. Dropping it stops it as [`Serving::shutdown`] does, without waiting for the
/// end.
#[derive(Debug)]
pub struct Serving {
    address: Address,
    shared: Arc<Shared>,
    /// Each connection listens to it, so it also knows how many there are.
    connections: Connections,
    /// Clients of another process.
    resumed: mpsc::UnboundedSender<Handed>,
    stop: oneshot::Sender<Stop>,
    task: JoinHandle<Vec<Handed>>,
}

/// How all connections are to end.
type Connections = watch::Sender<Option<Stop>>;

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The URI for clients of the export called `name`, with TLS where they have to start it.
    pub fn uri(&self, name: &str) -> String {
        if self.shared.tls.is_some() { self.address.uri_tls(name) } else { self.address.uri(name) }
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.receiver_count() as u64,
            requests: self.shared.requests.load(Ordering::Relaxed),
            refused: self.shared.errors.load(Ordering::Relaxed),
            sent_bytes: self.shared.sent_bytes.load(Ordering::Relaxed),
        }
    }

    /// Offers one more source by its names.
    ///
    /// # Errors
    /// If another one has one of them.
    pub fn add(&self, source: Arc<dyn BlockSource>) -> Result<(), BindError> {
        self.shared.catalogue.add(source)
    }

    /// Offers the source of the name `to` as `name` too. Clients that come get it; earlier
    /// clients stay with their source. A source that is called `name` itself goes first.
    pub fn lead(&self, name: &str, to: &str) {
        self.shared.catalogue.lead(name, to);
    }

    /// How many clients use the source of this name.
    pub fn users(&self, name: &str) -> usize {
        self.shared.catalogue.users(name)
    }

    /// Tells clients that come from now on that it takes none, or takes them again. Those who are
    /// there stay.
    pub fn shut(&self, is_shut: bool) {
        self.shared.is_shut.store(is_shut, Ordering::Relaxed);
    }

    /// Offers the source of this name no more; those who use it are told that the server is
    /// stopping, and cut off as by [`Serving::shutdown`].
    pub fn remove(&self, name: &str) {
        self.shared.catalogue.remove(name);
    }

    /// Stops: nobody is accepted any more, the socket file is removed, new requests get
    /// `ESHUTDOWN`, those under way get their data within [`Limits::grace`] or `ESHUTDOWN` after
    /// it, and a client that does not take its answers within a second more is cut off.
    pub async fn shutdown(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the nbd server failed");
        }
    }

    /// Serves the clients that another process has left.
    pub fn resume(&self, clients: Vec<Handed>) {
        // The task lives as long as nobody stops it.
        clients.into_iter().for_each(|client| drop(self.resumed.send(client)));
    }

    /// Ends between two requests of each client, for another process to go on: the clients notice
    /// nothing. The listening socket stays open, and its file stays. Clients under TLS, and those
    /// that are in the middle of a write, are disconnected.
    pub async fn hand_over(self) -> Vec<Handed> {
        // The task lives as long as nobody stops it.
        let _ = self.stop.send(Stop::HandOver);
        self.task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the nbd server failed");
            Vec::new()
        })
    }
}

/// What connections to all of `catalogue` share.
pub(super) fn shared(catalogue: Catalogue) -> Shared {
    let limits = Limits::default();
    Shared {
        catalogue,
        advice: Budget::new(limits.advice_bytes_of_all),
        held: Budget::new(limits.held_bytes_of_all),
        limits,
        looking: Turn::default(),
        tls: None,
        access: Vec::new(),
        refusals: Refusals::default(),
        counts_users: true,
        requests: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        sent_bytes: AtomicU64::new(0),
        is_shut: AtomicBool::new(false),
    }
}

async fn serve(
    listener: Listener,
    shared: Arc<Shared>,
    connections: Connections,
    mut left: mpsc::UnboundedReceiver<Handed>,
    stop: impl Future<Output = Stop>,
) -> Vec<Handed> {
    let mut tasks = JoinSet::new();
    let how = tokio::select! {
        how = stop => how,
        () = accept(&listener, &mut left, &shared, &connections, &mut tasks) => Stop::Drain,
    };
    let bound = match how {
        Stop::Drain => {
            drop(listener);
            shared.limits.grace + FLUSH_TIME
        }
        Stop::HandOver => {
            // Others listen at it from now on, and its file is theirs.
            std::mem::forget(listener);
            HAND_OVER_TIME
        }
    };
    connections.send_replace(Some(how));
    let mut handed = Vec::new();
    let ended = async {
        while let Some(ended) = tasks.join_next().await {
            handed.extend(ended.ok().flatten());
        }
    };
    if tokio::time::timeout(bound, ended).await.is_err() {
        tracing::debug!(connections = tasks.len(), "cutting off clients that do not take their answers");
        tasks.shutdown().await;
    }
    handed
}

/// Ready when a connection is to end.
fn stop_of(connections: &Connections) -> impl Future<Output = Stop> + use<> {
    let mut stop = connections.subscribe();
    async move { stop.wait_for(Option::is_some).await.map_or(Stop::Drain, |how| how.unwrap_or(Stop::Drain)) }
}

/// Logs how a client's visit ended.
fn told(client: u64, ended: Result<Option<Handed>, End>) -> Option<Handed> {
    match ended {
        Ok(None) => tracing::debug!(client, "left"),
        Ok(Some(handed)) => return Some(handed),
        Err(end) => tracing::debug!(client, %end, "ended"),
    }
    None
}

/// Accepts for as long as it is polled.
async fn accept(
    listener: &Listener,
    left: &mut mpsc::UnboundedReceiver<Handed>,
    shared: &Arc<Shared>,
    connections: &Connections,
    tasks: &mut JoinSet<Option<Handed>>,
) {
    let mut client = 0_u64;
    // Said once until a client is accepted again: one that tries all the time would fill a log.
    let mut said = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(handed) = left.recv() => {
                client += 1;
                let (shared, stop) = (shared.clone(), stop_of(connections));
                tasks.spawn(async move {
                    tracing::debug!(client, "went on");
                    told(client, visit::resume(handed, &shared, stop).await)
                });
                continue;
            }
        };
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a connection's task failed");
            }
        }
        let socket = match accepted {
            Ok(_) if tasks.len() >= shared.limits.connections => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(limit = shared.limits.connections, "too many clients, turning some away");
                }
                continue;
            }
            Ok(socket) => socket,
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(%error, "accepting a client failed, trying again");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        said = false;
        client += 1;
        let (shared, stop) = (shared.clone(), stop_of(connections));
        tasks.spawn(async move {
            tracing::debug!(client, "connected");
            told(client, visit::serve(socket, &shared, stop).await)
        });
    }
}
