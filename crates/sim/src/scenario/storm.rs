//! A storm: everybody reads one image at once, or one after the other, on links that are the limit.

use super::units::{self, Boost, Store};
use super::weather::{Event, Trouble};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// In which order readers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Reading {
    /// From the first byte to the last.
    Sequential,
    /// Blocks at random places, as many as the image has.
    Random,
}

/// How connections share a machine's way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Queueing {
    /// Fairly, as TCP does.
    Fair,
    /// First come, first served.
    Fifo,
}

/// What a storm is made of.
#[derive(Debug, Clone, Args)]
pub struct Storm {
    /// Machines that read, besides the origin's
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N")]
    pub nodes: usize,
    /// Length of the image, in binary units
    #[arg(long, default_value = "256M", value_parser = units::bytes, value_name = "SIZE")]
    pub image: u64,
    /// Rate of each machine's link, each way on its own, in bits a second
    #[arg(long, default_value = "1G", value_parser = units::rate, value_name = "RATE")]
    pub link: u64,
    /// What each node holds: a share, a size, or random
    #[arg(long, default_value = "100%", value_name = "STORE")]
    pub store: Store,
    /// Machines of each zone [default: all are in one]
    #[arg(long, value_name = "K")]
    pub zone_size: Option<usize>,
    /// Rate of each zone's uplink, each way on its own
    #[arg(long, default_value = "10G", value_parser = units::rate, value_name = "RATE")]
    pub zone_uplink: u64,
    /// Nodes have joined and filled their stores before the start [default: they are started at the start]
    #[arg(long)]
    pub warm: bool,
    /// The origin has left before the start
    #[arg(long, requires = "warm")]
    pub origin_gone: bool,
    /// One more reader starts each TIME [default: all at once]
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    pub stagger: Option<Duration>,
    /// What readers read
    #[arg(long, default_value = "sequential", value_name = "ORDER")]
    pub order: Reading,
    /// How eagerly stores fill: 0 to 9, or random
    #[arg(long, default_value = "9", value_name = "BOOST")]
    pub join_boost: Boost,
    /// From one machine to another, one way
    #[arg(long, default_value = "100us", value_parser = units::time, value_name = "TIME")]
    pub delay: Duration,
    /// Chunk size: a power of two from 16K to 1M
    #[arg(long, default_value = "64K", value_parser = units::bytes, value_name = "SIZE")]
    pub chunk: u64,
    /// Bytes that a reader asks for at a time
    #[arg(long, default_value = "256K", value_parser = units::bytes, value_name = "SIZE")]
    pub block: u64,
    /// Blocks that a reader asks for at once
    #[arg(long, default_value_t = 8)]
    pub depth: usize,
    /// How connections share a machine's way out
    #[arg(long, default_value = "fair")]
    pub queueing: Queueing,
    /// Links without headers: all of their rate is payload
    #[arg(long)]
    pub no_headers: bool,
    /// Trouble: 3s:slow:MACHINE:FACTOR, 3s:stop|kill|leave|cut|back:MACHINE, 3s:join:COUNT (machine 0 is the origin);
    /// repeatable
    #[arg(long, value_name = "EVENT")]
    pub event: Vec<Event>,
    /// All chance follows from it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Simulated time after which a storm is cut off
    #[arg(long, default_value = "1h", value_parser = units::time, value_name = "TIME")]
    pub limit: Duration,
    /// Write down, each simulated second, what machine I reads, from whom it comes, and who refuses; repeatable
    #[arg(long, value_name = "I")]
    pub trace_node: Vec<usize>,
    /// Write that down of the slowest readers, each second
    #[arg(long)]
    pub explain: bool,
}

impl Storm {
    /// Why this cannot be run, if it cannot.
    ///
    /// # Errors
    /// In words for the one who typed it.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |yes: bool, why: &str| if yes { Err(why.to_owned()) } else { Ok(()) };
        refuse(self.nodes == 0, "--nodes: a storm has at least one reader")?;
        refuse(self.machines() > 1 << 20, "--nodes: at most a million machines")?;
        let power = self.chunk.is_power_of_two() && (16 << 10..=1 << 20).contains(&self.chunk);
        refuse(!power, "--chunk: a power of two from 16K to 1M")?;
        refuse(self.depth == 0 || self.depth > 1024, "--depth: 1 to 1024 blocks")?;
        refuse(self.zone_size == Some(0), "--zone-size: a zone has at least one machine")?;
        for event in &self.event {
            let machine = event.trouble.machine().unwrap_or_default();
            refuse(machine >= self.machines(), &format!("--event {event}: there is no such machine"))?;
        }
        let known = self.trace_node.iter().all(|machine| *machine < self.machines());
        refuse(!known, "--trace-node: there is no such machine")
    }

    /// All machines that there will be.
    pub fn machines(&self) -> usize {
        let joins = |event: &Event| if let Trouble::Join(count) = event.trouble { count } else { 0 };
        self.event.iter().map(joins).fold(self.nodes.saturating_add(1), usize::saturating_add)
    }

    /// How long a link needs for the whole image if headers took nothing.
    pub fn limit_s(&self) -> f64 {
        self.image as f64 / self.link as f64
    }
}
