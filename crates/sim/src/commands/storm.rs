//! `storm`: all machines read one image at once.

use super::Failure;
use crate::dice::Dice;
use crate::explain;
use crate::field::{Field, Reads};
use crate::machine::Fault;
use crate::network::Rates;
use crate::network::walls::Wall;
use crate::reader::{Order, Reader};
use crate::report::{Report as _, Spread, StormReport, cpu_s, peak_rss_bytes};
use crate::scenario::storm::{Reading, Storm};
use crate::scenario::weather::{Trouble, link};
use clap::Args;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use vfield_core::node::Input;
use vfield_core::time::Time;

/// `storm` and its options.
#[derive(Debug, Args)]
pub struct Options {
    /// The storm's settings
    #[command(flatten)]
    pub storm: Storm,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Processes that are started together do not start in one instant: within this.
const START_WITHIN: Duration = Duration::from_millis(50);
/// Interval of checks on the storm.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of the notes about explained machines.
const EXPLAIN_EVERY: Duration = Duration::from_secs(1);
/// Most readers whose times are listed.
const LISTED: usize = 1000;
/// Machines explained at a time with `--explain`.
const EXPLAINED: usize = 3;

/// Runs a storm and prints its result.
///
/// # Errors
/// Options that make no sense; readers that do not finish.
pub fn run(options: &Options) -> Result<(), Failure> {
    let storm = &options.storm;
    storm.check().map_err(Failure::Usage)?;
    storm.room.fits(1.0).map_err(Failure::Usage)?;
    let began = Instant::now();
    let mut run = Run::new(storm);
    let prepared = run.prepare();
    if prepared.is_ok() {
        run.blow();
    }
    storm.room.has_kept_within_memory(&run.field)?;
    prepared?;
    let report = run.report(began);
    report.print(options.json);
    if report.unfinished > 0 {
        return Err(Failure::Unfinished(format!("{} readers did not finish", report.unfinished)));
    }
    Ok(())
}

struct Run<'a> {
    storm: &'a Storm,
    field: Field,
    dice: Dice,
    start: Time,
    /// Machines whose readers need not finish.
    excused: BTreeSet<usize>,
    /// When each machine was to start.
    starts: Vec<Time>,
    before: Counters,
    /// Readers that there will be, as far as is known.
    to_begin: usize,
}

/// The counts at the start.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    origin: u64,
    payload: u64,
    control: u64,
    requests: u64,
    refusals: u64,
    zone: u64,
}

impl Counters {
    fn of(field: &Field) -> Self {
        let sum = |count: fn(&crate::machine::Traffic) -> u64| field.machines.iter().map(|m| count(&m.traffic)).sum();
        Self {
            origin: field.machines[0].traffic.payload_sent,
            payload: sum(|traffic| traffic.payload_came),
            control: sum(|traffic| traffic.control_sent),
            requests: sum(|traffic| traffic.requests),
            refusals: sum(|traffic| traffic.refusals),
            zone: field.zones.iter().map(|zone| zone.payload_came).max().unwrap_or(0),
        }
    }
}

impl<'a> Run<'a> {
    fn new(storm: &'a Storm) -> Self {
        let mut field = storm.room.field();
        field.think = storm.think.clone().unwrap_or_default();
        for &machine in &storm.trace_node {
            field.explain.watch(machine);
        }
        let start = field.now();
        let dice = Dice::new(storm.room.seed ^ 0x57_04_14);
        let starts = vec![start];
        Self { storm, field, dice, start, excused: BTreeSet::new(), starts, before: Counters::default(), to_begin: 0 }
    }

    fn reading(&mut self) -> Reads {
        let chunks = self.field.images[0].geometry.data_chunks();
        let step = (self.storm.block / self.storm.room.chunk).max(1);
        let order = match self.storm.order {
            Reading::Sequential => Order::Along { chunks: 0..chunks, step },
            Reading::Random => {
                Order::Random { dice: Dice::new(self.dice.roll()), chunks, step, left: chunks.div_ceil(step) }
            }
        };
        Reads { image: 0, order, depth: self.storm.depth }
    }

    /// Switches a machine on after a while, which reads once it has joined.
    fn switch_on(&mut self, wait: Duration) {
        let reads = self.reading();
        self.starts.push(self.field.now() + wait);
        self.storm.room.switch_on(&mut self.field, &mut self.dice, wait, Some(reads));
    }

    /// Prepares the field until the readers start.
    fn prepare(&mut self) -> Result<(), Failure> {
        let room = &self.storm.room;
        if !self.storm.warm {
            for node in 0..room.nodes {
                let drawn = self.dice.roll() % START_WITHIN.as_nanos() as u64;
                let wait = self.storm.stagger.map_or(Duration::from_nanos(drawn), |gap| gap * node as u32);
                self.switch_on(wait);
            }
            return Ok(());
        }
        let mut nodes = room.warm_up(&mut self.field, &mut self.dice)?;
        if self.storm.origin_gone {
            room.send_off_the_origin(&mut self.field);
        }
        self.before = Counters::of(&self.field);
        self.start = self.field.now();
        let gap = self.storm.stagger.unwrap_or_default();
        self.to_begin = nodes.len();
        if self.storm.shuffle {
            nodes.sort_by_cached_key(|_| self.dice.roll());
        }
        self.starts.resize(self.field.machines.len(), self.start);
        for (number, node) in nodes.into_iter().enumerate() {
            let (reads, wait) = (self.reading(), gap * number as u32);
            self.starts[node] = self.start + wait;
            self.field.read_later(wait, node, reads);
        }
        Ok(())
    }

    /// The storm itself.
    fn blow(&mut self) {
        let mut events = self.storm.event.clone();
        events.sort_by_key(|event| event.after);
        let mut events = events.into_iter().peekable();
        let mut explained = self.start;
        let limit = self.start + self.storm.room.limit;
        while self.field.now() < limit && !self.field.is_full && (events.peek().is_some() || !self.is_over()) {
            let now = self.field.now();
            while let Some(event) = events.next_if(|event| self.start + event.after <= now) {
                self.befall(event.trouble);
            }
            let next = events.peek().map_or(LOOK_EVERY, |event| (self.start + event.after).since(now));
            self.field.run(next.clamp(Duration::from_nanos(1), LOOK_EVERY));
            if self.field.now() >= explained + EXPLAIN_EVERY {
                explained = explained + EXPLAIN_EVERY;
                self.explain();
            }
        }
    }

    fn is_over(&self) -> bool {
        self.field.waiting_to_join() == 0
            && self.field.readers.len() >= self.to_begin
            && self.counted().all(Reader::is_done)
    }

    fn counted(&self) -> impl Iterator<Item = &Reader> {
        self.field.readers.iter().filter(|reader| !self.excused.contains(&reader.machine))
    }

    fn befall(&mut self, trouble: Trouble) {
        if trouble.ends_reading() {
            self.excused.extend(trouble.host());
        }
        match trouble {
            Trouble::Slow { host: machine, factor } => self.field.slow(machine, factor),
            Trouble::Stop { host: machine } => self.field.set_fault(machine, Fault::Paused),
            Trouble::Kill { host: machine } => self.field.kill(machine, true),
            Trouble::Leave { host: machine } => {
                self.field.input(machine, Input::Leave);
                self.field.input(machine, Input::Gone);
                self.field.kill(machine, true);
            }
            Trouble::Cut { host: machine } => {
                let (one, all) = (BTreeSet::from([machine as u32]), (0..self.field.machines.len() as u32).collect());
                self.field.build(Wall { from: one, to: all });
                let (one, all) = (BTreeSet::from([machine as u32]), (0..self.field.machines.len() as u32).collect());
                self.field.build(Wall { from: all, to: one });
            }
            Trouble::Back { host: machine } => {
                self.field.slow(machine, 1);
                self.field.set_fault(machine, Fault::None);
                self.field.tear_all_down();
            }
            Trouble::Join { count } => {
                for _ in 0..count {
                    self.switch_on(Duration::ZERO);
                }
            }
        }
    }

    fn explain(&mut self) {
        let mut machines = self.field.explain.machines();
        if self.storm.explain {
            let mut slow: Vec<(u64, usize)> =
                self.counted().filter(|reader| !reader.is_done()).map(|reader| (reader.read, reader.machine)).collect();
            slow.sort_unstable();
            for (_, machine) in slow.into_iter().take(EXPLAINED) {
                machines.push(machine);
                self.field.explain.watch(machine);
            }
        }
        for machine in machines {
            let notes = self.field.explain.take(machine);
            eprintln!("{}", explain::line(&self.field, machine, &notes, self.field.now() - self.start));
            if let Some(chain) = explain::chain(&self.field, machine) {
                eprintln!("{chain}");
            }
        }
    }

    /// The rates of a machine's own link.
    fn rates(&self, machine: usize) -> Rates {
        self.field.links.rates(self.field.machines[machine].place)
    }

    /// The bound of all readers that are to finish.
    fn bound_s(&self) -> f64 {
        let downlinks: Vec<u64> = self.counted().map(|reader| self.rates(reader.machine).down).collect();
        let senders = usize::from(self.storm.origin_gone)..self.field.machines.len();
        let uplinks = senders.map(|machine| self.rates(machine).up);
        let origin = (!self.storm.warm).then(|| self.rates(0).up);
        link::bound_s(self.storm.room.image, &downlinks, uplinks, origin)
    }

    fn report(&self, began: Instant) -> StormReport {
        let storm = &self.storm.room;
        let limit = storm.limit_s();
        let after = Counters::of(&self.field);
        let finished: Vec<&Reader> = self.counted().filter(|reader| reader.is_done()).collect();
        let ends: Vec<f64> = finished.iter().map(|reader| (reader.since - self.start).as_secs_f64() / limit).collect();
        let own_s = |reader: &&Reader| (reader.since - self.starts[reader.machine]).as_secs_f64();
        let own = |reader: &&Reader| own_s(reader) / limit;
        let link = |reader: &Reader| self.rates(reader.machine).down.min(self.rates(0).up);
        let own_link = |reader: &&Reader| own_s(reader) * link(reader) as f64 / storm.image as f64;
        let (whole, bound_s) = (Spread::of(ends.iter().copied()), self.bound_s());
        let payload = (after.payload - self.before.payload).max(1) as f64;
        let per_chunk = |count: u64| count as f64 * storm.chunk as f64 / payload;
        StormReport {
            nodes: storm.nodes,
            image_bytes: storm.image,
            link_bytes_per_s: storm.usual_link(),
            finish_over_limit: whole.most,
            median_over_limit: whole.median,
            first_over_limit: whole.least,
            finish_s: whole.most * limit,
            own_over_limit: Spread::of(finished.iter().map(own)),
            nodes_over_limit: finished.iter().take(LISTED).map(|reader| (reader.machine, own(reader))).collect(),
            own_link: Spread::of(finished.iter().map(own_link)),
            nodes_own_link: finished.iter().take(LISTED).map(|reader| (reader.machine, own_link(reader))).collect(),
            bound_s,
            finish_over_bound: whole.most * limit / bound_s,
            unfinished: self.counted().count() - finished.len() + self.field.waiting_to_join(),
            origin_copies: (after.origin - self.before.origin) as f64 / storm.image as f64,
            zone_copies: storm.zone_size.map(|_| (after.zone - self.before.zone) as f64 / storm.image as f64),
            control_share: (after.control - self.before.control) as f64 / payload,
            longest_stall_s: finished.iter().map(|r| r.longest_stall.as_secs_f64()).fold(0.0, f64::max),
            requests_per_chunk: per_chunk(after.requests - self.before.requests),
            refusals_per_chunk: per_chunk(after.refusals - self.before.refusals),
            seed: storm.seed,
            trace: self.field.trace().to_hex().to_string(),
            events: self.field.events,
            wall_s: began.elapsed().as_secs_f64(),
            cpu_s: cpu_s(),
            peak_rss_bytes: peak_rss_bytes(),
        }
    }
}
