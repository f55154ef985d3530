//! The field: machines, links between them, readers, and the one queue of what happens next.
//!
//! Everything is drawn from one seed and the queue's order is total, so the same calls give the same run,
//! to the last output. Links are FIFO with a delay, a machine's link has a rate, datagrams can be lost.

mod link;

use super::checker;
use super::host::{Fault, Flight, GIGABIT, Host};
use super::original::Original;
use super::reader::Reader;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::config::Config;
use vfield_core::fetch::{Asker, ConnectionId, RequestId, Token};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::node::{ImageConfig, Input, Node, Notice, Output};
use vfield_core::placement::map::mix;
use vfield_core::reach::Reach;
use vfield_core::record::Snapshot;
use vfield_core::time::Time;
use vfield_core::wire::{Priority, Refusal};

pub(super) const DELAY_US: u64 = 150;
const JITTER_US: u64 = 100;
/// How often a machine that owes an answer says that it has not forgotten.
const BEAT: Duration = Duration::from_millis(50);
/// Messages below this size, in bytes, do not queue behind chunks: a link's queue is short and fair.
const SMALL: u64 = 4096;
/// So often a condition is looked at while waiting for it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What travels on a link.
#[derive(Debug, Clone)]
pub(super) enum Message {
    Get { request: RequestId, image: usize, chunk: Chunk, priority: Priority, reach: Reach, insists: bool },
    Cancel(RequestId),
    Data { request: RequestId, wrong: bool },
    Refuse(RequestId, Refusal),
    Redirect(RequestId, NodeId),
    Sync(Snapshot, bool),
    Datagram(Vec<u8>),
}

#[derive(Debug)]
pub(super) enum Event {
    Wake(usize),
    Deliver {
        from: usize,
        to: usize,
        message: Message,
    },
    /// The shell of a machine notices something.
    Notice(usize, Input),
    /// A request has ended without an answer.
    Lost(usize, RequestId),
    /// A message comes to the link of the machine that it is for.
    Cross {
        from: usize,
        to: usize,
        message: Message,
        bytes: u64,
        left: Duration,
    },
    /// A machine tells another, which waits for it, that it has not forgotten.
    Beat {
        from: usize,
        to: usize,
    },
}

/// See the module.
pub struct Field {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub images: Vec<Original>,
    pub readers: Vec<Reader>,
    pub config: Config,
    /// Of each hundred datagrams so many are lost.
    pub loss_percent: u64,
    /// Bytes a second of the links of machines that are started from now on.
    pub rate: u64,
    /// Their zone.
    pub zone: Zone,
    /// How many chunks have come into each zone from others.
    pub crossed: BTreeMap<Zone, u64>,
    pub(super) queue: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    random: u64,
    last_delivery: BTreeMap<(usize, usize), Time>,
    /// Pairs of machines of which the first beats for the second.
    beating: BTreeSet<(usize, usize)>,
    tokens: BTreeMap<Token, usize>,
    /// Requests that a stalled machine has swallowed.
    pub(super) swallowed: Vec<(usize, usize, Message)>,
    trace: blake3::Hasher,
}

impl Field {
    /// No machines yet. The window has 64 chunks, 64 more are kept besides each store.
    pub fn new(seed: u64, images: Vec<Original>) -> Self {
        let config =
            Config { window_bytes: 1 << 20, transient_bytes: 1 << 20, read_ahead_bytes: 1 << 19, ..Config::default() };
        Self {
            now: Time::after_start(Duration::from_secs(1)),
            hosts: Vec::new(),
            images,
            readers: Vec::new(),
            config,
            loss_percent: 0,
            rate: GIGABIT,
            zone: Zone::default(),
            crossed: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            random: mix(seed),
            last_delivery: BTreeMap::new(),
            beating: BTreeSet::new(),
            tokens: BTreeMap::new(),
            swallowed: Vec::new(),
            trace: blake3::Hasher::new(),
        }
    }

    /// A machine that is an origin of `images`; the first one founds the field.
    pub fn origin(&mut self, via: Option<usize>, images: &[usize]) -> usize {
        let host = self.start(via);
        for &image in images {
            self.hosts[host].origin_of.insert(image);
            self.add_image(host, image, true, 0);
        }
        host
    }

    /// A machine that joins through `via` and holds so many chunks of each of `images`.
    pub fn join(&mut self, via: usize, images: &[(usize, u64)]) -> usize {
        let host = self.start(Some(via));
        for &(image, capacity) in images {
            self.add_image(host, image, false, capacity);
        }
        host
    }

    /// A new process at the address of `old`.
    pub fn rejoin(&mut self, old: usize, via: usize, images: &[(usize, u64)]) -> usize {
        let host = self.start_at(self.hosts[old].identity.addr, Some(via));
        for &(image, capacity) in images {
            self.add_image(host, image, false, capacity);
        }
        host
    }

    /// A machine that has met `via` and takes part in no image yet.
    pub fn start(&mut self, via: Option<usize>) -> usize {
        let index = self.hosts.len();
        self.start_at(SocketAddr::from(([198, 18, (index >> 8) as u8, index as u8], 4000)), via)
    }

    fn start_at(&mut self, addr: SocketAddr, via: Option<usize>) -> usize {
        let index = self.hosts.len();
        let identity = Identity { addr, node: NodeId(self.dice()), generation: 1000 + index as u64, zone: self.zone };
        let node = Node::new(identity, self.config.clone(), self.dice(), self.now);
        self.hosts.push(Host { rate: self.rate, ..Host::new(node, identity) });
        if let Some(via) = via {
            self.link(index, via);
            let (me, other) = (self.hosts[index].identity, self.hosts[via].identity);
            let (mine, theirs) = (self.hosts[index].node.snapshot(&other), self.hosts[via].node.snapshot(&me));
            self.input(via, Input::Learned(mine));
            self.input(index, Input::Learned(theirs));
        }
        self.schedule_wake(index);
        index
    }

    pub fn add_image(&mut self, host: usize, image: usize, origin: bool, capacity: u64) {
        let Original { id, name, geometry, .. } = &self.images[image];
        let capacity_bytes = capacity * geometry.chunk_bytes();
        let config = ImageConfig { id: *id, name: name.clone(), header: *geometry.header(), origin, capacity_bytes };
        self.hosts[host].node.add_image(self.now, config);
        self.settle(host);
    }

    /// A reader on `host` begins to read chunks of an image in order.
    pub fn read(&mut self, host: usize, image: usize, chunks: std::ops::Range<u64>) -> usize {
        let chunk_bytes = self.images[image].geometry.chunk_bytes();
        let ahead = if self.config.read_ahead { self.config.read_ahead_bytes / chunk_bytes } else { 0 };
        let total = self.images[image].geometry.data_chunks();
        self.readers.push(Reader::new(host, image, chunks, total, ahead, self.now));
        let reader = self.readers.len() - 1;
        self.go_on(reader);
        reader
    }

    /// Reads a whole image on each of `hosts` at the same time.
    pub fn read_all(&mut self, hosts: &[usize], image: usize) -> Vec<usize> {
        let data = self.images[image].data();
        hosts.iter().map(|&host| self.read(host, image, data.clone())).collect()
    }

    /// Lets so much time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= end
        {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.happen(event);
        }
        self.now = end;
    }

    /// Lets time pass until something holds, and says how much; panics if it does not within `limit`.
    #[track_caller]
    pub fn until(&mut self, what: &str, limit: Duration, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let start = self.now;
        while !holds(self) {
            assert!(self.now - start < limit, "not within {limit:?}: {what}\n{}", self.describe());
            self.run(LOOK_EVERY);
        }
        self.now - start
    }

    /// Waits until all readers have read all they wanted.
    #[track_caller]
    pub fn until_read(&mut self, readers: &[usize], limit: Duration) -> Duration {
        let took = self.until("readers done", limit, |field| readers.iter().all(|at| field.readers[*at].is_done()));
        for &reader in readers {
            assert_eq!(self.readers[reader].failed, None, "reader {reader} failed");
        }
        took
    }

    /// True if all stores of `hosts` are full.
    pub fn filled(&self, hosts: &[usize]) -> bool {
        hosts.iter().all(|host| self.hosts[*host].node.is_filled())
    }

    /// True if each of `hosts` believes that all its images are covered.
    pub fn covered(&self, hosts: &[usize]) -> bool {
        hosts.iter().all(|host| self.hosts[*host].node.is_covered())
    }

    /// How many chunks of an image no living store holds, in truth.
    pub fn bare(&self, image: usize) -> u64 {
        let original = &self.images[image];
        let holds = |host: &Host, chunk| host.shelf.get(&image).is_some_and(|shelf| shelf.contains(&chunk));
        let held = |chunk| self.hosts.iter().any(|host| host.alive && holds(host, chunk));
        (0..original.chunks()).map(Chunk).filter(|chunk| !original.is_zero(*chunk) && !held(*chunk)).count() as u64
    }

    /// A hash of all outputs so far, with their times.
    pub fn trace(&self) -> blake3::Hash {
        self.trace.finalize()
    }

    /// Each machine's view, for a test that failed.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, host)| host.alive) {
            text += &format!("host {at} ({} flights)\n", host.flights.len());
            for view in host.node.images() {
                let waiting = view.waiting.len();
                text += &format!(
                    "  {}: {} of {} stored, {} transient, filled {}, {:?}, {waiting} waiting {:?}\n",
                    view.name,
                    view.stored,
                    view.capacity,
                    view.transient,
                    view.filled,
                    view.coverage,
                    view.waiting.first()
                );
            }
        }
        for (at, reader) in self.readers.iter().enumerate().filter(|(_, reader)| !reader.is_done()) {
            text += &format!("reader {at} on host {}: at {} of {}\n", reader.host, reader.next, reader.end);
        }
        text
    }

    /// Gives a machine's core an input and does what it says.
    pub fn input(&mut self, host: usize, input: Input) {
        if self.hosts[host].alive {
            self.hosts[host].node.handle(self.now, input);
            self.settle(host);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(host) => {
                if self.hosts[host].wake_at == Some(self.now) {
                    self.hosts[host].wake_at = None;
                    self.input(host, Input::Wake);
                }
            }
            Event::Deliver { from, to, message } => {
                if self.hosts[to].alive {
                    self.receive(from, to, message);
                }
            }
            Event::Cross { from, to, message, bytes, left } => self.cross(from, to, message, bytes, left),
            Event::Notice(host, input) => self.input(host, input),
            Event::Lost(host, request) => {
                if self.hosts[host].flights.remove(&request).is_some() {
                    self.input(host, Input::Lost(request));
                }
            }
            Event::Beat { from, to } => {
                let waits = self.hosts[to].flights.values().any(|flight| flight.to == from);
                if waits && self.hosts[from].alive && self.hosts[to].alive {
                    if self.hosts[from].fault != Fault::Stalled {
                        let node = self.hosts[from].identity.node;
                        self.input(to, Input::Progress(node));
                    }
                    self.after(BEAT, Event::Beat { from, to });
                } else {
                    self.beating.remove(&(from, to));
                }
            }
        }
    }

    pub(super) fn receive(&mut self, from: usize, to: usize, message: Message) {
        if self.hosts[to].fault == Fault::Stalled && matches!(message, Message::Get { .. } | Message::Cancel(_)) {
            self.swallowed.push((from, to, message));
            return;
        }
        match message {
            Message::Get { request, image, chunk, priority, reach, insists } => {
                let asker = Asker { connection: ConnectionId(from as u64), request: request.0, reach };
                let (peer, now) = (self.hosts[from].identity.node, self.now);
                if let Some(node) = self.hosts[to].instead(image, chunk, peer, insists, now) {
                    self.send(to, from, Message::Redirect(request, node), 24);
                } else if self.hosts[to].has(image, chunk) {
                    self.serve(to, asker, image, chunk);
                } else {
                    let image = self.images[image].id;
                    if self.beating.insert((to, from)) {
                        self.after(BEAT, Event::Beat { from: to, to: from });
                    }
                    self.input(to, Input::Asked { asker, image, chunk, priority });
                }
            }
            Message::Cancel(request) => self.input(to, Input::CancelAsked(ConnectionId(from as u64), request.0)),
            Message::Data { request, wrong } => self.arrive(to, request, wrong),
            Message::Refuse(request, refusal) => {
                if self.hosts[to].flights.remove(&request).is_some() {
                    self.input(to, Input::Refused(request, refusal));
                }
            }
            Message::Redirect(request, node) => {
                if self.hosts[to].flights.remove(&request).is_some() {
                    self.input(to, Input::Redirected(request, node));
                }
            }
            Message::Sync(snapshot, answer) => {
                self.input(to, Input::Learned(snapshot));
                if answer {
                    let mine = self.hosts[to].node.snapshot(&self.hosts[from].identity);
                    self.send(to, from, Message::Sync(mine, false), 1000);
                }
            }
            Message::Datagram(bytes) => self.input(to, Input::Datagram(bytes)),
        }
    }

    /// A chunk has come: verified with its parent, which has to be here, then kept.
    fn arrive(&mut self, host: usize, request: RequestId, wrong: bool) {
        let Some(flight) = self.hosts[host].flights.remove(&request) else { return };
        let (image, chunk) = (flight.image, flight.chunk);
        let original = &self.images[image];
        let parent = original.geometry.parent(chunk);
        let checkable = parent.is_none_or(|(page, _)| self.hosts[host].has(image, page));
        if !checkable {
            self.input(host, Input::Unusable(request));
        } else if wrong {
            self.input(host, Input::Corrupt(request));
        } else {
            let zeros = if original.geometry.is_data(chunk) { Vec::new() } else { original.zero_children(chunk) };
            let known = zeros.iter().cloned().flatten().map(Chunk);
            let below = known.flat_map(|chunk| with_descendants(original, chunk)).collect::<Vec<_>>();
            self.hosts[host].zero.entry(image).or_default().extend(below);
            self.hosts[host].shelf.entry(image).or_default().insert(chunk);
            self.input(host, Input::Arrived { request, zeros });
        }
    }

    /// Takes the outputs of a core and does what they say, evictions first, as the shell does.
    fn settle(&mut self, host: usize) {
        let mut outputs = Vec::new();
        while let Some(output) = self.hosts[host].node.poll() {
            self.trace.update(&host.to_le_bytes());
            self.trace.update(format!("{:?}{output:?}", self.now).as_bytes());
            if let Output::Evict(id, chunk) = output {
                let image = self.image(id);
                let was = self.hosts[host].shelf.get_mut(&image).is_some_and(|shelf| shelf.remove(&chunk));
                assert!(was, "host {host} drops {chunk}, which is not there");
            } else {
                outputs.push(output);
            }
        }
        let mut answered = Vec::new();
        for output in outputs {
            self.perform(host, output, &mut answered);
        }
        self.hosts[host].events += 1;
        self.schedule_wake(host);
        checker::check(&self.hosts[host], &self.images, &self.config, self.now);
        for reader in answered {
            self.go_on(reader);
        }
    }

    fn perform(&mut self, host: usize, output: Output, answered: &mut Vec<usize>) {
        match output {
            Output::Datagram(addr, bytes) => {
                let lost = self.dice() % 100 < self.loss_percent;
                let to = self.hosts.iter().rposition(|other| other.identity.addr == addr);
                if let Some(to) = to.filter(|_| !lost) {
                    let length = bytes.len() as u64;
                    self.send(host, to, Message::Datagram(bytes), length);
                }
            }
            Output::Sync(identity) => {
                if let Some(to) = self.reach(host, identity) {
                    let mine = self.hosts[host].node.snapshot(&identity);
                    self.send(host, to, Message::Sync(mine, true), 1000);
                }
            }
            Output::Request { request, peer, image, chunk, priority, reach, insists, origin: _ } => {
                let image = self.image(image);
                let bytes = self.images[image].geometry.length(chunk);
                let to = self.hosts.iter().position(|other| other.identity.node == peer.node);
                let Some(to) = to else {
                    self.hosts[host]
                        .flights
                        .insert(request, Flight { to: host, image, chunk, bytes, sent: self.now, cancelled: false });
                    self.after(Duration::from_micros(DELAY_US), Event::Lost(host, request));
                    return;
                };
                let flight = Flight { to, image, chunk, bytes, sent: self.now, cancelled: false };
                let twice = self.hosts[host].flights.insert(request, flight);
                assert!(twice.is_none(), "request number used twice");
                self.hosts[host].requests += 1;
                if self.reach(host, peer).is_some() {
                    self.send(host, to, Message::Get { request, image, chunk, priority, reach, insists }, 56);
                }
            }
            Output::CancelRequest(request, _) => {
                let now = self.now;
                let Some(flight) = self.hosts[host].flights.get_mut(&request) else {
                    panic!("host {host} cancels {request:?}, which is not in flight, at {now:?}")
                };
                flight.cancelled = true;
                let to = flight.to;
                self.send(host, to, Message::Cancel(request), 16);
            }
            Output::Serve { asker, image, chunk, priority: _ } => {
                let image = self.image(image);
                if self.hosts[host].has(image, chunk) {
                    self.serve(host, asker, image, chunk);
                } else {
                    self.refuse(host, asker, Refusal::NotHeld);
                }
            }
            Output::Refuse(asker, refusal) => self.refuse(host, asker, refusal),
            Output::Answer(token, result) => {
                let Some(at) = self.tokens.remove(&token) else { panic!("{token:?} is answered twice") };
                let now = self.now;
                let reader = &mut self.readers[at];
                reader.waited(now);
                match result {
                    Ok(()) => {
                        let chunk = Chunk(reader.next);
                        assert!(self.hosts[host].has(reader.image, chunk), "answered, but {chunk} is not here");
                    }
                    Err(error) => reader.failed = Some(error),
                }
                answered.push(at);
            }
            Output::Evict(..) => unreachable!("done before"),
            Output::Notice(notice) => {
                if let Notice::Down(member) = &notice
                    && let Some(to) = self.hosts.iter().position(|other| other.identity.node == member.node)
                {
                    self.hosts[host].linked.remove(&to);
                    self.hosts[host].directories.values_mut().for_each(|directory| directory.forget(member.node));
                    self.lose_flights(host, to, Duration::ZERO);
                }
                self.hosts[host].notices.push((self.now, notice));
            }
        }
    }

    /// Connects if need be; `None` if the other cannot be reached, which breaks what is in flight to it.
    fn reach(&mut self, host: usize, peer: Identity) -> Option<usize> {
        let to = self.hosts.iter().position(|other| other.identity.node == peer.node)?;
        if self.hosts[to].alive {
            self.link(host, to);
            return Some(to);
        }
        if !self.hosts[host].linked.contains(&to) {
            // Nobody listens there.
            let refused = Duration::from_micros(DELAY_US * 2);
            self.after(refused, Event::Notice(host, Input::Broken(peer.node)));
            self.lose_flights(host, to, refused);
        }
        None
    }

    fn link(&mut self, a: usize, b: usize) {
        if self.hosts[a].linked.insert(b) {
            self.hosts[b].linked.insert(a);
            let (first, second) = (self.hosts[a].identity, self.hosts[b].identity);
            self.after(Duration::ZERO, Event::Notice(a, Input::Met(second)));
            self.after(Duration::ZERO, Event::Notice(b, Input::Met(first)));
        }
    }

    fn serve(&mut self, host: usize, asker: Asker, image: usize, chunk: Chunk) {
        let request = RequestId(asker.request);
        if self.hosts[host].fault == Fault::Changed {
            return self.refuse(host, asker, Refusal::SourceChanged);
        }
        *self.hosts[host].sent.entry((image, chunk)).or_default() += 1;
        let wrong = self.hosts[host].fault == Fault::Lying;
        let bytes = self.images[image].geometry.length(chunk);
        let into = self.hosts[asker.connection.0 as usize].identity.zone;
        if into != self.hosts[host].identity.zone {
            *self.crossed.entry(into).or_default() += 1;
        }
        self.send(host, asker.connection.0 as usize, Message::Data { request, wrong }, bytes);
    }

    fn refuse(&mut self, host: usize, asker: Asker, refusal: Refusal) {
        let request = RequestId(asker.request);
        self.send(host, asker.connection.0 as usize, Message::Refuse(request, refusal), 16);
    }

    /// A reader takes what is here and asks for more.
    fn go_on(&mut self, at: usize) {
        let reader = &mut self.readers[at];
        let host = &self.hosts[reader.host];
        let (mut prefetch, now) = (Vec::new(), self.now);
        while !reader.is_done() && host.has(reader.image, Chunk(reader.next)) {
            prefetch.push(reader.ahead.note(reader.next..reader.next + 1));
            reader.next += 1;
        }
        reader.since = now;
        let (on, done, wanted) = (reader.host, reader.is_done(), reader.wanted());
        if !done {
            prefetch.push(reader.ahead.note(wanted.clone()));
        }
        let image = self.images[reader.image].id;
        for chunks in prefetch.into_iter().filter(|chunks| !chunks.is_empty()) {
            self.after(
                Duration::ZERO,
                Event::Notice(on, Input::Prefetch { image, chunks, priority: Priority::ReadAhead }),
            );
        }
        if !done {
            self.sequence += 1;
            let token = Token(self.sequence);
            self.tokens.insert(token, at);
            self.after(Duration::ZERO, Event::Notice(on, Input::Read { token, image, chunks: wanted }));
        }
    }

    pub(super) fn lose_flights(&mut self, host: usize, to: usize, after: Duration) {
        let lost = self.hosts[host].flights.iter().filter(|(_, flight)| flight.to == to);
        for request in lost.map(|(request, _)| *request).collect::<Vec<_>>() {
            self.after(after, Event::Lost(host, request));
        }
    }

    fn schedule_wake(&mut self, host: usize) {
        let Some(next) = self.hosts[host].node.next_wake() else { return };
        let next = next.max(self.now);
        if self.hosts[host].wake_at.is_none_or(|at| next < at) {
            self.hosts[host].wake_at = Some(next);
            self.after(next - self.now, Event::Wake(host));
        }
    }

    pub(super) fn after(&mut self, wait: Duration, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + wait, self.sequence), event);
    }

    fn image(&self, id: vfield_core::image::ImageId) -> usize {
        self.images.iter().position(|image| image.id == id).expect("a known image")
    }

    fn dice(&mut self) -> u64 {
        self.random = mix(self.random.wrapping_add(0x9E37_79B9_7F4A_7C15));
        self.random
    }
}

fn with_descendants(original: &Original, chunk: Chunk) -> BTreeSet<Chunk> {
    let mut all = BTreeSet::from([chunk]);
    for child in original.geometry.children(chunk) {
        all.extend(with_descendants(original, Chunk(child)));
    }
    all
}
