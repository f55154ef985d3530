//! A storm: all machines read one image, at once or one after the other, on links that are the
//! bottleneck.

use super::room::Room;
use super::units;
use super::weather::{Event, Thinks, Trouble};
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::time::Duration;

/// In which order readers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Reading {
    /// From the first byte to the last.
    Sequential,
    /// Blocks at random places, as many as the image has.
    Random,
}

/// The settings of a storm.
#[derive(Debug, Clone, Args)]
pub struct Storm {
    /// The machines and their network
    #[command(flatten)]
    pub room: Room,
    /// Nodes have joined and filled their stores before the start [default: they are started at the
    /// start]
    #[arg(long)]
    pub warm: bool,
    /// The origin has left before the start
    #[arg(long, requires = "warm")]
    pub origin_gone: bool,
    /// Interval between the starts of readers [default: all at once]
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    pub stagger: Option<Duration>,
    /// Readers begin in an order that is drawn, not in that in which their nodes came
    #[arg(long, requires_all = ["warm", "stagger"])]
    pub shuffle: bool,
    /// The reading order
    #[arg(long, default_value = "sequential", value_name = "ORDER")]
    pub order: Reading,
    /// Bytes that a reader asks for at a time
    #[arg(long, default_value = "256K", value_parser = units::bytes, value_name = "SIZE")]
    pub block: u64,
    /// Blocks that a reader asks for at once
    #[arg(long, default_value_t = 8)]
    pub depth: usize,
    /// Time that a reader works on each block before it reads on, or a file of them: TIME for all,
    /// TIME@I, TIME@I..J or TIME@I..J/2. Example: 250ms@3
    #[arg(long, value_parser = Thinks::typed, value_name = "THINK|FILE")]
    pub think: Option<Thinks>,
    /// Trouble: 3s:slow:MACHINE:FACTOR, 3s:stop|kill|leave|cut|back:MACHINE, 3s:join:COUNT (machine
    /// 0 is the origin); repeatable
    #[arg(long, value_name = "EVENT")]
    pub event: Vec<Event>,
    /// Print, each simulated second, the reads of machine I, their senders, and the refusals;
    /// repeatable
    #[arg(long, value_name = "I")]
    pub trace_node: Vec<usize>,
    /// Write that down of the slowest readers, each second
    #[arg(long)]
    pub explain: bool,
}

impl Storm {
    /// Checks whether this storm can be run.
    ///
    /// # Errors
    /// The reason why not, for the user.
    pub fn check(&self) -> Result<(), String> {
        self.room.check(self.machines() - 1 - self.room.nodes)?;
        let refuse = |yes: bool, why: &str| if yes { Err(why.to_owned()) } else { Ok(()) };
        refuse(self.machines() > 1 << 20, "--event: at most a million machines in all")?;
        refuse(self.depth == 0 || self.depth > 1024, "--depth: 1 to 1024 blocks")?;
        let think = self.think.as_ref().map_or(Ok(()), |think| think.check(self.machines()));
        think.map_err(|why| format!("--think {why}"))?;
        let wait = self.stagger.unwrap_or_default().saturating_mul(self.room.nodes as u32);
        refuse(wait > self.room.limit, "--stagger: the last would start after --limit")?;
        let mut events = self.event.clone();
        events.sort_by_key(|event| event.after);
        let mut gone = BTreeSet::new();
        for event in &events {
            let machine = event.trouble.host();
            refuse(event.after > self.room.limit, &format!("--event {event}: that is after --limit"))?;
            refuse(
                machine.is_some_and(|machine| machine >= self.machines()),
                &format!("--event {event}: there is no such machine"),
            )?;
            refuse(
                machine.is_some_and(|machine| gone.contains(&machine)),
                &format!("--event {event}: it is gone by then"),
            )?;
            if let Trouble::Kill { host } | Trouble::Leave { host } = event.trouble {
                gone.insert(host);
            }
        }
        refuse(self.origin_gone && gone.contains(&0), "--event: the origin is gone already (--origin-gone)")?;
        let known = self.trace_node.iter().all(|machine| *machine < self.machines());
        refuse(!known, "--trace-node: there is no such machine")
    }

    /// The number of all machines of the run.
    pub fn machines(&self) -> usize {
        let joins = |event: &Event| if let Trouble::Join { count } = event.trouble { count } else { 0 };
        self.event.iter().map(joins).fold(self.room.nodes.saturating_add(1), usize::saturating_add)
    }
}
