//! Storms from the command line: everybody reads one image at once, over thin links, in the way
//! that was asked for.
//!
//! `storm storm --readers 10 --store 6% --warm --repeat 3`, and `--system nbdkit` or `--system
//! chain` beside it. Prints a line for each storm; `--json FILE` appends all that was measured.
//! `scripts/storm-table` runs the recorded ones. Needs root, and nothing of it is left behind.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use vfield_measure::program;
use vfield_measure::storm::plan::{Plan, bytes};
use vfield_measure::storm::report::Spread;
use vfield_measure::storm::weather::{Busy, Links, Thinks};
use vfield_measure::storm::{Event, Mode, Programs, Sample, System, play_role, run};

/// Race readers of one image in a field of shaped hosts on this machine.
#[derive(Debug, Parser)]
#[command(name = "storm", max_term_width = 110)]
struct Options {
    /// All at once; one more each GAP; or blocks at random places
    mode: ModeName,
    /// The program that delivers the image
    #[arg(long, default_value = "vfield")]
    system: SystemName,
    /// Hosts that read, besides the origin's
    #[arg(long, short = 'n', default_value_t = 4)]
    readers: usize,
    /// Rate of each host's link, each way on its own
    #[arg(long, short = 'b', default_value_t = 100)]
    mbit: u64,
    /// Links of unequal hosts, or a file of them. RATE is for all and replaces -b; RATE@I is for
    /// one host, RATE@I..J for a range with both ends, RATE@I..J/2 for every second of it. Host 0
    /// is the origin. DOWN/UP gives a link two rates. RATE:FACTOR is divided by 1 to FACTOR, drawn
    /// for each host on a logarithmic scale. Example: 100M,10M@3,1G/100M@5..9
    #[arg(long, value_parser = Links::typed, value_name = "LINKS|FILE")]
    links: Option<Links>,
    /// Seed of links that are drawn: the simulator's, for the same ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Operators bound what hosts send at what their way out carries, if that is less than the way
    /// in
    #[arg(long)]
    limited: bool,
    /// Hosts whose node has a processor divided by FACTOR, or a file of them: FACTOR@I, FACTOR@I..J
    /// or FACTOR@I..J/2. Example: 20@3
    #[arg(long, value_parser = Busy::typed, value_name = "BUSY|FILE")]
    busy: Option<Busy>,
    /// Time that a reader works on each block before it reads on, or a file of them: TIME for all,
    /// TIME@I, TIME@I..J or TIME@I..J/2. Example: 250ms@3
    #[arg(long, value_parser = Thinks::typed, value_name = "THINK|FILE")]
    think: Option<Thinks>,
    /// Length of the image, in binary units
    #[arg(long, short = 's', default_value = "64M", value_parser = bytes)]
    size: u64,
    /// File whose bytes make the image, again and again if it is short [default: random bytes,
    /// which cannot be compressed]
    #[arg(long, value_name = "FILE")]
    content: Option<PathBuf>,
    /// What each node holds
    #[arg(long, default_value = "100%")]
    store: String,
    /// Nodes have joined and filled their stores before the start [default: they are started at the
    /// start]
    #[arg(long)]
    warm: bool,
    /// The origin has left before the start
    #[arg(long, requires = "warm")]
    origin_gone: bool,
    /// How eagerly stores fill: 0..9 or random
    #[arg(long, default_value = "9")]
    boost: String,
    /// The first so many readers' nodes are reached only through --front
    #[arg(long, default_value_t = 0, requires = "front")]
    fronted: usize,
    /// A program that is told where to listen and where a node does, such as the example `liar` of
    /// vfield-e2e
    #[arg(long, value_name = "PATH")]
    front: Option<PathBuf>,
    /// One more word for the command line of each reader's node; repeatable
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    node_word: Vec<String>,
    /// One more word for the command line of the origin; repeatable
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    origin_word: Vec<String>,
    /// The origin reads the image from a server of buckets on its host: the program that
    /// VFIELD_S3_SERVER names (versitygw)
    #[arg(long)]
    bucket: bool,
    /// Random: bytes of a read
    #[arg(long, default_value = "64K", value_parser = bytes)]
    block: u64,
    /// Random: reads of each host
    #[arg(long, default_value_t = 500)]
    count: usize,
    /// Random: reads of a host in flight
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Random: one block after the other instead, from the first on
    #[arg(long)]
    in_order: bool,
    /// Random: the image has a MiB of bytes in N, and holes between them, which are not read
    #[arg(long, default_value_t = 1, value_name = "N")]
    sparse: u64,
    /// Stagger: seconds between two starts
    #[arg(long, default_value_t = 1.0)]
    gap: f64,
    /// Trouble: 3s:slow:HOST:FACTOR, 3s:stop|kill|leave|cut|back:HOST, 3s:join:COUNT (host 0 is the
    /// origin); repeatable
    #[arg(long, value_name = "EVENT")]
    event: Vec<Event>,
    /// Let this machine remember so many neighbours meanwhile: all namespaces share one table
    #[arg(long, value_name = "ENTRIES")]
    arp_table: Option<u64>,
    /// Seconds after which a storm is cut off
    #[arg(long, default_value_t = 180.0)]
    limit: f64,
    /// How many times
    #[arg(long, short = 'r', default_value_t = 1)]
    repeat: usize,
    /// Append one JSON object for each storm
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program [default: beside this one]
    #[arg(long, value_name = "PATH", env = "VFIELD_BIN")]
    vfield: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeName {
    Storm,
    Stagger,
    Random,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SystemName {
    Vfield,
    Nbdkit,
    Chain,
}

fn main() {
    // The processes of the hosts are this program as well.
    play_role();
    match race(&Options::parse()) {
        Ok(true) => (),
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("storm: {error}");
            std::process::exit(2);
        }
    }
}

/// Runs all repeats; true if no reader failed.
fn race(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let plan = options.plan()?;
    let programs = options.programs()?;
    let mut samples = Vec::new();
    for _ in 0..options.repeat {
        let sample = run(&plan, &programs)?;
        println!("{}", sample.line());
        if let Some(path) = &options.json {
            program::append(path, &sample)?;
        }
        samples.push(sample);
    }
    if samples.len() > 1 {
        let median = |value: fn(&Sample) -> f64| Spread::of(samples.iter().map(value)).median;
        println!(
            "median of {}: EFF {:.3}  last {:.1} s  own link {:.2} (median), {:.2} (worst)  origin x{:.2}  CPU s/GB {:.2}+{:.2} of {:.2}  slowest read {:.2} s",
            samples.len(),
            median(|sample| sample.efficiency),
            median(|sample| sample.makespan_s),
            median(|sample| sample.own_link.median),
            median(|sample| sample.own_link.max),
            median(|sample| sample.origin_copies),
            median(|sample| sample.cpu_s_per_gb.daemons),
            median(|sample| sample.cpu_s_per_gb.readers),
            median(|sample| sample.cpu_s_per_gb.machine),
            median(|sample| sample.slowest_read_s),
        );
    }
    Ok(samples.iter().all(|sample| sample.errors.is_empty()))
}

impl Options {
    fn plan(&self) -> Result<Plan, Box<dyn std::error::Error>> {
        Ok(Plan {
            mode: match self.mode {
                ModeName::Storm => Mode::Storm,
                ModeName::Stagger => Mode::Stagger,
                ModeName::Random => Mode::Random,
            },
            system: match self.system {
                SystemName::Vfield => System::Vfield,
                SystemName::Nbdkit => System::Nbdkit,
                SystemName::Chain => System::Chain,
            },
            readers: self.readers,
            mbit: self.mbit,
            links: self.links.clone().unwrap_or_default(),
            seed: self.seed,
            limited: self.limited,
            busy: self.busy.clone().unwrap_or_default(),
            think: self.think.clone().unwrap_or_default(),
            size_bytes: self.size,
            content: self.content.clone(),
            store: self.store.clone(),
            warm: self.warm,
            origin_gone: self.origin_gone,
            boost: self.boost.clone(),
            fronted: self.fronted,
            node_words: self.node_word.clone(),
            origin_words: self.origin_word.clone(),
            bucket: self.bucket,
            block_bytes: u32::try_from(self.block)?,
            count: self.count,
            depth: self.depth,
            in_order: self.in_order,
            sparse: self.sparse,
            gap_s: self.gap,
            events: self.event.clone(),
            arp_table: self.arp_table,
            limit_s: self.limit,
        })
    }

    fn programs(&self) -> Result<Programs, Box<dyn std::error::Error>> {
        let vfield = program::vfield(self.vfield.as_deref())?;
        if matches!(self.system, SystemName::Vfield) && !vfield.is_file() {
            return Err(format!("no program {}; build it, or name one with --vfield", vfield.display()).into());
        }
        let front = self.front.as_ref().map(std::path::absolute).transpose()?;
        Ok(Programs { helper: (std::env::current_exe()?, Vec::new()), vfield, front })
    }
}
