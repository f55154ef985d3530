//! The results of a storm, as JSON for programs and as a line for people.

use super::meter::{machine, processors};
use super::plan::{Mode, Plan};
use super::race::{Measured, Runner};
use super::weather::link;
use serde::Serialize;
use std::fmt::Write as _;

/// One storm's result. Ratios and rates are of payload: bytes that readers got and found right.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// The plan of the storm.
    #[serde(flatten)]
    pub plan: Plan,
    /// The machine of the measurement.
    pub machine: String,
    /// Readers that got everything.
    pub ok: usize,
    /// Of the others, unless an event explains it.
    pub errors: Vec<String>,
    /// What makes the figures doubtful.
    pub warnings: Vec<String>,
    /// If a reader got no byte for more than a second: what its node says of its slowest reads.
    pub freeze: Option<String>,
    /// From the start until the last reader ended.
    pub makespan_s: f64,
    /// Payload of all readers.
    pub delivered_bytes: u64,
    /// Payload / (makespan x readers x rate of a link). Headers leave 0.956 of it.
    pub efficiency: f64,
    /// Each reader's payload over its own time, in MB/s.
    pub mb_per_s: Spread,
    /// Each reader's own time, from its own start.
    pub seconds: Spread,
    /// The same over the time that its payload takes on a link without headers.
    pub over_ideal: Spread,
    /// Each reader's own time over the time that its payload takes without headers on its own
    /// host's downlink, or on the origin's uplink if that is slower.
    pub own_link: Spread,
    /// The least time in seconds in which the links bring all of the image to the readers that got
    /// it, if no store has any of it: see [`link::bound_s`].
    pub bound_s: f64,
    /// [`Sample::makespan_s`] over that.
    pub finish_over_bound: f64,
    /// From a reader's start until it had its export open.
    pub attach_s: Spread,
    /// What the origin's link sent, headers included, in images.
    pub origin_copies: f64,
    /// Processor seconds for each GB of payload.
    pub cpu_s_per_gb: Cpu,
    /// Share of all processors that worked while the storm ran: near 1 the processors are measured,
    /// and not the links.
    pub machine_busy: f64,
    /// The longest time that one request of any reader took.
    pub slowest_read_s: f64,
    /// The longest time in which any reader got no byte, after its export was open.
    pub longest_gap_s: f64,
    /// How late a thread of the measuring machine woke at most that only sleeps. So much of a gap
    /// may be the machine's.
    pub latest_pulse_s: f64,
    /// How often the machine's table of neighbours was full.
    pub table_fulls: u64,
    /// Of random reads.
    pub random: Option<Latency>,
    /// Results of each reader.
    pub nodes: Vec<NodeSample>,
}

/// The least, the middle and the most of some numbers; zeros of none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest value.
    pub min: f64,
    /// The median value.
    pub median: f64,
    /// The largest value.
    pub max: f64,
}

/// Processor time in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cpu {
    /// Of those who deliver.
    pub daemons: f64,
    /// Of those who read and check.
    pub readers: f64,
    /// Of the whole machine: shapers, interrupts and everything else included.
    pub machine: f64,
}

/// Random reads of all readers together.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Reads in a second, of all readers.
    pub reads_per_s: f64,
    /// The shortest, in microseconds.
    pub min_us: u32,
    /// Half of the reads took no longer.
    pub p50_us: u32,
    /// 95 of 100 took no longer.
    pub p95_us: u32,
    /// 99 of 100 took no longer.
    pub p99_us: u32,
    /// The longest, in microseconds.
    pub max_us: u32,
}

/// Results of one reader.
#[derive(Debug, Clone, Serialize)]
pub struct NodeSample {
    /// Its host; the origin is 0.
    pub host: usize,
    /// When it started, in seconds after the storm did.
    pub start_s: f64,
    /// From its start to its end.
    pub seconds: f64,
    /// Bytes it got and found right.
    pub bytes: u64,
    /// From its start until it had its export open.
    pub attach_s: f64,
    /// Its own time over the time that its payload takes without headers on its host's downlink, or
    /// on the origin's uplink if that is slower.
    pub own_link: f64,
    /// The longest time that a request took.
    pub slowest_read_s: f64,
    /// The longest time without a byte.
    pub longest_gap_s: f64,
    /// What its host's link sent, headers included.
    pub sent_bytes: u64,
    /// The event that befell it, if its reader could not be expected to go on.
    pub fate: Option<String>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl NodeSample {
    #[expect(clippy::cast_precision_loss, reason = "five digits are kept")]
    fn of(runner: &Runner, plan: &Plan, measured: &Measured) -> Option<Self> {
        let start_s = runner.start_s?;
        let sent = |reading: &super::meter::Reading| reading.links.get(runner.host).map_or(0, |link| link.sent_bytes);
        let outcome = runner.outcome.clone().unwrap_or_default();
        let link = plan.rates(runner.host).down.bytes().min(plan.rates(0).up.bytes());
        let error = if runner.outcome.is_some() { outcome.error } else { Some(runner.last_words()) };
        Some(Self {
            host: runner.host,
            start_s,
            seconds: tidy(outcome.seconds),
            bytes: outcome.bytes,
            own_link: tidy(ratio(outcome.seconds * link as f64, outcome.bytes as f64)),
            attach_s: tidy(outcome.attach_s),
            slowest_read_s: tidy(outcome.slowest_read_s),
            longest_gap_s: tidy(outcome.longest_gap_s),
            sent_bytes: sent(&measured.after).saturating_sub(sent(&measured.before)),
            fate: runner.fate.map(|fate| fate.to_string()),
            error,
        })
    }

    /// True if it got everything.
    pub fn is_ok(&self) -> bool {
        self.error.is_none()
    }
}

#[expect(clippy::cast_precision_loss, reason = "five digits are kept")]
impl Sample {
    /// Puts together what readers said and meters showed.
    pub(super) fn of(
        plan: &Plan,
        runners: &[Runner],
        measured: &Measured,
        mut warnings: Vec<String>,
        freeze: Option<String>,
    ) -> Self {
        let nodes: Vec<_> = runners.iter().filter_map(|runner| NodeSample::of(runner, plan, measured)).collect();
        let good: Vec<_> = nodes.iter().filter(|node| node.is_ok()).collect();
        let lost = nodes.iter().filter(|node| node.fate.is_none());
        let errors = lost.filter_map(|node| Some(format!("host {}: {}", node.host, node.error.as_ref()?))).collect();
        let makespan_s = good.iter().map(|node| node.start_s + node.seconds).fold(0.0, f64::max);
        let delivered_bytes: u64 = good.iter().map(|node| node.bytes).sum();
        let per_gb = |seconds: f64| tidy(ratio(seconds, delivered_bytes as f64 / 1e9));
        let of_good = |value: &dyn Fn(&NodeSample) -> f64| Spread::of(good.iter().map(|node| value(node)));
        let most = |value: &dyn Fn(&NodeSample) -> f64| good.iter().map(|node| value(node)).fold(0.0, f64::max);
        let machine_s = measured.after.machine_s - measured.before.machine_s;
        let table_fulls = measured.after.table_fulls.saturating_sub(measured.before.table_fulls);
        if table_fulls > 0 {
            warnings.push(format!(
                "the table of neighbours that all namespaces share was full {table_fulls} times, which real machines \
                 never see; a larger one: --arp-table {}",
                (4 * nodes.len() * nodes.len()).next_power_of_two()
            ));
        }
        let bound_s = bound_s(plan, &good);
        let sent = |reading: &super::meter::Reading| reading.links.first().map_or(0, |link| link.sent_bytes);
        let origin_bytes = sent(&measured.after).saturating_sub(sent(&measured.before));
        let capacity = makespan_s * nodes.len() as f64 * plan.link_bytes_per_s();
        Self {
            plan: plan.clone(),
            machine: machine(),
            ok: good.len(),
            errors,
            warnings,
            freeze,
            makespan_s: tidy(makespan_s),
            delivered_bytes,
            efficiency: tidy(ratio(delivered_bytes as f64, capacity)),
            mb_per_s: of_good(&|node| ratio(node.bytes as f64 / 1e6, node.seconds)),
            seconds: of_good(&|node| node.seconds),
            over_ideal: of_good(&|node| ratio(node.seconds * plan.link_bytes_per_s(), node.bytes as f64)),
            own_link: of_good(&|node| node.own_link),
            bound_s: tidy(bound_s),
            finish_over_bound: tidy(ratio(makespan_s, bound_s)),
            attach_s: of_good(&|node| node.attach_s),
            origin_copies: tidy(origin_bytes as f64 / plan.size_bytes as f64),
            cpu_s_per_gb: Cpu {
                daemons: per_gb(measured.daemons_s),
                readers: per_gb(measured.readers_s),
                machine: per_gb(machine_s),
            },
            // The meters see a little more than the race, which shows with the shortest ones.
            machine_busy: tidy(ratio(machine_s, makespan_s * processors() as f64).min(1.0)),
            slowest_read_s: most(&|node| node.slowest_read_s),
            longest_gap_s: most(&|node| node.longest_gap_s),
            latest_pulse_s: tidy(measured.latest.as_secs_f64()),
            table_fulls,
            random: (plan.mode == Mode::Random).then(|| latency(runners, makespan_s)),
            nodes,
        }
    }

    /// A line for people, and one more for each kind of trouble.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{} ok={}/{} EFF {:.3}  MB/s {:.2}/{:.2}/{:.2}  last {:.1} s  origin x{:.2}  CPU s/GB {:.2}+{:.2} of {:.2} \
             (busy {:.0} %)  slowest read {:.2} s, gap {:.2} s, pulse {:.2} s",
            self.plan,
            self.ok,
            self.nodes.len(),
            self.efficiency,
            self.mb_per_s.min,
            self.mb_per_s.median,
            self.mb_per_s.max,
            self.makespan_s,
            self.origin_copies,
            self.cpu_s_per_gb.daemons,
            self.cpu_s_per_gb.readers,
            self.cpu_s_per_gb.machine,
            self.machine_busy * 100.0,
            self.slowest_read_s,
            self.longest_gap_s,
            self.latest_pulse_s,
        );
        let _ = write!(line, "  own link {:.2} (median), {:.2} (worst", self.own_link.median, self.own_link.max);
        let good = self.nodes.iter().filter(|node| node.is_ok());
        if let Some(worst) = good.max_by(|a, b| a.own_link.total_cmp(&b.own_link)) {
            let _ = write!(line, ", host {}", worst.host);
        }
        let _ = write!(line, ")  bound {:.1} s, last x{:.2}", self.bound_s, self.finish_over_bound);
        if self.plan.mode == Mode::Stagger {
            let times = self.over_ideal;
            let _ = write!(line, "  time/(S/B) {:.2}/{:.2}/{:.2}", times.min, times.median, times.max);
        }
        if let Some(random) = &self.random {
            let (p50, p99) = (f64::from(random.p50_us) / 1e3, f64::from(random.p99_us) / 1e3);
            let _ = write!(line, "  {:.0} reads/s p50 {p50:.1} ms p99 {p99:.1} ms", random.reads_per_s);
        }
        if !self.plan.events.is_empty() {
            let good = self.nodes.iter().filter(|node| node.is_ok());
            let times: Vec<_> = good.map(|node| format!("{}: {:.2}", node.host, node.seconds)).collect();
            let _ = write!(line, "\n    seconds of each host: {}", times.join(", "));
        }
        for node in self.nodes.iter().filter(|node| node.fate.is_some()) {
            let fate = node.fate.as_deref().unwrap_or_default();
            let _ = write!(line, "\n    host {}: {fate}, after {:.1} MB", node.host, node.bytes as f64 / 1e6);
        }
        for trouble in self.errors.iter().chain(&self.warnings).chain(&self.freeze) {
            let _ = write!(line, "\n    ! {}", trouble.replace('\n', "\n      "));
        }
        line
    }
}

impl Spread {
    /// Of some numbers.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first(), values.last()) else { return Self::default() };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Self { min: tidy(*min), median: tidy(median), max: tidy(*max) }
    }
}

/// The bound of the readers that got everything.
fn bound_s(plan: &Plan, good: &[&NodeSample]) -> f64 {
    let downlinks: Vec<u64> = good.iter().map(|node| plan.rates(node.host).down.bytes()).collect();
    let uplinks = (usize::from(plan.origin_gone)..=plan.hosts_max()).map(|host| plan.rates(host).up.bytes());
    let origin = (!plan.warm).then(|| plan.rates(0).up.bytes());
    link::bound_s(plan.size_bytes, &downlinks, uplinks, origin)
}

#[expect(clippy::cast_precision_loss, reason = "some thousand reads")]
fn latency(runners: &[Runner], makespan_s: f64) -> Latency {
    let outcomes = runners.iter().filter_map(|runner| runner.outcome.as_ref());
    let mut all: Vec<_> = outcomes.flat_map(|outcome| outcome.latencies_us.iter().copied()).collect();
    all.sort_unstable();
    let of_hundred = |percent: usize| all.get(all.len() * percent / 100).or(all.last()).copied().unwrap_or_default();
    let reads_per_s = tidy(ratio(all.len() as f64, makespan_s));
    let [min_us, p50_us, p95_us, p99_us, max_us] = [0, 50, 95, 99, 100].map(of_hundred);
    Latency { reads_per_s, min_us, p50_us, p95_us, p99_us, max_us }
}

/// A quotient; zero where there is nothing to divide by.
fn ratio(value: f64, by: f64) -> f64 {
    if by > 0.0 { value / by } else { 0.0 }
}

/// Five digits behind the point: more would not be the same next time.
fn tidy(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_a_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0].into_iter()), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0].into_iter()), Spread { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }
}
