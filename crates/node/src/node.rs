//! A running node: starts the parts, hands out its images, reports its status, leaves.

mod draining;
mod following;
mod holding;
mod keeping;
mod learning;
mod limiting;
mod publishing;
mod report;
mod start_error;

pub use following::{NotFollowed, no_image, version_name};
pub use start_error::StartError;

use crate::admissions::{Admissions, not_admitted};
use crate::bootstrap_addrs::BootstrapAddrs;
use crate::config::{ImageSelector, NodeConfig};
use crate::delays::Delays;
use crate::disk::Disk;
use crate::driver::{Driver, Trust};
use crate::entry::{self, Patience};
use crate::event::{Event, EventSink};
use crate::explained::{self, Explained};
use crate::field_keys::FieldKeys;
use crate::gossip::Gossip;
use crate::keeper::KeptStores;
use crate::lobby;
use crate::namesakes;
use crate::naming::{Known, Search};
use crate::server;
use crate::sockets;
use crate::status::{Sole, Status};
use crate::store::compressed::Room;
use crate::trace::Recording;
use crate::{waits, whereabouts};
use holding::Held;
use publishing::Published;
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use vfield_block::source::BlockSource;
use vfield_core::config::Config;
use vfield_core::identity::Identity;
use vfield_core::image::ImageId;
use vfield_core::inquiry::Purpose;
use vfield_core::node::picture::Picture;
use vfield_core::node::{ImageView, Input, Node as Core};
use vfield_core::signing::Signatures as _;
use vfield_trust::admission::Verified;
use vfield_trust::signature::TrustedKeys;
use vfield_trust::{KeyRing, NodeKey};

/// Interval at which a leaving node looks at what others hold: above the millisecond or so that
/// counting takes, below what a person notices.
const LEAVE_POLL: Duration = Duration::from_millis(50);
/// Interval of checks for conditions without an event: counting copies takes a millisecond or so.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A node that was started without a field key cannot be given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node was started without a field key")]
pub struct OpenField;

/// A state that `status --wait` can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// This node's stores are full.
    Filled,
    /// The field's stores hold every image of this node this many times, origins not counted.
    Covered(u64),
}

/// The result of a leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    /// Chunks that only this node held and that others have taken over.
    pub handed_over: u64,
    /// Chunks that only this node held and no other took in time.
    pub lost: u64,
}

/// An image of a node, to be read.
#[derive(Clone)]
pub struct NodeImage {
    /// The id of the image.
    pub id: ImageId,
    /// Its bytes and its names on this node.
    pub source: Arc<dyn BlockSource>,
}

/// Files that were hashed before their node was started.
pub struct Publication(Vec<Published>);

impl Publication {
    /// The same without the files of which `is_dropped` says so, given the name of each.
    #[must_use]
    pub fn without(mut self, is_dropped: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|published| !is_dropped(published.origin.name()));
        self
    }
}

/// One running node. Dropping it ends it at once; [`Node::leave`] lets others take over first.
pub struct Node {
    driver: Arc<Driver>,
    /// The settings of its start, which also count for images added later; without the field's
    /// keys.
    config: NodeConfig,
    /// Where its stores lie, if not in memory.
    disk: Option<Arc<Disk>>,
    compressed_room: Option<Arc<Room>>,
    held: Mutex<Vec<Held>>,
    pins: following::Pins,
    /// One image is added at a time, since each has to differ from those before it.
    adding: tokio::sync::Mutex<()>,
    listening: SocketAddr,
    started: Instant,
    /// Ended with the node.
    tasks: Mutex<JoinSet<()>>,
}

impl Node {
    /// Publishes, listens, joins; returns once its images can be read (they need not be filled).
    pub async fn start(config: NodeConfig, events: EventSink) -> Result<Self, StartError> {
        Self::start_with(config, None, events).await
    }

    /// As [`Node::start`], with files that were published before: then nothing slow is left to do.
    pub async fn start_with(
        config: NodeConfig,
        publication: Option<Publication>,
        events: EventSink,
    ) -> Result<Self, StartError> {
        let (listener, udp, listening) = sockets::listen(&config).await?;
        events(Event::Listening { addr: listening });
        let keys = Arc::new(FieldKeys::new(config.field_keys.clone()));
        let percent = Arc::new(AtomicU32::new(0));
        let origins = match publication {
            Some(Publication(published)) => published,
            None => tokio::select! {
                origins = publishing::publish(&config, &events, &percent) => origins?,
                never = lobby::keep(&listener, &keys, &percent) => match never {},
            },
        };
        let disk = Disk::of(&config, &events).await?;
        let (addr, zone) = (config.advertised_at(listening), config.zone);
        let trust = trust(&config)?;
        let key = Arc::clone(&trust.key);
        let me = Identity { addr, node: key.node(), generation: now_ms(), zone };
        let (tuning, seed) = (config.tuning, random()?);
        let core_config = core_config(&config);
        let gossip = Gossip::new(udp, Arc::clone(&keys));
        let signs = Arc::clone(&key);
        let signers: Vec<String> = config.trusted.iter().flat_map(TrustedKeys::written).map(str::to_owned).collect();
        let core = |now| {
            let mut core = Core::new(me, signs, core_config, seed, now);
            core.trust_tags(signers);
            core
        };
        let guesses = config.guesses(listening);
        let (driver, hints) = Driver::new(core, gossip, keys, trust, tuning, guesses, Arc::clone(&events));
        driver.limit(config.limits);
        driver.limit_images(config.image_limits.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&driver).run(hints));
        tasks.spawn(Arc::clone(&driver).gossip());
        tasks.spawn(server::accept(Arc::clone(&driver), listener));
        driver.apply(Input::Bootstrap(config.bootstrap.clone()));
        config.tags.iter().cloned().for_each(|tag| driver.apply(Input::Tag(tag)));
        if let Some(list) = driver.admissions.in_force() {
            driver.apply(Input::Admission(Arc::clone(&list.admission)));
        }

        let config = NodeConfig { field_keys: None, admission: None, ..config };
        let compressed_room = config.compressed_max_bytes.map(Room::new);
        let (started, tasks) = (Instant::now(), Mutex::new(tasks));
        let node = Self {
            driver,
            config,
            disk,
            compressed_room,
            held: Mutex::default(),
            pins: Mutex::default(),
            adding: Default::default(),
            listening,
            started,
            tasks,
        };
        let taken_part = node.take_part(origins, &events).await;
        if taken_part.is_err() {
            // Others may know this node by now: it must not look like a dead one.
            node.driver.apply(Input::Gone);
        }
        taken_part?;
        node.spawn(holding::report_fills(Arc::clone(&node.driver)));
        node.spawn(namesakes::watch(Arc::clone(&node.driver)));
        node.spawn(waits::tell(Arc::clone(&node.driver)));
        Ok(node)
    }

    /// Hashes the files that are to be served, for [`Node::start_with`].
    ///
    /// # Errors
    /// Those of [`Node::start`] that are about files.
    pub async fn publish(config: &NodeConfig, events: &EventSink) -> Result<Publication, StartError> {
        publishing::publish(config, events, &Arc::default()).await.map(Publication)
    }

    /// Enters the field, adds the images that this node serves, and joins the others.
    async fn take_part(&self, origins: Vec<Published>, events: &EventSink) -> Result<(), StartError> {
        let config = &self.config;
        let mut kept = KeptStores::take(config.keeper.clone(), self.disk.clone(), events).await;
        let joins = config.serve.is_empty() || !config.join.is_empty() || !config.added.is_empty();
        let held = if joins { kept.known() } else { Vec::new() };
        let search = self.search(&config.join, &held);
        let patience = Patience::of(config.retry);
        let alone = self.enter_or_begin(&search).await?;
        for published in origins {
            self.serve(published, &search).await?;
        }
        self.serve_added().await;
        if joins {
            let wanted = self.join_vouched(&held, &mut kept).await?;
            // Nothing wanted means the only image that there is.
            if !wanted.is_empty() || !config.names_images() {
                for chosen in self.search(wanted, &held).find(alone, patience).await? {
                    self.join(chosen, config.store, &mut kept).await?;
                }
            }
            self.join_added(alone, &held, &mut kept).await;
            self.join_tagged(&mut kept, config.store).await?;
        }
        kept.drop_rest();
        kept.refused.into_iter().for_each(|refused| self.driver.warn(refused));
        Ok(())
    }

    /// A search for `wanted`, also in the stores that are `held`.
    fn search<'a>(&'a self, wanted: &'a [ImageSelector], held: &'a [Known]) -> Search<'a> {
        let (met, trusted) = (&self.config.bootstrap[..], self.config.trusted.as_ref());
        Search { driver: &self.driver, wanted, held, met, trusted, open: Mutex::default() }
    }

    /// Runs something until the node ends, or until it is aborted.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // Of one type, since the runtime's part of each type of task takes 2 KB of the program.
        let task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
        lock(&self.tasks).spawn(task)
    }

    /// The listening address.
    pub fn listening(&self) -> SocketAddr {
        self.listening
    }

    /// Why the chunk at this offset of an image is not here; `None` if the image ends before, or is
    /// not one of this node's. If told to follow, it asks others for whom they wait.
    pub async fn explain(&self, image: ImageId, offset_bytes: u64, follow: bool) -> Option<Explained> {
        explained::chunk(&self.driver, image, offset_bytes, follow).await
    }

    /// Why readers wait at this moment, and the slowest reads of the last hour.
    pub async fn explain_all(&self, follow: bool) -> Explained {
        explained::all(&self.driver, follow).await
    }

    /// Begins to record what this node does for each chunk; `None` while somebody else records.
    pub fn record(&self) -> Option<Recording> {
        Recording::begin(&self.driver)
    }

    /// Replaces the field keys; peers with none of them are disconnected. Only a start opens or
    /// closes a field.
    pub fn replace_keys(&self, ring: KeyRing) -> Result<(), OpenField> {
        if self.driver.keys.ring().is_none() {
            return Err(OpenField);
        }
        self.driver.replace_keys(ring);
        Ok(())
    }

    /// Enforces an admission list, unless it is older than the one in force. Returns the list in
    /// force.
    pub fn enforce(&self, list: Verified) -> Option<Arc<Verified>> {
        self.driver.enforce(list);
        self.driver.admissions.in_force()
    }

    /// A receiver that changes with the admission list in force.
    pub fn admission_lists(&self) -> watch::Receiver<Option<Arc<Verified>>> {
        self.driver.admissions.changes()
    }

    /// Returns when another process has taken over this node's identity, with that process's
    /// address. This node is a member no more.
    pub async fn outdone(&self) -> SocketAddr {
        let mut outdone = self.driver.outdone.subscribe();
        match outdone.wait_for(Option::is_some).await.map(|addr| *addr) {
            Ok(Some(addr)) => addr,
            _ => std::future::pending().await,
        }
    }

    /// Returns while the machine has no longer the address at which this node listens, but another.
    pub async fn displaced(&self) {
        self.driver.whereabouts.displaced().await;
    }

    /// Its view at this moment.
    pub fn status(&self) -> Status {
        Status { tags: self.tag_status(), ..report::status(&self.driver, self.started.elapsed()) }
    }

    /// Its picture of the field at this moment, with `cells` parts of each ring.
    pub fn picture(&self, cells: u64) -> Picture {
        self.driver.look(|core| core.picture(cells))
    }

    /// For how long reads waited, since the node started.
    pub fn delays(&self) -> Delays {
        self.driver.counters.delays.report()
    }

    /// Returns once `condition` holds.
    pub async fn wait(&self, condition: Condition) {
        let mut changes = self.driver.changes();
        let holds = || {
            self.driver.look(|core| match condition {
                Condition::Filled => core.is_filled(),
                Condition::Covered(times) => core.is_covered(times),
            })
        };
        while !holds() {
            if let Condition::Covered(times) = condition {
                self.driver.apply(Input::Inquire { times, purpose: Purpose::Wait });
            }
            // Second copies that others hold come with gossip, of which no event tells.
            if let Ok(Err(_)) = tokio::time::timeout(LOOK_EVERY, changes.changed()).await {
                return;
            }
        }
    }

    /// Somebody looks how well the images are covered: for a minute it verifies the stores' claims,
    /// in a small share of its link. Returns when that is done, or after `bound`.
    pub async fn inquire(&self, bound: Duration) {
        let mut changes = self.driver.changes();
        self.driver.apply(Input::Inquire { times: 1, purpose: Purpose::Look });
        let unverified = |view: &ImageView| view.coverage.multiplicity_min > 0 && view.verified.multiplicity_min == 0;
        let verified = async {
            while self.driver.look(|core| core.images().iter().any(unverified)) && changes.changed().await.is_ok() {}
        };
        // After the bound it is said how far it has come.
        let _ = tokio::time::timeout(bound, verified).await;
    }

    /// The data that would be lost with this node now, as far as it knows.
    pub fn sole(&self) -> Vec<Sole> {
        report::sole(&self.driver)
    }

    /// The same, once others had time, `bound` at most, to show what they hold.
    pub async fn verified_sole(&self, bound: Duration) -> Vec<Sole> {
        let unverified = || self.driver.look(|core| core.sole_chunks() > core.unclaimed_chunks());
        let inquire = || self.driver.apply(Input::Inquire { times: 1, purpose: Purpose::Leave });
        wait_while(|| unverified().then(inquire).is_some(), bound).await;
        self.sole()
    }

    /// Hands over the chunks that only it holds, announces its departure, and stops serving peers,
    /// within `bound`.
    pub async fn leave(&self, bound: Duration) -> Leaving {
        let left = self.hand_over(bound).await;
        self.driver.apply(Input::Gone);
        self.driver.links.close();
        left
    }

    /// Announces its departure without handing anything over: the next process of this node has its
    /// stores at once.
    pub fn depart(&self) {
        self.driver.apply(Input::Gone);
    }

    /// Does not go after all, after [`Node::hand_over`].
    pub fn stay(&self) {
        self.driver.apply(Input::Stay);
    }

    /// Says that it is about to go, and waits, for at most `bound`, until others have what only it
    /// holds. It then goes with [`Node::leave`] or [stays](Node::stay).
    pub async fn hand_over(&self, bound: Duration) -> Leaving {
        let sole = || self.driver.look(|core| core.sole_chunks());
        let alone = || self.driver.look(|core| core.members().len() == 1);
        // What others hold but did not show yet is not handed over.
        let before = self.driver.look(Core::unclaimed_chunks);
        self.driver.apply(Input::Leave);
        wait_while(|| sole() > 0 && !alone(), bound).await;
        let lost = sole();
        Leaving { handed_over: before.saturating_sub(lost), lost }
    }

    /// Enters the field. True if it is empty, and this node is its first one, with what it serves
    /// or holds.
    async fn enter_or_begin(&self, search: &Search<'_>) -> Result<bool, StartError> {
        let config = &self.config;
        // A node with trusted signers needs a signature first, which only others have.
        let has_some = config.trusted.is_none() && search.held_here().is_ok();
        let begins = config.founds || has_some;
        let patience = if begins { Some(Duration::ZERO) } else { config.retry };
        let addrs = Arc::new(BootstrapAddrs::new(config, self.listening));
        self.spawn(Arc::clone(&addrs).follow(Arc::clone(&self.driver)));
        let entered = entry::enter(&self.driver, &addrs, patience).await;
        self.spawn(whereabouts::watch(Arc::clone(&self.driver), config.bootstrap.clone()));
        let tried = match entered {
            Ok(met) => {
                search.ask_first(met);
                return Ok(false);
            }
            Err(tried) => tried,
        };
        if let Some(addr) = tried.iter().find_map(|(_, error)| error.twin()) {
            return Err(StartError::Twin { addr });
        }
        let tried: Vec<_> = tried.into_iter().map(|(addr, error)| (addr, error.to_string())).collect();
        if !begins {
            return Err(StartError::Bootstrap { tried });
        }
        let failed = |(addr, why)| Event::BootstrapFailed { addr, why, is_news: true };
        tried.into_iter().map(failed).for_each(|event| self.driver.event(event));
        Ok(true)
    }
}

/// Waits while something is so, for at most `bound`. What others hold is announced by gossip, so
/// there is no single event to wait for.
async fn wait_while(mut is_so: impl FnMut() -> bool, bound: Duration) {
    let end = Instant::now() + bound;
    while is_so() && Instant::now() < end {
        tokio::time::sleep(LEAVE_POLL).await;
    }
}

/// The key of the node, and whom it admits.
fn trust(config: &NodeConfig) -> Result<Trust, StartError> {
    let key = match &config.identity {
        Some(identity) => Arc::clone(&identity.key),
        None => {
            let failed = |_| StartError::System { what: "drawing a key", source: ErrorKind::Other.into() };
            Arc::new(NodeKey::draw().map_err(failed)?)
        }
    };
    let admissions = Admissions::new(config.admission_signers.clone(), config.admission.clone());
    let admission = admissions.admission();
    if !admission.admits(&key.key()) {
        return Err(StartError::NotAdmitted { why: not_admitted(&admission, key.node().to_string()) });
    }
    Ok(Trust { key, lasting_key: config.identity.is_some(), admissions })
}

fn core_config(config: &NodeConfig) -> Config {
    Config {
        join_boost: config.join_boost.level(),
        io_timeout: config.io_timeout,
        parallel: config.tuning.parallel,
        read_ahead: config.tuning.read_ahead,
        card_bytes_per_s: config.card_bytes_per_s,
        measured_bytes_per_s: config.measured_bytes_per_s,
        stored_bytes_each_day: config.disk.as_ref().and_then(|disk| disk.each_day_bytes),
        ..Config::default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    let failed =
        |errno: rustix::io::Errno| StartError::System { what: "drawing a random number", source: errno.into() };
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(failed)?;
    Ok(u64::from_le_bytes(bytes))
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
