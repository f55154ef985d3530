//! What a person learns of a node's events: bars or lines, or JSON for programs.
//!
//! Events come from any thread and must not wait for a terminal, so they go through a bounded queue
//! to one thread that writes. When the queue is full progress is dropped, never anything else of
//! weight: a later event says more.

use indicatif::ProgressBar;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vfield_console::bar::{bar, percent};
use vfield_console::log::{Console, EVENTS, Level, Style};
use vfield_console::values::duration;
use vfield_console::values::size::human;
use vfield_core::membership::Departure;
use vfield_node::event::{Event, EventSink};

/// Events that wait for a slow terminal: a whole room joining at once.
const QUEUE: usize = 4096;
/// Without a terminal, progress is worth a line this often.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Programs may want it more often.
const JSON_EVERY: Duration = Duration::from_secs(1);

/// Maximum departures logged in [`GONE_WITHIN`], for a room that is switched off; one line stands
/// for the rest.
const GONE_MAX: u32 = 20;
/// The time over which [`GONE_MAX`] counts.
const GONE_WITHIN: Duration = Duration::from_secs(60);
/// Most addresses whose return is told; older ones are forgotten. A room, and the churn of a day.
const MISSED_MAX: usize = 256;

/// The thread that tells events.
#[derive(Debug)]
pub struct Reporter {
    queue: Option<SyncSender<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts to tell through `console`.
    pub fn start(console: Console) -> std::io::Result<Self> {
        let (queue, events) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("report".into()).spawn(move || tell_all(console, &events))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Where events go; `also` sees each before it is queued.
    pub fn sink(&self, also: impl Fn(&Event) + Send + Sync + 'static) -> EventSink {
        let queue = self.queue.clone();
        Arc::new(move |event| {
            also(&event);
            // Full or ended: nothing to be done about it from here.
            let _ = queue.as_ref().map(|queue| queue.try_send(event));
        })
    }

    /// Logs the queued events. Returns at once if a sink is still alive.
    pub fn finish(mut self) {
        self.queue = None;
        let deadline = Instant::now() + Duration::from_millis(200);
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn tell_all(console: Console, events: &Receiver<Event>) {
    let mut teller = Teller::new(console);
    for event in events {
        teller.tell(&event);
    }
    teller.bars.values().for_each(ProgressBar::finish_and_clear);
}

/// Work with a progress bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Hashing,
    Filling,
}

impl Work {
    const fn name(self) -> &'static str {
        match self {
            Self::Hashing => "hashing",
            Self::Filling => "filling",
        }
    }
}

struct Teller {
    console: Console,
    bars: BTreeMap<(Work, String), ProgressBar>,
    told: BTreeMap<(Work, String), Instant>,
    /// Since when departures are counted, and how many were told.
    gone: (Instant, u32),
    /// Addresses whose departure was told, the latest last: their return is told as well.
    missed: VecDeque<SocketAddr>,
}

impl Teller {
    fn new(console: Console) -> Self {
        let (bars, told, gone) = (BTreeMap::new(), BTreeMap::new(), (Instant::now(), 0));
        Self { console, bars, told, gone, missed: VecDeque::new() }
    }

    fn tell(&mut self, event: &Event) {
        match event {
            Event::Hashing { image, done_bytes, total_bytes } => {
                return self.progress(event, Work::Hashing, image, *done_bytes, *total_bytes);
            }
            Event::Filling { image, held_bytes, goal_bytes } => {
                return self.progress(event, Work::Filling, image, *held_bytes, *goal_bytes);
            }
            Event::Published { image, .. } => self.end(Work::Hashing, image),
            Event::Filled { image, .. } => self.end(Work::Filling, image),
            Event::BootstrapFailed { is_news: false, .. } => return,
            _ => {}
        }
        if self.console.style == Style::Json {
            tell_json(event);
        } else if let Event::Warning(text) = event {
            self.console.warn(text);
        } else if let Some(line) = self.line(event) {
            self.console.say(&line);
        }
    }

    fn line(&mut self, event: &Event) -> Option<String> {
        if let Event::NodeJoined { addr, .. } = event
            && let Some(at) = self.missed.iter().position(|missed| missed == addr)
        {
            self.missed.remove(at);
            return Some(format!("node {addr} is back"));
        }
        let line = line(event, self.console.level() >= Level::Verbose)?;
        self.sparing(event, line)
    }

    /// The line, unless it is one of very many.
    fn sparing(&mut self, event: &Event, line: String) -> Option<String> {
        let Event::NodeGone { addr, how, .. } = event else { return Some(line) };
        if self.gone.0.elapsed() >= GONE_WITHIN {
            self.gone = (Instant::now(), 0);
        }
        self.gone.1 += 1;
        match self.gone.1 {
            ..=GONE_MAX => {
                if !matches!(how, Departure::Replaced | Departure::Excluded) {
                    self.miss(*addr);
                }
                Some(line)
            }
            count if count == GONE_MAX + 1 => Some("more nodes left or died; `vfield status` lists them".to_owned()),
            _ => None,
        }
    }

    fn miss(&mut self, addr: SocketAddr) {
        self.missed.retain(|missed| *missed != addr);
        if self.missed.len() == MISSED_MAX {
            self.missed.pop_front();
        }
        self.missed.push_back(addr);
    }

    fn progress(&mut self, event: &Event, work: Work, image: &str, done: u64, total: u64) {
        if self.console.style == Style::Bars {
            if done >= total {
                return self.end(work, image);
            }
            let console = &self.console;
            let new = || console.bars.add(bar(work.name(), image, total));
            self.bars.entry((work, image.to_owned())).or_insert_with(new).set_position(done);
            return;
        }
        let now = Instant::now();
        let every = if self.console.style == Style::Json { JSON_EVERY } else { LINE_EVERY };
        // The first report comes after a while, so that quick work is not reported.
        let last = self.told.entry((work, image.to_owned())).or_insert(now);
        if done >= total || now.duration_since(*last) < every {
            return;
        }
        *last = now;
        if self.console.style == Style::Json {
            tell_json(event);
        } else {
            self.console.say(&format!("{} {image}: {} % of {}", work.name(), percent(done, total), human(total)));
        }
    }

    fn end(&mut self, work: Work, image: &str) {
        let key = (work, image.to_owned());
        self.told.remove(&key);
        if let Some(bar) = self.bars.remove(&key) {
            bar.finish_and_clear();
        }
    }
}

/// The word and the text of an event that is remembered; `None` for the steps of progress.
pub fn remembered(event: &Event) -> Option<(&'static str, String)> {
    match event {
        Event::Warning(text) => Some(("warning", text.clone())),
        event => Some((word(event), line(event, true)?.replace("\n ", ";"))),
    }
}

/// The name of an event in JSON. Scripts depend on it: it is never renamed.
const fn word(event: &Event) -> &'static str {
    match event {
        Event::Hashing { .. } => "hashing",
        Event::Published { .. } => "published",
        Event::KeptTree { .. } => "kept_hashes",
        Event::Listening { .. } => "listening",
        Event::BootstrapFailed { .. } => "bootstrap_failed",
        Event::BootstrapFound { .. } => "bootstrap_found",
        Event::NoImages => "no_images",
        Event::Readdressed { .. } => "readdressed",
        Event::Reachable { .. } => "reachable",
        Event::ReadWaits { .. } => "read_waits",
        Event::Admission { .. } => "admission",
        Event::ReadGoesOn { .. } => "read_goes_on",
        Event::Joined { .. } => "joined",
        Event::Capped { .. } => "capped",
        Event::Filling { .. } => "filling",
        Event::TakenOver { .. } => "taken_over",
        Event::Shared { .. } => "shared",
        Event::Filled { .. } => "filled",
        Event::Covered { .. } => "covered",
        Event::Uncovered { .. } => "uncovered",
        Event::NodeGone { .. } => "node_gone",
        Event::NodeJoined { .. } => "node_joined",
        Event::Tagged { .. } => "tagged",
        Event::TagWaits { .. } => "tag_waits",
        Event::TagReady { .. } => "tag_ready",
        Event::Warning(_) => "warning",
    }
}

/// The log line of an event; `None` for work with a bar, and for details without `--verbose`.
fn line(event: &Event, verbose: bool) -> Option<String> {
    match event {
        Event::Hashing { .. } | Event::Filling { .. } | Event::Warning(_) => None,
        Event::Published { image, id, size_bytes } => {
            Some(format!("sharing {image} ({})\n  image id {id}", human(*size_bytes)))
        }
        Event::KeptTree { image, tree } => {
            Some(format!("the hashes of {image} are those in {tree}; each chunk is compared when it is first read"))
        }
        Event::Listening { addr } => Some(format!("listening on {addr}")),
        Event::BootstrapFailed { addr, why, .. } => Some(format!("waiting for {addr}: {why}; trying again")),
        Event::BootstrapFound { name, addr } => Some(format!("{name} has the address {} now", addr.ip())),
        Event::NoImages => Some("waiting for an image: the field has none yet".to_owned()),
        Event::Readdressed { from, to } => Some(format!(
            "other nodes now get the address {to} of this node, no longer {from}; --advertise {} sets it at the start",
            to.ip()
        )),
        Event::Reachable { addr } => {
            Some(format!("other nodes can connect to this node at {addr}: its store counts now"))
        }
        Event::ReadWaits { image, chunk, for_s, why, holder } => {
            let holder = holder.as_ref().map_or_else(String::new, |holder| {
                let (ago, how) = (duration::human(holder.ago_s as f64), holder.how.name());
                format!("; {} had it last, and {how} {ago} ago", holder.addr)
            });
            Some(format!("{image}: a read of chunk {chunk} waits for {for_s}s: {why}{holder}"))
        }
        Event::Tagged { tag, serial, image } => Some(match image.get(..12) {
            Some(short) => format!("tag {tag}: serial {serial} names the image {short}"),
            None => format!("tag {tag}: removed with serial {serial}; what is here goes on"),
        }),
        Event::TagWaits { tag, why } => Some(format!("tag {tag}: {why}; what is here goes on")),
        Event::TagReady { tag, serial, image, .. } => {
            Some(format!("tag {tag}: serial {serial} is ready, {tag} leads to {image}"))
        }
        Event::ReadGoesOn { image, for_s } => {
            Some(format!("{image}: no read waits any more; the first did for {for_s}s"))
        }
        Event::Joined { image, id, size_bytes, capacity_bytes, whole } => {
            let short = id.get(..12).unwrap_or(id);
            let hold = hold_text(*size_bytes, *capacity_bytes, *whole);
            Some(format!("joined {image} ({}, id {short}); will hold {hold}", human(*size_bytes)))
        }
        Event::Capped { image, capacity_bytes, default_bytes } => {
            let (store, usual) = (human(*capacity_bytes), human(*default_bytes));
            Some(format!(
                "{image}: store limited to {store} instead of {usual}: half of the free memory; --store SIZE overrides"
            ))
        }
        Event::TakenOver { image, adopted_bytes, spoiled } => {
            let spoiled = match spoiled {
                0 => String::new(),
                1 => ", 1 corrupt chunk discarded".to_owned(),
                count => format!(", {count} corrupt chunks discarded"),
            };
            Some(format!("{image}: {} taken over from the daemon before{spoiled}", human(*adopted_bytes)))
        }
        Event::Shared { image, shared_bytes } => {
            Some(format!("{image}: {} are chunks of other versions on this node", human(*shared_bytes)))
        }
        Event::Filled { image, held_bytes } => Some(format!("{image}: store filled, {} held", human(*held_bytes))),
        Event::Covered { image } => {
            Some(format!("{image}: covered: the field's stores hold every chunk, the origin may leave"))
        }
        Event::Uncovered { image } => {
            Some(format!("{image}: no longer covered: the origin must stay until other stores hold every chunk"))
        }
        Event::NodeJoined { node, addr } => verbose.then(|| format!("node {node} at {addr} joined")),
        Event::NodeGone { addr, how: Departure::Left, .. } => Some(format!("node {addr} left")),
        Event::NodeGone { addr, how: Departure::Died, .. } => Some(format!("node {addr} died or is unreachable")),
        Event::NodeGone { addr, how: Departure::Excluded, .. } => {
            Some(format!("node {addr} is shut out: the admission list does not admit it"))
        }
        Event::Admission { timestamp, allowed, revoked } => {
            let others = if *allowed == 0 { "all but the revoked are admitted" } else { "no others are admitted" };
            Some(format!("admission list signed at {timestamp}: {allowed} allowed, {revoked} revoked; {others}"))
        }
        Event::NodeGone { node, addr, how: Departure::Replaced } => {
            verbose.then(|| format!("node {node} at {addr} was replaced by another there"))
        }
    }
}

/// How much of an image a store is to hold. Hash pages are held too, so that all of a dense image
/// takes more than its length; zeros are not, so that all of a sparse one takes less.
fn hold_text(size_bytes: u64, capacity_bytes: u64, whole: bool) -> String {
    match (human(capacity_bytes), whole) {
        (_, _) if capacity_bytes == 0 => "nothing of it".to_owned(),
        (hold, true) if capacity_bytes >= size_bytes => format!("all of it, {hold} with its hashes"),
        (hold, true) => format!("all of it, {hold} without its zeros"),
        (hold, false) => format!("{hold} of it"),
    }
}

fn tell_json(event: &Event) {
    let word = word(event);
    macro_rules! tell {
        ($($field:tt)*) => { tracing::info!(target: EVENTS, event = word, $($field)*) };
    }
    match event {
        Event::Hashing { image, done_bytes, total_bytes } => tell!(image, done_bytes, total_bytes),
        Event::Published { image, id, size_bytes } => tell!(image, id, size_bytes),
        Event::KeptTree { image, tree } => tell!(image, tree),
        Event::Listening { addr } => tell!(%addr),
        Event::BootstrapFailed { addr, why, .. } => tell!(%addr, why),
        Event::BootstrapFound { name, addr } => tell!(name, %addr),
        Event::NoImages => tell!(),
        Event::Readdressed { from, to } => tell!(%from, %to),
        Event::Reachable { addr } => tell!(%addr),
        Event::ReadWaits { image, chunk, for_s, why, holder } => {
            let holder = holder.as_ref().map(|holder| holder.addr.to_string());
            tell!(image, chunk, for_s, why, holder)
        }
        Event::Admission { timestamp, allowed, revoked } => tell!(timestamp, allowed, revoked),
        Event::Tagged { tag, serial, image } => tell!(tag, serial, image),
        Event::TagWaits { tag, why } => tell!(tag, why),
        Event::TagReady { tag, serial, image, id } => tell!(tag, serial, image, id),
        Event::ReadGoesOn { image, for_s } => tell!(image, for_s),
        Event::Joined { image, id, size_bytes, capacity_bytes, .. } => {
            tell!(image, id, size_bytes, capacity_bytes)
        }
        Event::Capped { image, capacity_bytes, default_bytes } => {
            tell!(image, capacity_bytes, default_bytes)
        }
        Event::Filling { image, held_bytes, goal_bytes } => tell!(image, held_bytes, goal_bytes),
        Event::TakenOver { image, adopted_bytes, spoiled } => tell!(image, adopted_bytes, spoiled),
        Event::Shared { image, shared_bytes } => tell!(image, shared_bytes),
        Event::Filled { image, held_bytes } => tell!(image, held_bytes),
        Event::Covered { image } => tell!(image),
        Event::Uncovered { image } => tell!(image),
        Event::NodeGone { node, addr, how } => tell!(node, %addr, how = how.name()),
        Event::NodeJoined { node, addr } => tell!(node, %addr),
        Event::Warning(text) => tracing::warn!(target: EVENTS, event = word, "{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_console::volume::Volume;

    #[test]
    fn a_store_says_how_much_it_is_to_hold() {
        let mib = |size: u64| size << 20;
        assert_eq!(hold_text(mib(64), 0, false), "nothing of it");
        assert_eq!(hold_text(mib(64), mib(38), false), "38.0 MiB of it");
        assert_eq!(hold_text(mib(64), mib(65), true), "all of it, 65.0 MiB with its hashes");
        assert_eq!(hold_text(mib(100), mib(77), true), "all of it, 77.0 MiB without its zeros");
    }

    #[test]
    fn a_return_is_told_if_the_departure_was() {
        let mut teller = Teller::new(vfield_console::log::start(Style::Lines, Volume::default()));
        let (node, addr) = ("1a".to_owned(), "192.0.2.1:4440".parse().unwrap());
        let joined = Event::NodeJoined { node: node.clone(), addr };
        let gone = |how| Event::NodeGone { node: node.clone(), addr, how };
        assert_eq!(teller.line(&joined), None, "it is new");
        assert_eq!(teller.line(&gone(Departure::Died)).unwrap(), "node 192.0.2.1:4440 died or is unreachable");
        assert_eq!(teller.line(&joined).unwrap(), "node 192.0.2.1:4440 is back");
        assert_eq!(teller.line(&joined), None, "said once");
        assert_eq!(teller.line(&gone(Departure::Replaced)), None);
        assert_eq!(teller.line(&joined), None);
    }
}
