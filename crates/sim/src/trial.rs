//! One trial of chaos: first safety during faults, then liveness after all are mended.

use crate::checks::{Checks, Pairs, Violation, converged};
use crate::explain;
use crate::faults::Fault;
use crate::field::{Arrival, Field, Reads};
use crate::machine::Fault as Illness;
use crate::network::takes;
use crate::scenario::chaos::Chaos;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;
use vfield_core::inquiry::Purpose;
use vfield_core::node::Input;
use vfield_core::time::Time;

/// Longest time until all is well after all faults are mended, besides the time for stores to fill
/// again.
///
/// The cores' longest waits of their own decide it. A member held for dead is greeted every 2 s.
/// Snapshots are exchanged every 10 s, more slowly in larger fields; the value is three rounds of
/// that.
pub const MENDED_WITHIN: Duration = Duration::from_secs(45);
/// Times that a store may be filled anew meanwhile, since arcs move until the image is covered.
const FILLS: f64 = 3.0;
/// Times that each machine asks stores for samples meanwhile, where that takes its time.
const SAMPLED: u32 = 6;
/// Samples of each store: one of each part of its claim.
const SAMPLES: u64 = vfield_core::verified::PARTS;
/// Ten times what the busiest trial of some thousand took.
const EVENTS_MAX: u64 = 20_000_000;
/// Interval of checks whether all is well.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time for which all has to stay well.
const STAYS: Duration = Duration::from_secs(2);

/// Most waiting readers that are followed from machine to machine.
const CHAINS: usize = 40;

/// The result of a trial.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The violation, if there was one.
    pub violation: Option<Violation>,
    /// The hash of all that happened.
    pub trace: String,
    /// Number of steps in the trace.
    pub steps: u64,
    /// The last steps in words.
    pub last: Vec<String>,
    /// Each machine's view at the end, if something was found wrong.
    pub view: String,
    /// Length in simulated seconds.
    pub simulated_s: f64,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics in trials are findings: they are noted, and not printed.
pub fn note_panics() {
    panic::set_hook(Box::new(|info| {
        PANIC.with(|panic| *panic.borrow_mut() = Some(info.to_string().replace('\n', " ")));
    }));
}

/// Runs one trial.
pub fn run(chaos: &Chaos) -> Outcome {
    let mut field = prepare(chaos);
    let ended = panic::catch_unwind(AssertUnwindSafe(|| play(chaos, &mut field)));
    if let Err(payload) = ended {
        let what = PANIC.with(|panic| panic.borrow_mut().take()).unwrap_or_else(|| words(payload.as_ref()));
        field.violation = Some(Violation { checker: "panic", at: field.now(), machine: 0, what });
    }
    let view = if field.violation.is_some() { describe(&field) } else { String::new() };
    Outcome {
        trace: field.trace().to_hex().to_string(),
        steps: field.steps(),
        last: field.last_steps(),
        view,
        simulated_s: field.now().since_start().as_secs_f64() - 1.0,
        violation: field.violation,
    }
}

/// The view of each machine, and the causes of the waits.
fn describe(field: &Field) -> String {
    let mut text = field.describe();
    let stuck = field.readers.iter().filter(|reader| field.machines[reader.machine].alive && !reader.is_done());
    let old = |machine: &usize| {
        let flights = field.machines[*machine].flights.iter().filter(|(_, flight)| !flight.cancelled);
        flights.min_by_key(|(_, flight)| flight.sent).map(|(_, flight)| (usize::from(flight.image), flight.chunk))
    };
    let asked = field.there().into_iter().filter_map(|machine| old(&machine).map(|of| (machine, of)));
    let chains = stuck.filter_map(|reader| explain::chain(field, reader.machine));
    let chains = chains.chain(asked.map(|(machine, (image, chunk))| explain::chain_of(field, machine, image, chunk)));
    for chain in chains.take(CHAINS) {
        text.push_str(&chain);
        text.push('\n');
    }
    text
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panics".to_owned())
}

fn prepare(chaos: &Chaos) -> Field {
    let images = [Some(chaos.image.clone()), chaos.next.clone()].into_iter().flatten().collect();
    let mut field = Field::new(chaos.seed, images);
    field.links = chaos.links.clone();
    field.groups = chaos.groups;
    field.config = chaos.config.clone();
    field.followers = chaos.followers.clone();
    field.strict = false;
    field.keeps_notices = false;
    field.events_max = EVENTS_MAX;
    field.checks = Checks { blame: true, copies: true, ..Checks::all() };
    field
}

/// Runs the field until a time after `begin`. With malicious members it looks at all pairs of
/// machines on the way.
fn run_until(chaos: &Chaos, field: &mut Field, end: Time, pairs: &mut Pairs) {
    while chaos.has_malice() && field.now() < end && field.violation.is_none() {
        field.run((field.now() + LOOK_EVERY).min(end).since(field.now()));
        if let Err(violation) = pairs.look(field) {
            field.found(violation);
        }
    }
    field.run(end.since(field.now()));
}

fn play(chaos: &Chaos, field: &mut Field) {
    let mut pairs = Pairs::default();
    field.origin(None, &[0]);
    let begin = field.now();
    for (node, start) in chaos.starts.iter().enumerate() {
        let reads = Reads { image: 0, order: chaos.habits.order.clone(), depth: chaos.habits.depth };
        let images = vec![(0, chaos.habits.stores[node + 1])];
        field.arrive(*start, Arrival { via: Some(0), origin: false, images, reads: Some(reads) });
    }
    for planned in &chaos.faults {
        run_until(chaos, field, begin + planned.at, &mut pairs);
        if field.violation.is_some() {
            return;
        }
        planned.fault.strike(field, &chaos.habits);
    }
    run_until(chaos, field, begin + chaos.heals_at, &mut pairs);
    if field.violation.is_none() {
        mend(chaos, field);
        demand(chaos, field, MENDED_WITHIN + filling(chaos) + sampling(chaos) * SAMPLED, &mut pairs);
    }
}

/// Time for stores to fill. The slowest use a tenth of their links, or of their time if an answer
/// is longer on its way than on the link. They request two chunks at once. All may wait for the
/// slowest link, of which samples leave half ([`sampling`]). Each zone may bring all of it in by
/// the uplink of one.
fn filling(chaos: &Chaos) -> Duration {
    let versions = 1 + u64::from(chaos.next.is_some());
    let chunks = (chaos.image.chunks() * versions) as f64;
    let bytes = chunks * chaos.image.geometry.chunk_bytes() as f64;
    let round_trip = 2.0 * (chaos.links.delay + chaos.links.jitter).as_secs_f64();
    let share = f64::from(chaos.config.join_boost + 1) / 10.0;
    let left = if chaos.has_malice() { 0.5 } else { 1.0 };
    let by_link = FILLS * (bytes / slowest_link(chaos) as f64 + chunks * round_trip / 2.0) / (share * left);
    // Zones are numbered in the order of their places.
    let other_zones = chaos.links.zone(chaos.starts.len() as u32);
    let by_uplink = FILLS * bytes * f64::from(other_zones) / chaos.links.zone_rate as f64;
    Duration::from_secs_f64(by_link + by_uplink)
}

/// Interval at which a machine of a field with malicious members asks all stores for samples, which
/// so take half of the slowest link.
fn sampling(chaos: &Chaos) -> Duration {
    if !chaos.has_malice() {
        return Duration::ZERO;
    }
    let bytes = SAMPLES * chaos.starts.len() as u64 * chaos.image.geometry.chunk_bytes();
    takes(2 * bytes, slowest_link(chaos))
}

/// Bytes a second of the slowest direction of any link.
fn slowest_link(chaos: &Chaos) -> u64 {
    let links = (0..=chaos.starts.len() as u32).map(|place| chaos.links.rates(place));
    links.map(|own| own.up.min(own.down)).min().unwrap_or(chaos.links.rate)
}

/// Mends all faults that can be mended; dead machines stay dead.
fn mend(chaos: &Chaos, field: &mut Field) {
    field.tear_all_down();
    Fault::Loss(0).strike(field, &chaos.habits);
    for machine in 0..field.machines.len() {
        field.set_firewall(machine, false);
        if field.machines[machine].alive {
            field.set_fault(machine, Illness::None);
            field.slow(machine, 1);
        }
    }
}

/// Now everything has to become well, and stay so.
fn demand(chaos: &Chaos, field: &mut Field, within: Duration, pairs: &mut Pairs) {
    let deadline = field.now() + within;
    // Machines take turns, or the slowest link would have all their samples at once.
    let rounds = (sampling(chaos).as_nanos() / LOOK_EVERY.as_nanos()).max(1) as usize;
    let (mut well_since, mut round) = (None, 0);
    loop {
        let amiss = converged(field);
        match (amiss, well_since) {
            (None, None) => well_since = Some(field.now()),
            (None, Some(since)) if field.now() - since >= STAYS => return,
            (None, Some(_)) => {}
            (Some(_), _) if field.now() < deadline => well_since = None,
            (Some(violation), _) => return field.found(violation),
        }
        if chaos.has_malice() {
            // As before an origin leaves: stores were verified when their nodes were honest.
            let turn = |(nth, machine): (usize, usize)| (nth % rounds == round % rounds).then_some(machine);
            for machine in field.honest().into_iter().enumerate().filter_map(turn) {
                field.input(machine, Input::Inquire { times: 1, purpose: Purpose::Leave });
            }
            round += 1;
        }
        run_until(chaos, field, field.now() + LOOK_EVERY, pairs);
        if field.violation.is_some() {
            return;
        }
    }
}
