//! The driver: feeds a core with inputs and carries out its outputs.
//!
//! It owns the core, in a mutex held for one event at a time and never across an await or a system
//! call on a socket. Any task with an event calls it (a reader that misses, a connection that
//! received a chunk), so no event waits for a task switch. Reads that hit never come here.

#[cfg(test)]
mod alone;
mod limiting;
mod outputs;

use crate::admissions::Admissions;
use crate::buffers::Buffers;
use crate::config::Tuning;
use crate::event::{Event, EventSink};
use crate::field_keys::FieldKeys;
use crate::gossip::Gossip;
use crate::greet::Me;
use crate::image::LocalImage;
use crate::limits::Limits;
use crate::links::Links;
use crate::log_limit::LogLimit;
use crate::misdeeds::Misdeeds;
use crate::proofs::Proofs;
use crate::server::{Bounds, Brought, Freed, Gate, Offenders};
use crate::trace::Tracer;
use crate::traffic::Counters;
use crate::whereabouts::Whereabouts;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use vfield_block::source::ReadError;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{Asker, ConnectionId, Token};
use vfield_core::image::ImageId;
use vfield_core::misdeed::Misdeed;
use vfield_core::node::{ImageConfig, Input, Node as Core, Output, Serve};
use vfield_core::pursuit::Account;
use vfield_core::time::Time;
use vfield_core::wire::{DialledBack, Refusal};
use vfield_trust::{KeyRing, NodeKey};

/// The core's answer to a peer's request, for the peer's connection.
#[derive(Debug)]
pub enum Reply {
    /// A chunk that is in the store now.
    Chunk(Serve),
    /// A refusal, to this asker.
    Refuse(Asker, Refusal),
    /// What this node says of a chunk, to this asker.
    Account(Asker, Account),
    /// A chunk of an object came, or not.
    Brought(Brought),
    /// The limit of its image lets an answer go.
    Freed(Freed),
    /// The result of dialling back; `None` if it was refused.
    DialledBack(u64, Option<DialledBack>),
}

/// The core, and when it is to be woken.
struct Machine {
    core: Core,
    /// When [`Driver::run`] is going to wake it.
    armed: Option<Time>,
    /// When it was woken last.
    woken: Time,
}

impl Machine {
    /// When it is to be woken next; work due at `now` is not put off.
    fn wake_at(&self, now: Time) -> Option<Time> {
        let at = self.core.next_wake()?;
        Some(if at <= now { at } else { at.max(self.woken + WAKE_EVERY) })
    }
}

/// Shortest interval between wake-ups for the core's timers. It has one for each request under way,
/// which would otherwise wake the process nearly a thousand times a second. Its shortest timer is
/// 50 ms.
const WAKE_EVERY: Duration = Duration::from_millis(5);
/// A pause without an end, in a form that no timer overflows with.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Who a node is, and whom it admits.
pub struct Trust {
    /// The key of the node.
    pub key: Arc<NodeKey>,
    /// True if it was not drawn for this process.
    pub lasting_key: bool,
    /// The admission list.
    pub admissions: Admissions,
}

/// The owner of a core, shared by all tasks of a node.
pub struct Driver {
    machine: Mutex<Machine>,
    start: Instant,
    images: RwLock<BTreeMap<ImageId, Arc<LocalImage>>>,
    /// The memory of chunks that pass through.
    pub buffers: Arc<Buffers>,
    readers: Mutex<HashMap<Token, oneshot::Sender<Result<(), ReadError>>>>,
    connections: Mutex<HashMap<ConnectionId, mpsc::UnboundedSender<Reply>>>,
    numbers: AtomicU64,
    wake: Notify,
    /// Counts changes that tasks wait for: fills, coverage.
    changes: watch::Sender<u64>,
    hints: mpsc::UnboundedSender<Input>,
    warnings: Mutex<Vec<String>>,
    /// Connections to peers.
    pub links: Links,
    /// True if chunks are compressed for peers on slow links.
    pub compresses: bool,
    /// True if this node tells others what its machine reads first, and prefetches what they read.
    pub learns: bool,
    /// Limits of the transfer, by direction.
    pub limits: Limits,
    /// Counters of transferred bytes.
    pub counters: Counters,
    /// The keys of the field.
    pub keys: Arc<FieldKeys>,
    /// The key of this node.
    pub key: Arc<NodeKey>,
    /// True if an earlier process had this key too.
    pub lasting_key: bool,
    /// The admission list in force.
    pub admissions: Admissions,
    /// The address of another process with this node's key, once this one yields to it.
    pub outdone: watch::Sender<Option<SocketAddr>>,
    /// Counts the tags that this node learned.
    pub tagged: watch::Sender<u64>,
    /// Counts the images that were found to be rubbish that may go.
    pub due: watch::Sender<u64>,
    /// Signatures of the images.
    pub proofs: Proofs,
    /// Misconduct on connections.
    pub misdeeds: Arc<Misdeeds>,
    /// The bounds on connections.
    pub gate: Arc<Gate>,
    /// Addresses whose connections broke the protocol.
    pub offenders: Offenders,
    /// The announced address of this node, and the reachable ones of others.
    pub whereabouts: Whereabouts,
    /// Where a trace of this node goes while somebody records one.
    pub tracer: Tracer,
    /// Limits the log lines about liars.
    log_limit: LogLimit,
    gossip: Gossip,
    events: EventSink,
}

/// Most warnings kept for `status`.
const WARNINGS_MAX: usize = 100;

impl Driver {
    /// Drives `core`, whose time starts now, with the members that `gossip` serves. `guessed` is
    /// true unless its address was configured. The second value belongs to [`Driver::run`].
    pub fn new(
        core: impl FnOnce(Time) -> Core,
        gossip: Gossip,
        keys: Arc<FieldKeys>,
        Trust { key, lasting_key, admissions }: Trust,
        tuning: Tuning,
        guessed: bool,
        events: EventSink,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Input>) {
        let (hints, hinted) = mpsc::unbounded_channel();
        let misdeeds = Arc::<Misdeeds>::default();
        let driver = Self {
            machine: Mutex::new(Machine { core: core(Time::ZERO), armed: None, woken: Time::ZERO }),
            start: Instant::now(),
            images: RwLock::default(),
            buffers: Arc::default(),
            readers: Mutex::default(),
            connections: Mutex::default(),
            numbers: AtomicU64::new(1),
            wake: Notify::new(),
            changes: watch::Sender::new(0),
            hints,
            warnings: Mutex::default(),
            links: Links::new(&tuning),
            compresses: tuning.compression,
            learns: tuning.learning,
            limits: Limits::default(),
            counters: Counters::default(),
            keys,
            key,
            lasting_key,
            admissions,
            outdone: watch::Sender::new(None),
            tagged: watch::Sender::new(0),
            due: watch::Sender::new(0),
            proofs: Proofs::default(),
            gate: Gate::new(Bounds::of_process(), Arc::clone(&misdeeds)),
            misdeeds,
            offenders: Offenders::default(),
            whereabouts: Whereabouts::new(guessed),
            tracer: Tracer::default(),
            log_limit: LogLimit::default(),
            gossip,
            events,
        };
        (Arc::new(driver), hinted)
    }

    /// Wakes the core when it is due, and takes in hints; never returns.
    pub async fn run(self: Arc<Self>, mut hinted: mpsc::UnboundedReceiver<Input>) {
        let mut pause = pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            tokio::select! {
                biased;
                Some(hint) = hinted.recv() => {
                    self.apply(hint);
                    continue;
                }
                () = self.wake.notified() => {}
                () = &mut pause => drop(self.drive(|machine, now, _| {
                    (machine.armed, machine.woken) = (None, now);
                    machine.core.handle(now, Input::Wake);
                })),
            }
            let armed = lock(&self.machine).armed;
            let at = armed.map_or(FOREVER, Time::since_start);
            pause.as_mut().reset((self.start + at.min(FOREVER)).into());
        }
    }

    /// Receives gossip; never returns.
    pub async fn gossip(self: Arc<Self>) {
        loop {
            let (datagram, from) = self.gossip.receive().await;
            self.limits.down.charge(datagram.len() as u64);
            self.apply(Input::Datagram(from, datagram));
        }
    }

    /// Gives the core an input and carries out its outputs.
    pub fn apply(self: &Arc<Self>, input: Input) {
        self.apply_all([input]);
    }

    /// Gives the core inputs, in order, and carries out the outputs of all of them together. So a
    /// peer gets its requests in one write, and each task is woken at most once.
    pub fn apply_all(self: &Arc<Self>, inputs: impl IntoIterator<Item = Input>) {
        let sooner = self.drive(|machine, now, outputs| {
            for input in inputs {
                let input = self.still_true(&machine.core, input);
                if self.tracer.is_on() {
                    self.tracer.input(now, &input);
                }
                machine.core.handle(now, input);
                // What an input evicts is gone before the next one is looked at.
                self.take_outputs(machine, now, outputs);
            }
        });
        if sooner {
            self.wake.notify_one();
        }
    }

    /// Joins an image.
    pub fn add_image(self: &Arc<Self>, image: Arc<LocalImage>, config: ImageConfig) {
        let id = config.id;
        let bounds = self.bounds_of(&image);
        self.images.write().unwrap_or_else(PoisonError::into_inner).insert(id, image);
        self.with_core(|core, now| {
            core.add_image(now, config);
            core.handle(now, Input::BoundsOf(id, bounds));
        });
    }

    /// Leaves an image.
    pub fn drop_image(self: &Arc<Self>, id: ImageId) {
        let dropped = self.images.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        dropped.iter().for_each(|image| image.set_dropped());
        self.apply(Input::Drop(id));
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Gives a store its own copies of the chunks that `lender`, which has ended, has lent to it. A
    /// few at a time: evictions keep step with the core, so it waits for each.
    pub fn come_home(&self, image: &LocalImage, lender: ImageId) {
        for chunk in image.store().lent_by(lender) {
            let machine = lock(&self.machine);
            let home = image.store().come_home(chunk);
            drop(machine);
            if let Err(error) = home {
                tracing::warn!(%error, %chunk, "no memory for a chunk of a dropped image");
            }
        }
    }

    /// Queues an input for the core: for callers that must not wait for the network side.
    pub fn hint(&self, input: Input) {
        // The receiver lives as long as the node; after it nobody needs hints.
        let _ = self.hints.send(input);
    }

    /// Has the core note each move of a fetch, or none any more; see [`Tracer::moves`].
    pub fn note_moves(&self, noted: bool) {
        lock(&self.machine).core.note_moves(noted);
    }

    /// Looks into the core.
    pub fn look<T>(&self, look: impl FnOnce(&Core) -> T) -> T {
        look(&lock(&self.machine).core)
    }

    /// What this node shows of itself in a greeting.
    pub fn me(&self) -> Me {
        let (member, latest) = self.look(|core| (*core.myself(), core.latest()));
        let (key, keys, admission) = (Arc::clone(&self.key), self.keys.ring(), self.admissions.admission());
        let carrying = Arc::clone(&self.whereabouts.carrying);
        Me { member, latest, key, keys, admission, carrying, guest: false }
    }

    /// The image with this id, if this node takes part in it.
    pub fn image(&self, id: ImageId) -> Option<Arc<LocalImage>> {
        self.images.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// All images that this node takes part in.
    pub fn images(&self) -> Vec<Arc<LocalImage>> {
        self.images.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The length of the longest chunk that any answer can have.
    pub fn chunk_bytes_max(&self) -> u64 {
        let images = self.images.read().unwrap_or_else(PoisonError::into_inner);
        images.values().map(|image| image.geometry().chunk_bytes()).max().unwrap_or_default()
    }

    /// A number never given before: for tokens and connections.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until the core answers a reader's token.
    pub fn expect(&self, token: Token) -> oneshot::Receiver<Result<(), ReadError>> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.readers).insert(token, sender);
        receiver
    }

    /// Ends the wait for this token.
    pub fn give_up(self: &Arc<Self>, token: Token) {
        if lock(&self.readers).remove(&token).is_some() {
            self.apply(Input::CancelRead(token));
        }
    }

    /// Replies for this connection go there, until [`Driver::close`].
    pub fn open(&self, connection: ConnectionId) -> mpsc::UnboundedReceiver<Reply> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.connections).insert(connection, sender);
        receiver
    }

    /// A peer's connection to us has ended.
    pub fn close(self: &Arc<Self>, connection: ConnectionId) {
        lock(&self.connections).remove(&connection);
        self.apply(Input::AskerGone(connection));
    }

    /// Changes each time something happens that [`crate::node::Condition`]s depend on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).clone()
    }

    /// Logs a warning and keeps it for `status`.
    pub fn warn(&self, warning: String) {
        let mut warnings = lock(&self.warnings);
        if warnings.len() == WARNINGS_MAX {
            warnings.remove(0);
        }
        warnings.push(warning.clone());
        drop(warnings);
        (self.events)(Event::Warning(warning));
    }

    /// Replaces the keys. Peers with none of them are disconnected, and their datagrams are
    /// dropped.
    pub fn replace_keys(&self, ring: KeyRing) {
        self.keys.replace(ring);
        self.gossip.keys_changed();
        self.links.close_strangers(&self.keys);
    }

    /// Logs a rejected node, unless its address was logged a moment ago.
    pub fn turned_away(&self, addr: SocketAddr) {
        if self.keys.turned_away(addr) {
            self.warn(format!("{} rejected: it does not have the field's key", addr.ip()));
        }
    }

    /// Notes that an incoming connection broke the protocol: `how`, in words. Its address is
    /// charged, since anybody can have opened it.
    pub fn broke_in(&self, addr: SocketAddr, how: &str) {
        self.misdeeds.add(Misdeed::BrokenFrames);
        self.offenders.charge(addr.ip(), Instant::now());
        if self.log_limit.allows(addr.ip()) {
            self.warn(format!("{} {how}", addr.ip()));
        }
    }

    /// Passes an event on to the log.
    pub fn event(&self, event: Event) {
        (self.events)(event);
    }

    /// Time as the core counts it.
    pub fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    fn with_core(self: &Arc<Self>, change: impl FnOnce(&mut Core, Time)) {
        if self.drive(|machine, now, _| change(&mut machine.core, now)) {
            self.wake.notify_one();
        }
    }

    /// Changes the core; true if it is to be woken sooner than [`Driver::run`] knows.
    fn drive(self: &Arc<Self>, change: impl FnOnce(&mut Machine, Time, &mut Vec<Output>)) -> bool {
        let mut outputs = Vec::new();
        let mut machine = lock(&self.machine);
        let now = self.now();
        change(&mut machine, now, &mut outputs);
        // Work that is due at once, like a store's next requests, needs no task switch.
        if machine.core.next_wake().is_some_and(|at| at <= now) {
            machine.core.handle(now, Input::Wake);
        }
        self.take_outputs(&mut machine, now, &mut outputs);
        let at = machine.wake_at(now);
        let sooner = at.is_some_and(|at| machine.armed.is_none_or(|armed| at < armed));
        if sooner {
            machine.armed = at;
        }
        drop(machine);
        self.perform(outputs);
        sooner
    }

    /// Carries out the outputs that keep step with the core, and adds the others to `outputs`.
    fn take_outputs(&self, machine: &mut Machine, now: Time, outputs: &mut Vec<Output>) {
        let traced = self.tracer.is_on();
        if traced {
            self.tracer.moves(now, &mut machine.core);
        }
        while let Some(output) = machine.core.poll() {
            if traced {
                self.tracer.output(now, &output);
            }
            match output {
                // In step with the core, or a chunk that comes back meanwhile would be dropped too.
                Output::Evict(image, chunk) => self.evict(image, chunk),
                Output::Stored(image, chunk) => self.settle(image, chunk),
                // Or an earlier one would be the last to be written.
                Output::Committed(image, commitment) => self.commit(image, commitment),
                other => outputs.push(other),
            }
        }
    }

    /// The input as it is true now, under the machine's lock. Chunks are evicted under that lock
    /// only, so a chunk stored a moment ago may have gone meanwhile, and must not be counted. An
    /// admission list may have been replaced by a later one.
    fn still_true(&self, core: &Core, input: Input) -> Input {
        let resident = |id: ImageId, chunk: Chunk| {
            self.image(id).is_some_and(|image| image.store().is_resident(chunk) || image.store().is_zero(chunk))
        };
        match input {
            Input::Arrived { request, .. }
                if core.asked_for(request).is_some_and(|(id, chunk)| !resident(id, chunk)) =>
            {
                Input::Unusable(request)
            }
            Input::Found { image, mut chunks, zeros } => {
                chunks.retain(|chunk| resident(image, *chunk));
                Input::Found { image, chunks, zeros }
            }
            // Of two lists that came at once, the earlier one may come here last.
            Input::Admission(_) => Input::Admission(self.admissions.admission()),
            other => other,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
