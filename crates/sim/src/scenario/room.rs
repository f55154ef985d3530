//! A room: an origin and machines on one network, the common part of all scenarios with flags.

use super::units::{self, Boost, Store};
use super::weather;
use crate::checks::Checks;
use crate::commands::Failure;
use crate::dice::Dice;
use crate::field::{Arrival, Field, Reads};
use crate::network::{Cards, Discipline, Links};
use crate::original::Original;
use clap::{Args, ValueEnum};
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::Config;
use vfield_core::node::Input;

/// The way in which connections share a machine's way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Queueing {
    /// Fairly, as TCP does.
    Fair,
    /// First come, first served.
    Fifo,
}

/// The machines and their network.
#[derive(Debug, Clone, Args)]
pub struct Room {
    /// Machines besides the origin's
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N")]
    pub nodes: usize,
    /// Length of the image, in binary units
    #[arg(long, default_value = "256M", value_parser = units::bytes, value_name = "SIZE")]
    pub image: u64,
    /// Rate of each machine's link, each way on its own, in bits a second
    #[arg(long, default_value = "1G", value_parser = units::rate, value_name = "RATE")]
    pub link: u64,
    /// Links of unequal machines, or a file of them. RATE is for all and replaces --link; RATE@I is
    /// for one machine, RATE@I..J for a range with both ends, RATE@I..J/2 for every second of it.
    /// Machine 0 is the origin. DOWN/UP gives a link two rates. RATE:FACTOR is divided by 1 to
    /// FACTOR, drawn for each machine on a logarithmic scale. Example: 100M,10M@3,1G/100M@5..9
    #[arg(long, value_parser = weather::Links::typed, value_name = "LINKS|FILE")]
    pub links: Option<weather::Links>,
    /// What the machines' network cards say
    #[arg(long, value_enum, default_value_t)]
    pub cards: Cards,
    /// What the machines remember of their links from an earlier run
    #[arg(long, value_enum, default_value_t)]
    pub remembered: Cards,
    /// Operators bound what machines send at what their way out carries, if that is less than the
    /// way in
    #[arg(long)]
    pub limited: bool,
    /// Bytes that pass a machine's link at once after idle time, in each direction, as in a token
    /// bucket; the laboratory's links have 64K
    #[arg(long, default_value = "0", value_parser = units::bytes_or_none, value_name = "SIZE")]
    pub burst: u64,
    /// Machines whose node has a processor divided by FACTOR, or a file of them: FACTOR@I,
    /// FACTOR@I..J or FACTOR@I..J/2; others are infinitely fast. Example: 20@3
    #[arg(long, value_parser = weather::Busy::typed, value_name = "BUSY|FILE")]
    pub busy: Option<weather::Busy>,
    /// Store of each node: a share, a size, or random
    #[arg(long, default_value = "100%", value_name = "STORE")]
    pub store: Store,
    /// Machines of each zone [default: all are in one]
    #[arg(long, value_name = "K")]
    pub zone_size: Option<usize>,
    /// Rate of each zone's uplink, each way on its own
    #[arg(long, requires = "zone_size", default_value = "10G", value_parser = units::rate, value_name = "RATE")]
    pub zone_uplink: u64,
    /// Share of time in which stores fill: 0 to 9, or random
    #[arg(long, default_value = "9", value_name = "BOOST")]
    pub join_boost: Boost,
    /// From one machine to another, one way
    #[arg(long, default_value = "100us", value_parser = units::time, value_name = "TIME")]
    pub delay: Duration,
    /// Chunk size: a power of two from 16K to 1M, which only this fixes: the product's default is
    /// 64K
    #[arg(long, default_value = "64K", value_parser = units::bytes, value_name = "SIZE")]
    pub chunk: u64,
    /// Most bytes read ahead of a reader in chunks of 64K; windows and caches follow. It doubles
    /// for chunks four times as large. Only this simulator has it as an option; the product's
    /// default is 8M
    #[arg(long, default_value = "8M", value_parser = units::bytes, value_name = "SIZE")]
    pub read_ahead: u64,
    /// How connections share a machine's way out
    #[arg(long, default_value = "fair")]
    pub queueing: Queueing,
    /// Links without headers: all of their rate is payload
    #[arg(long)]
    pub no_headers: bool,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Simulated time after which a run is cut off
    #[arg(long, default_value = "1h", value_parser = units::time, value_name = "TIME")]
    pub limit: Duration,
    /// Most memory of a run: above it a run does not begin, or is stopped
    #[arg(long, default_value = "16G", value_parser = units::bytes, value_name = "SIZE")]
    pub memory: u64,
    /// Begin also if it would take more memory than it may, or an hour
    #[arg(long)]
    pub force: bool,
}

/// Nodes that are started before anything happens are started this far apart, as a script does.
const START_APART: Duration = Duration::from_millis(5);
/// Time in which news of the last full store reaches all nodes.
const SETTLE: Duration = Duration::from_secs(5);

impl Room {
    /// Checks whether this room can be built, with some machines that join later.
    ///
    /// # Errors
    /// The reason why not, for the user.
    pub fn check(&self, joiners: usize) -> Result<(), String> {
        let refuse = |yes: bool, why: &str| if yes { Err(why.to_owned()) } else { Ok(()) };
        refuse(self.nodes == 0, "--nodes: there is at least one")?;
        refuse(self.nodes >= 1 << 20, "--nodes: at most a million")?;
        let power = self.chunk.is_power_of_two() && (16 << 10..=1 << 20).contains(&self.chunk);
        refuse(!power, "--chunk: a power of two from 16K to 1M")?;
        let sound = (1 << 20..=1 << 30).contains(&self.read_ahead);
        refuse(!sound, "--read-ahead: 1M to 1G")?;
        refuse(self.zone_size == Some(0), "--zone-size: a zone has at least one machine")?;
        refuse(self.image / self.chunk >= 1 << 32, "--image: at most four thousand million chunks")?;
        refuse(self.limit.is_zero(), "--limit: some time")?;
        let machines = self.nodes.saturating_add(1).saturating_add(joiners);
        self.links.as_ref().map_or(Ok(()), |links| links.check(machines)).map_err(|why| format!("--links {why}"))?;
        self.busy.as_ref().map_or(Ok(()), |busy| busy.check(machines)).map_err(|why| format!("--busy {why}"))?;
        refuse(self.delay > Duration::from_secs(10), "--delay: at most 10 s")
    }

    /// Bytes a second towards a machine without a link of its own, before chance divides them.
    pub fn usual_link(&self) -> u64 {
        let said = self.links.as_ref().and_then(weather::Links::usual);
        said.map_or(self.link, |link| link.nominal().down.bytes())
    }

    /// The usual link's time for the whole image without headers, in seconds.
    pub fn limit_s(&self) -> f64 {
        self.image as f64 / self.usual_link() as f64
    }

    /// The field, with an origin (machine 0) and nobody else.
    pub fn field(&self) -> Field {
        let size = ChunkSize::new(self.chunk as u32).expect("checked");
        let chunks = self.image.div_ceil(self.chunk);
        let image = Original::of(1, chunks, size, std::slice::from_ref(&(0..chunks)));
        let mut field = Field::new(self.seed, vec![image]);
        let (packet_headers, packet_payload) = if self.no_headers { (0, 0) } else { Links::ETHERNET };
        field.links = Links {
            rate: self.usual_link(),
            own: self.links.clone().unwrap_or_default(),
            seed: self.seed,
            cards: self.cards,
            remembered: self.remembered,
            limited: self.limited,
            burst: self.burst,
            delay: self.delay,
            jitter: self.delay / 2,
            zone_size: self.zone_size.unwrap_or(0),
            zone_rate: self.zone_uplink,
            discipline: if self.queueing == Queueing::Fair { Discipline::Fair } else { Discipline::Fifo },
            packet_headers,
            packet_payload,
            ..Links::default()
        };
        field.busy = self.busy.clone().unwrap_or_default();
        field.config = self.config();
        field.checks = Checks::rare();
        field.keeps_notices = false;
        field.memory_max = self.memory;
        field.origin(None, &[0]);
        field
    }

    /// The cores' settings: the product's defaults, with windows that grow with the read-ahead.
    pub(super) fn config(&self) -> Config {
        let config = Config::default();
        let widened = |bytes: u64| (bytes as f64 * self.read_ahead as f64 / config.read_ahead_bytes as f64) as u64;
        let (window_bytes, transient_bytes) = (widened(config.window_bytes), widened(config.transient_bytes));
        Config { join_boost: 9, window_bytes, transient_bytes, read_ahead_bytes: self.read_ahead, ..config }
    }

    /// Switches a machine on after a while; once it has joined it reads, if `reads`.
    pub fn switch_on(&self, field: &mut Field, dice: &mut Dice, wait: Duration, reads: Option<Reads>) -> usize {
        let geometry = field.images[0].geometry;
        let capacity = self.store.chunks(geometry.chunks(), geometry.chunk_bytes(), dice.roll());
        field.config.join_boost = match self.join_boost {
            Boost::Fixed(boost) => boost,
            Boost::Random => dice.among(0..10) as u8,
        };
        field.arrive(wait, Arrival { via: Some(0), origin: false, images: vec![(0, capacity)], reads })
    }

    /// # Errors
    /// If a run was stopped because of the memory that it took.
    pub const fn has_kept_within_memory(&self, field: &Field) -> Result<(), Failure> {
        if field.is_full { Err(Failure::Full(self.memory)) } else { Ok(()) }
    }

    /// Switches all machines on and waits until their stores are full and all nodes know.
    ///
    /// # Errors
    /// If that exceeds the time or the memory of a run.
    pub fn warm_up(&self, field: &mut Field, dice: &mut Dice) -> Result<Vec<usize>, Failure> {
        let start = |node| self.switch_on(field, dice, START_APART * node as u32, None);
        let nodes: Vec<usize> = (0..self.nodes).map(start).collect();
        let ready = |field: &Field| field.waiting_to_join() == 0 && field.filled(&nodes);
        let filled = field.try_until(self.limit, ready);
        self.has_kept_within_memory(field)?;
        filled.ok_or_else(|| Failure::Unfinished("the stores do not fill within --limit".to_owned()))?;
        field.run(SETTLE);
        Ok(nodes)
    }

    /// The origin says goodbye and goes.
    pub fn send_off_the_origin(&self, field: &mut Field) {
        field.input(0, Input::Leave);
        field.run(SETTLE);
        field.input(0, Input::Gone);
        field.run(self.delay * 4);
        field.kill(0, true);
        field.run(SETTLE);
    }
}
