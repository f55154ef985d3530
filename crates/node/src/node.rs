//! A running node: starts the parts, hands out its images, says how it is, leaves.

mod report;
mod start_error;

pub use start_error::StartError;

use crate::bootstrap;
use crate::changed;
use crate::config::{NodeConfig, StoreSize};
use crate::driver::Driver;
use crate::entry::{self, Patience};
use crate::event::{Event, EventSink};
use crate::field_keys::FieldKeys;
use crate::gossip::Gossip;
use crate::image::LocalImage;
use crate::keeper::KeptStores;
use crate::lobby;
use crate::namesakes;
use crate::naming::{Chosen, Known, Search};
use crate::origin::{Origin, Progress, PublishError};
use crate::proofs;
use crate::reader::ImageReader;
use crate::server;
use crate::status::{Sole, Status};
use crate::store::found::Found;
use crate::store::{Inserted, Store};
use crate::survey;
use crate::{waits, whereabouts};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use vfield_core::config::Config;
use vfield_core::hash_tree;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::names::Names;
use vfield_core::node::{ImageConfig, Input, Node as Core};
use vfield_core::source::BlockSource;
use vfield_core::wire::Proof;
use vfield_trust::KeyRing;

/// How often a leaving node looks whether others have taken over.
const LEAVE_POLL: Duration = Duration::from_millis(50);
/// How often it is looked whether a condition holds that no event tells of: counting copies takes a millisecond or so.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often the progress of hashing is reported.
const HASH_REPORTS: Duration = Duration::from_millis(200);
/// How often the progress of a fill is reported.
const FILL_REPORTS: Duration = Duration::from_millis(250);

/// A node that was started without a field key cannot be given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node was started without a field key")]
pub struct OpenField;

/// A state that `status --wait` can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// This node's stores hold all they are to hold.
    Filled,
    /// The stores of the field hold every image of this node so many times, origins not counted.
    Covered(u64),
}

/// How a leave went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    /// Chunks that only this node held and that others have taken over.
    pub handed_over: u64,
    /// Chunks that only this node holds and nobody took within the bound.
    pub lost: u64,
}

/// An image of a node, to be read.
#[derive(Clone)]
pub struct NodeImage {
    /// Which.
    pub id: ImageId,
    /// Its bytes, and what it is called here.
    pub source: Arc<dyn BlockSource>,
}

/// One running node. Dropping it ends it at once; [`Node::leave`] is the polite way.
pub struct Node {
    driver: Arc<Driver>,
    images: Vec<NodeImage>,
    listening: SocketAddr,
    started: Instant,
    /// What the stores of joined images may come to take up.
    committed_bytes: u64,
    /// Ended with the node.
    tasks: JoinSet<()>,
}

impl Node {
    /// Publishes, listens, joins; returns once its images can be read (they need not be filled).
    pub async fn start(config: NodeConfig, events: EventSink) -> Result<Self, StartError> {
        let (listener, udp, listening) = listen(&config).await?;
        events(Event::Listening { addr: listening });
        let keys = Arc::new(FieldKeys::new(config.field_keys.clone()));
        let percent = Arc::new(AtomicU32::new(0));
        let origins = tokio::select! {
            origins = publish(&config, &events, &percent) => origins?,
            never = lobby::keep(&listener, &keys, &percent) => match never {},
        };
        let (addr, zone) = (advertised(&config, listening), config.zone);
        let me = Identity { addr, node: NodeId(random()?), generation: now_ms(), zone };
        let (pool, seed) = (config.tuning.pool, random()?);
        let core_config = core_config(&config);
        let gossip = Gossip::new(udp, Arc::clone(&keys));
        let core = |now| Core::new(me, core_config, seed, now);
        let (driver, hints) = Driver::new(core, gossip, keys, pool, guesses(&config, listening), Arc::clone(&events));
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&driver).run(hints));
        tasks.spawn(Arc::clone(&driver).gossip());
        tasks.spawn(server::accept(Arc::clone(&driver), listener));
        driver.apply(Input::Doors(config.bootstrap.clone()));

        let mut node =
            Self { driver, images: Vec::new(), listening, started: Instant::now(), committed_bytes: 0, tasks };
        let taken_part = node.take_part(&config, origins, &events).await;
        if taken_part.is_err() {
            // Others may know this node by now: it does not stay in their lists as one that died.
            node.driver.apply(Input::Gone);
        }
        taken_part?;
        node.tasks.spawn(report_fills(Arc::clone(&node.driver)));
        node.tasks.spawn(namesakes::watch(Arc::clone(&node.driver)));
        node.tasks.spawn(waits::tell(Arc::clone(&node.driver)));
        Ok(node)
    }

    /// Enters the field, and adds the images to it that this node serves, and to itself those it joins.
    async fn take_part(
        &mut self,
        config: &NodeConfig,
        origins: Vec<Published>,
        events: &EventSink,
    ) -> Result<(), StartError> {
        let mut kept = KeptStores::take(config.keeper.clone());
        let joins = config.serve.is_empty() || !config.join.is_empty();
        let held = if joins { kept.known() } else { Vec::new() };
        let driver = Arc::clone(&self.driver);
        let (wanted, met, trusted) = (&config.join[..], &config.bootstrap[..], config.trusted.as_ref());
        let search = Search { driver: &driver, wanted, held: &held, met, trusted };
        let patience = Patience::of(config.retry);
        let alone = self.enter_or_begin(config, &search).await?;
        for published in origins {
            self.prove(&published);
            self.serve(published, &search).await?;
        }
        if joins {
            for chosen in search.find(alone, patience).await? {
                if trusted.is_none() {
                    let passing = proofs::pass_on(Arc::clone(&driver), chosen.known.clone(), met.to_vec());
                    self.tasks.spawn(passing);
                }
                self.join(chosen, config, &mut kept, events)?;
            }
        }
        kept.drop_rest();
        kept.refused.into_iter().for_each(|refused| self.driver.warn(refused));
        Ok(())
    }

    /// The images it serves or has joined, in the order of the configuration.
    pub fn images(&self) -> Vec<NodeImage> {
        self.images.clone()
    }

    /// Where it listens.
    pub fn listening(&self) -> SocketAddr {
        self.listening
    }

    /// Goes on with other field keys: who has none of them is hung up on. Nothing but a start opens or closes a field.
    pub fn replace_keys(&self, ring: KeyRing) -> Result<(), OpenField> {
        if self.driver.keys.ring().is_none() {
            return Err(OpenField);
        }
        self.driver.replace_keys(ring);
        Ok(())
    }

    /// Its view at this moment.
    pub fn status(&self) -> Status {
        report::status(&self.driver, self.started.elapsed())
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
            // Second copies that others hold come with gossip, of which no event tells.
            if let Ok(Err(_)) = tokio::time::timeout(LOOK_EVERY, changes.changed()).await {
                return;
            }
        }
    }

    /// What would be lost with this node now, as far as it knows.
    pub fn sole(&self) -> Vec<Sole> {
        report::sole(&self.driver)
    }

    /// Hands over what only it holds, tells the field, and stops serving peers; takes at most `bound`.
    pub async fn leave(&self, bound: Duration) -> Leaving {
        let left = self.hand_over(bound).await;
        self.driver.apply(Input::Gone);
        self.driver.links.close();
        left
    }

    /// Does not go after all, after [`Node::hand_over`].
    pub fn stay(&self) {
        self.driver.apply(Input::Stay);
    }

    /// Says that it is about to go, and waits, for at most `bound`, until others have what only it holds. It then goes with
    /// [`Node::leave`] or [stays](Node::stay).
    pub async fn hand_over(&self, bound: Duration) -> Leaving {
        let sole = || self.driver.look(|core| core.sole_chunks());
        let alone = || self.driver.look(|core| core.members().len() == 1);
        let before = sole();
        self.driver.apply(Input::Leave);
        let end = Instant::now() + bound;
        // What the others announce comes with gossip; there is no single event to wait for.
        while sole() > 0 && !alone() && Instant::now() < end {
            tokio::time::sleep(LEAVE_POLL).await;
        }
        let lost = sole();
        Leaving { handed_over: before.saturating_sub(lost), lost }
    }

    /// Enters the field. True if nobody of it is there, and this node is to be its first one, with what it serves or holds.
    async fn enter_or_begin(&mut self, config: &NodeConfig, search: &Search<'_>) -> Result<bool, StartError> {
        // Who trusts no member wants to see a signature first, which only others have.
        let has_some = config.trusted.is_none() && search.held_here().is_ok();
        let begins = config.founds || has_some;
        let patience = if begins { Some(Duration::ZERO) } else { config.retry };
        let entered = entry::enter(&self.driver, &config.bootstrap, patience).await;
        if !config.bootstrap.is_empty() {
            self.tasks.spawn(whereabouts::watch(Arc::clone(&self.driver), config.bootstrap.clone()));
        }
        let Err(tried) = entered else { return Ok(false) };
        let tried: Vec<_> = tried.into_iter().map(|(addr, error)| (addr, error.to_string())).collect();
        if !begins {
            return Err(StartError::Bootstrap { tried });
        }
        tried.into_iter().for_each(|(addr, why)| self.driver.event(Event::BootstrapFailed { addr, why }));
        Ok(true)
    }

    /// Hands out signatures of an image that it serves, as far as they are such.
    fn prove(&self, Published { names, origin, proofs }: &Published) {
        let known = Known { id: origin.id(), names: names.clone(), header: *origin.header() };
        for proof in proofs {
            if proofs::is_about(proof, &known) && proof.fits() {
                self.driver.proofs.keep(known.id, proof.clone(), None);
            } else {
                self.driver.warn(format!("{names}: its signature is one of another image or name"));
            }
        }
    }

    /// Serves an image, unless the field has another one of its name.
    async fn serve(&mut self, published: Published, search: &Search<'_>) -> Result<(), StartError> {
        let Published { names, origin, .. } = published;
        let (id, header) = (origin.id(), *origin.header());
        for name in names.iter() {
            if let Some(other) = search.namesake(name, id).await {
                return Err(StartError::NameOfAnother { name: name.to_owned(), id, other });
            }
        }
        let image = Arc::new(LocalImage::origin(names.clone(), self.store(id, header)?, origin));
        self.tasks.spawn(changed::watch(Arc::clone(&self.driver), Arc::clone(&image)));
        self.add(image, ImageConfig { id, names, header, origin: true, capacity_bytes: 0, kept: None });
        Ok(())
    }

    fn join(
        &mut self,
        chosen: Chosen,
        config: &NodeConfig,
        kept: &mut KeptStores,
        events: &EventSink,
    ) -> Result<(), StartError> {
        let Chosen { known: Known { id, names, header }, here, page } = chosen;
        let geometry = Geometry::new(header);
        let all = geometry.chunks() * geometry.chunk_bytes();
        let capacity_bytes = match config.store {
            StoreSize::All => all,
            StoreSize::Percent(share) => (all as f64 * share.clamp(0.0, 100.0) / 100.0).ceil() as u64,
            StoreSize::Bytes(bytes) => bytes.min(all),
        };
        let found = kept.of(id, &header);
        let (asked, room) = (capacity_bytes, config.stores_max_bytes.filter(|_| found.is_none()));
        let capacity_bytes = room.map_or(asked, |most| most.saturating_sub(self.committed_bytes).min(asked));
        let [needed, default_bytes] =
            [capacity_bytes, asked].map(|bytes| bytes.min(geometry.stored_max() * geometry.chunk_bytes()));
        self.committed_bytes += needed;
        let memory_bytes = memory_bytes();
        if needed > memory_bytes {
            return Err(StartError::StoreTooLarge { wanted_bytes: needed, memory_bytes });
        }
        let (store, found) = match found {
            Some((store, found)) => (store, Some(found)),
            None => {
                let store = self.store(id, header)?;
                kept.keep(&store);
                (store, None)
            }
        };
        let name = here.to_string();
        let image = Arc::new(LocalImage::joined(here, store));
        let commitment = found.as_ref().map(|found| found.commitment);
        let of_image = ImageConfig { id, names, header, origin: false, capacity_bytes, kept: commitment };
        self.add(Arc::clone(&image), of_image);
        // What an earlier process has left has its own.
        if let Some(page) = page.filter(|_| found.is_none()) {
            self.put(&image, &page);
        }
        if let Some(Found { runs, commitment }) = found {
            self.tasks.spawn(survey::run(Arc::clone(&self.driver), image, runs, commitment.from));
        }
        let size_bytes = header.length_bytes();
        events(Event::Joined { image: name.clone(), id: id.to_string(), size_bytes, capacity_bytes: needed });
        if needed < default_bytes {
            events(Event::Capped { image: name, capacity_bytes: needed, default_bytes });
        }
        Ok(())
    }

    /// Puts the top page, which has proved the image, where all others are.
    fn put(&self, image: &LocalImage, page: &[u8]) {
        let (store, geometry) = (image.store(), image.geometry());
        match store.insert(geometry.top(), page) {
            Ok(Inserted::New) => {
                let zeros = hash_tree::zero_children(geometry, store.zeros(), geometry.top(), page);
                self.driver.apply(Input::Found { image: image.id(), chunks: vec![geometry.top()], zeros });
            }
            // Then it is fetched like any other.
            Ok(Inserted::Already | Inserted::Busy) => {}
            Err(error) => tracing::warn!(%error, "no memory for a chunk"),
        }
    }

    fn add(&mut self, image: Arc<LocalImage>, config: ImageConfig) {
        let id = config.id;
        self.driver.add_image(Arc::clone(&image), config);
        self.images.push(NodeImage { id, source: Arc::new(ImageReader::new(Arc::clone(&self.driver), image)) });
    }

    fn store(&self, id: ImageId, header: Header) -> Result<Arc<Store>, StartError> {
        Store::new(id, &Geometry::new(header)).map_err(|error| StartError::System {
            what: "making a store",
            source: std::io::Error::other(error.to_string()),
        })
    }
}

/// An image that is to be served: files of the same content are one, of several names.
struct Published {
    names: Names,
    origin: Origin,
    proofs: Vec<Proof>,
}

/// Hashes all files that are to be served.
async fn publish(
    config: &NodeConfig,
    events: &EventSink,
    percent: &Arc<AtomicU32>,
) -> Result<Vec<Published>, StartError> {
    let mut origins: Vec<Published> = Vec::new();
    let files = config.serve.len() as u64;
    for (serve, hashed) in config.serve.clone().into_iter().zip(0u64..) {
        let percent = Arc::clone(percent);
        let proof = serve.proof.clone();
        let (events, threads) =
            (Arc::clone(events), NonZeroUsize::new(config.hash_threads).unwrap_or(NonZeroUsize::MIN));
        let path = serve.path.clone();
        let hashing = tokio::task::spawn_blocking(move || {
            let file_name = || serve.path.file_name().map(|name| name.to_string_lossy().into_owned());
            let image = serve.name.clone().or_else(file_name).unwrap_or_default();
            let reported = Mutex::new(Instant::now());
            let progress = |progress: Progress| {
                let part = u128::from(progress.position_bytes) * 100 / u128::from(progress.length_bytes.max(1));
                percent.store(((u128::from(hashed) * 100 + part) / u128::from(files)) as u32, Ordering::Relaxed);
                // Whoever finds it locked comes a moment after one that reports.
                let Ok(mut last) = reported.try_lock() else { return };
                if last.elapsed() < HASH_REPORTS {
                    return;
                }
                *last = Instant::now();
                let (done_bytes, total_bytes) = (progress.position_bytes, progress.length_bytes);
                events(Event::Hashing { image: image.clone(), done_bytes, total_bytes });
            };
            let origin = Origin::publish(&serve.path, serve.name.as_deref(), serve.chunk_size, threads, &progress)?;
            let (id, size_bytes) = (origin.id().to_string(), origin.header().length_bytes());
            events(Event::Hashing { image: image.clone(), done_bytes: size_bytes, total_bytes: size_bytes });
            events(Event::Published { image, id, size_bytes });
            Ok(origin)
        });
        let published = hashing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let origin = published.map_err(|error: PublishError| StartError::Publish { path, why: error.to_string() })?;
        let name = origin.name();
        if origins.iter().any(|other| other.names.contains(name) && other.origin.id() != origin.id()) {
            return Err(StartError::NameTaken(name.to_owned()));
        }
        match origins.iter_mut().find(|other| other.origin.id() == origin.id()) {
            Some(same) => {
                same.names = Names::of(same.names.iter().chain([name]))?;
                same.proofs.extend(proof);
            }
            None => origins.push(Published { names: Names::of([name])?, proofs: proof.into_iter().collect(), origin }),
        }
    }
    Ok(origins)
}

/// Binds both sockets to one port.
async fn listen(config: &NodeConfig) -> Result<(TcpListener, UdpSocket, SocketAddr), StartError> {
    let bind = async |wanted: SocketAddr| {
        let listener = TcpListener::bind(wanted).await?;
        let addr = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, UdpSocket::bind(addr).await?, addr))
    };
    let failed = |source| StartError::Listen { addr: config.listen, source };
    match bind(config.listen).await {
        Err(error) if config.any_port && error.kind() == ErrorKind::AddrInUse => {
            // The free TCP port may be taken for UDP; a few tries find one that is free for both.
            let mut last = error;
            for _ in 0..8 {
                match bind(SocketAddr::new(config.listen.ip(), 0)).await {
                    Ok(bound) => return Ok(bound),
                    Err(error) => last = error,
                }
            }
            Err(failed(last))
        }
        bound => bound.map_err(failed),
    }
}

/// True if nobody said which address others are to be told.
const fn guesses(config: &NodeConfig, listening: SocketAddr) -> bool {
    !config.advertised && listening.ip().is_unspecified()
}

/// The address that others are told.
fn advertised(config: &NodeConfig, listening: SocketAddr) -> SocketAddr {
    // Where no other node is known yet, the way to anywhere outside is the best guess (TEST-NET-1, RFC 5737).
    const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
    if let Some(addr) = config.advertise {
        return SocketAddr::new(addr.ip(), if addr.port() == 0 { listening.port() } else { addr.port() });
    }
    if !listening.ip().is_unspecified() {
        return listening;
    }
    let towards = config.bootstrap.first().copied().unwrap_or(ELSEWHERE);
    let ip = bootstrap::local_towards(towards).filter(|ip| !ip.is_unspecified());
    SocketAddr::new(ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), listening.port())
}

fn core_config(config: &NodeConfig) -> Config {
    Config {
        join_boost: config.join_boost.level(),
        io_timeout: config.io_timeout,
        parallel: config.tuning.parallel,
        round_robin: config.tuning.round_robin,
        read_ahead: config.tuning.read_ahead,
        ..Config::default()
    }
}

/// Says how far fills have come, until all are done.
async fn report_fills(driver: Arc<Driver>) {
    while !driver.look(Core::is_filled) {
        tokio::time::sleep(FILL_REPORTS).await;
        for view in driver.look(Core::images).into_iter().filter(|view| !view.filled) {
            let Some(image) = driver.image(view.id) else { continue };
            let goal = view.capacity.min(image.geometry().stored_max());
            let [held_bytes, goal_bytes] = [view.stored, goal].map(|chunks| chunks * image.geometry().chunk_bytes());
            driver.event(Event::Filling { image: view.name, held_bytes, goal_bytes });
        }
    }
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

/// This machine's memory.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)))
}
