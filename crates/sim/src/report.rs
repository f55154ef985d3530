//! The report of a run: one JSON object, or a line.

use serde::Serialize;

/// The report of a run.
pub trait Report: Serialize {
    /// One line for display.
    fn line(&self) -> String;

    /// Prints the line, or the JSON object.
    fn print(&self, json: bool) {
        println!("{}", if json { serde_json::to_string(self).unwrap_or_default() } else { self.line() });
    }
}

/// Least, median and most of some numbers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The lowest value.
    pub least: f64,
    /// The median value.
    pub median: f64,
    /// The highest value.
    pub most: f64,
}

impl Spread {
    /// The spread of some numbers; of none, all NaN, which is null in JSON.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let at = |at: usize| numbers.get(at).copied().unwrap_or(f64::NAN);
        Self { least: at(0), median: at(numbers.len() / 2), most: at(numbers.len().saturating_sub(1)) }
    }
}

/// The result of a storm.
#[derive(Debug, Serialize)]
pub struct StormReport {
    /// Readers that were to read all.
    pub nodes: usize,
    /// Length of the image.
    pub image_bytes: u64,
    /// Bytes a second towards a machine without a link of its own.
    pub link_bytes_per_s: u64,
    /// Finish of the last reader, as a multiple of the link's time for the image.
    pub finish_over_limit: f64,
    /// Finish of the median reader, likewise.
    pub median_over_limit: f64,
    /// Finish of the first reader, likewise.
    pub first_over_limit: f64,
    /// Finish of the last reader in seconds.
    pub finish_s: f64,
    /// Each reader's own time, from its own start, likewise.
    pub own_over_limit: Spread,
    /// The same of each machine, in fields of up to 1000 of them; the machine's number and its
    /// time.
    pub nodes_over_limit: Vec<(usize, f64)>,
    /// Each reader's own time, from its own start, as a multiple of the time that the image needs
    /// on its own machine's downlink, or on the origin's uplink if that is slower. It may be below
    /// 1 where a store has a part of the image.
    pub own_link: Spread,
    /// The same of each machine, listed like [`StormReport::nodes_over_limit`].
    pub nodes_own_link: Vec<(usize, f64)>,
    /// The least time in seconds in which the links of the machines bring all of the image to all
    /// readers, if no store has any of it: see [`vfield_weather::link::bound_s`].
    pub bound_s: f64,
    /// Finish of the last reader, as a multiple of that.
    pub finish_over_bound: f64,
    /// Readers that did not finish in time.
    pub unfinished: usize,
    /// Bytes of chunks that the origin sent, in images.
    pub origin_copies: f64,
    /// Bytes of chunks that came into the zone that most came into, in images; null without zones.
    pub zone_copies: Option<f64>,
    /// Bytes of gossip, requests, refusals, notes and signs of life for each byte of payload.
    pub control_share: f64,
    /// The longest that a reader did not get on at all, in seconds.
    pub longest_stall_s: f64,
    /// Requests for each chunk that came.
    pub requests_per_chunk: f64,
    /// Refusals for each chunk that came.
    pub refusals_per_chunk: f64,
    /// The seed of all randomness.
    pub seed: u64,
    /// The hash of all that happened.
    pub trace: String,
    /// Events of the simulation.
    pub events: u64,
    /// Time that it took, in seconds.
    pub wall_s: f64,
    /// Seconds of processor time, of all runs of this process.
    pub cpu_s: f64,
    /// Memory that it took.
    pub peak_rss_bytes: u64,
}

impl Report for StormReport {
    fn line(&self) -> String {
        format!(
            "N={} S={:.1} MB: last {:.3} of S/B ({:.2} s), median {:.3}, first {:.3}; own {:.2} {:.2} {:.2}; \
             own link: median {:.2}, worst {:.2}{}; bound {:.2} s, last {:.2} of it; origin x{:.3}, zone x{}, control {:.2} %, longest stall {:.2} s, unfinished {}; {} events in {:.1} s, {} MiB",
            self.nodes,
            self.image_bytes as f64 / 1e6,
            self.finish_over_limit,
            self.finish_s,
            self.median_over_limit,
            self.first_over_limit,
            self.own_over_limit.least,
            self.own_over_limit.median,
            self.own_over_limit.most,
            self.own_link.median,
            self.own_link.most,
            worst(&self.nodes_own_link).map_or_else(String::new, |machine| format!(" (machine {machine})")),
            self.bound_s,
            self.finish_over_bound,
            self.origin_copies,
            self.zone_copies.map_or_else(|| "-".to_owned(), |copies| format!("{copies:.3}")),
            self.control_share * 100.0,
            self.longest_stall_s,
            self.unfinished,
            self.events,
            self.wall_s,
            self.peak_rss_bytes >> 20,
        )
    }
}

/// The machine with the highest number.
fn worst(nodes: &[(usize, f64)]) -> Option<usize> {
    nodes.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(machine, _)| *machine)
}

/// The traffic between nodes while no machine reads.
#[derive(Debug, Serialize)]
pub struct IdleReport {
    /// Nodes besides the origin.
    pub nodes: usize,
    /// Machines of each zone; null if all are in one.
    pub zone_size: Option<usize>,
    /// Bytes per second that each machine sends, with the network's headers.
    pub control_bytes_per_s: Spread,
    /// The same, on average.
    pub control_bytes_per_s_mean: f64,
    /// Number of others that each knows, as members and as gateways.
    pub known: Spread,
    /// Seconds of the measurement.
    pub watched_s: f64,
    /// The seed of all randomness.
    pub seed: u64,
    /// The hash of all that happened.
    pub trace: String,
    /// Time that it took, in seconds.
    pub wall_s: f64,
    /// Memory that it took.
    pub peak_rss_bytes: u64,
}

impl Report for IdleReport {
    fn line(&self) -> String {
        let Spread { least, median, most } = self.control_bytes_per_s;
        format!(
            "N={}: each node sends {least:.0} to {most:.0} bytes/s, median {median:.0}, mean {:.0}; it knows {} to {} others; \
             {:.1} s, {} MiB",
            self.nodes,
            self.control_bytes_per_s_mean,
            self.known.least,
            self.known.most,
            self.wall_s,
            self.peak_rss_bytes >> 20,
        )
    }
}

/// The result of a boot.
#[derive(Debug, Serialize)]
pub struct BootReport {
    /// Machines that booted.
    pub nodes: usize,
    /// Machines of each zone; null if all are in one.
    pub zone_size: Option<usize>,
    /// Stores were full before.
    pub warm: bool,
    /// Reads of each, one chunk each.
    pub reads: usize,
    /// The read in the middle, of all reads of all machines, in round trips.
    pub median_round_trips: f64,
    /// The same in seconds.
    pub median_s: f64,
    /// 99th percentile of read times in seconds.
    pub p99_s: f64,
    /// Longest read time in seconds.
    pub most_s: f64,
    /// A round trip: a request and its answer on idle links, the time that a chunk takes on one
    /// included.
    pub round_trip_s: f64,
    /// Finish of the last reader in seconds, from the start of the first.
    pub finish_s: f64,
    /// Bytes of chunks that the origin sent, for each byte that one machine read.
    pub origin_copies: f64,
    /// The seed of all randomness.
    pub seed: u64,
    /// The hash of all that happened.
    pub trace: String,
    /// Time that it took, in seconds.
    pub wall_s: f64,
    /// Memory that it took.
    pub peak_rss_bytes: u64,
}

impl Report for BootReport {
    fn line(&self) -> String {
        format!(
            "N={}: {} reads each, median {:.2} round trips ({:.2} ms), of a hundred one takes more than {:.1} ms, longest {:.1} ms; \
             last done after {:.2} s; origin x{:.3}; {:.1} s, {} MiB",
            self.nodes,
            self.reads,
            self.median_round_trips,
            self.median_s * 1e3,
            self.p99_s * 1e3,
            self.most_s * 1e3,
            self.finish_s,
            self.origin_copies,
            self.wall_s,
            self.peak_rss_bytes >> 20,
        )
    }
}

/// The most memory that this process has had, as the kernel counts it; 0 if it does not say.
pub fn peak_rss_bytes() -> u64 {
    of_status("VmHWM:")
}

/// The memory that it has now, likewise.
pub fn rss_bytes() -> u64 {
    of_status("VmRSS:")
}

/// Seconds of processor time that it has taken.
pub fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may have blanks in it, user and system time are the 12th and 13th, in
    // hundredths (proc_pid_stat(5)).
    let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn of_status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
