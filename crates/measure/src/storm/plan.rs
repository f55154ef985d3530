//! What a storm is made of: said before it starts, and recorded beside its result.

use super::weather::{Busy, Each, Event, Links, Rate, Rates, Thinks, Trouble, each::Trait};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use vfield_lab::Link;

/// Bytes of payload for each byte that a link's shaper counts: 1448 of the 1514 of a full packet
/// (IPv4, timestamps, Ethernet). No system gets beyond it.
pub const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;
/// Bytes that a reader of a whole image asks for at a time.
pub const STORM_BLOCK_BYTES: u32 = 256 << 10;
/// Requests that a reader of a whole image keeps in flight.
pub const STORM_DEPTH: usize = 8;

/// Length of the pieces of a sparse image.
pub const PIECE_BYTES: u64 = 1 << 20;

/// What the readers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// All begin at once and read everything in order.
    Storm,
    /// As a storm, but one more begins each [`Plan::gap_s`].
    Stagger,
    /// All begin at once and read blocks at random places.
    Random,
}

/// Who delivers the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// An origin, and a node on each reader's host.
    Vfield,
    /// One server for all.
    Nbdkit,
    /// Each host passes on what it gets to the next one.
    Chain,
}

/// A storm, with everything that its result depends on but the machine and the programs.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// What the readers do.
    pub mode: Mode,
    /// Who delivers the bytes.
    pub system: System,
    /// Hosts that read, besides the origin's and those that [`Trouble::Join`] adds.
    pub readers: usize,
    /// Rate of each host's link, each way on its own, in Mbit/s, unless [`Plan::links`] says
    /// otherwise.
    pub mbit: u64,
    /// The links of unequal hosts.
    #[serde(serialize_with = "as_typed")]
    pub links: Links,
    /// The seed of links that are drawn: the simulator's, for the same ones.
    pub seed: u64,
    /// True if operators bound what hosts send at what their way out carries.
    pub limited: bool,
    /// Hosts whose nodes have a part of a processor.
    #[serde(serialize_with = "as_typed")]
    pub busy: Busy,
    /// Readers that work on what they have read.
    #[serde(serialize_with = "as_typed")]
    pub think: Thinks,
    /// Length of the image.
    pub size_bytes: u64,
    /// The file whose bytes it has; random ones without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<PathBuf>,
    /// What each node holds, in the program's own words: `6%`, `64M`, `all`, `0`.
    pub store: String,
    /// Nodes have joined and filled their stores before the start.
    pub warm: bool,
    /// The origin has left before the start; only with [`Plan::warm`].
    pub origin_gone: bool,
    /// How eagerly stores fill: `0` to `9`, or `random`.
    pub boost: String,
    /// The first so many readers' nodes are reached only through a program that stands before them.
    pub fronted: usize,
    /// More words for the command line of each reader's node.
    pub node_words: Vec<String>,
    /// More words for the command line of the origin.
    pub origin_words: Vec<String>,
    /// The origin reads the image from a server of buckets on its host.
    pub bucket: bool,
    /// Random reads: bytes of each.
    pub block_bytes: u32,
    /// Random reads: how many each host makes.
    pub count: usize,
    /// Random reads: how many of a host are in flight.
    pub depth: usize,
    /// Random reads, but one block after the other.
    pub in_order: bool,
    /// Random reads: the image has a MiB of bytes in as many, and holes between them, which are not
    /// read.
    pub sparse: u64,
    /// Staggered starts: seconds between two.
    pub gap_s: f64,
    /// The faults and their times.
    #[serde(serialize_with = "as_text")]
    pub events: Vec<Event>,
    /// Entries that the machine's table of neighbours is to hold during the storm, if it holds
    /// fewer.
    pub arp_table: Option<u64>,
    /// Seconds after which a storm is cut off: once before the start, once after it.
    pub limit_s: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            mode: Mode::Storm,
            system: System::Vfield,
            readers: 4,
            mbit: 100,
            links: Links::default(),
            seed: 1,
            limited: false,
            busy: Busy::default(),
            think: Thinks::default(),
            size_bytes: 64 << 20,
            content: None,
            store: "100%".to_owned(),
            warm: false,
            origin_gone: false,
            boost: "9".to_owned(),
            fronted: 0,
            node_words: Vec::new(),
            origin_words: Vec::new(),
            bucket: false,
            block_bytes: 64 << 10,
            count: 500,
            depth: 8,
            in_order: false,
            sparse: 1,
            gap_s: 1.0,
            events: Vec::new(),
            arp_table: None,
            limit_s: 180.0,
        }
    }
}

fn as_text<S: serde::Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(events.iter().map(ToString::to_string))
}

fn as_typed<T: Trait, S: serde::Serializer>(list: &Each<T>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(list)
}

impl Plan {
    /// Why this cannot be run, if it cannot.
    ///
    /// # Errors
    /// In words for the one who typed it.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |yes: bool, why: &str| if yes { Err(why.to_owned()) } else { Ok(()) };
        refuse(self.readers == 0, "a storm has at least one reader")?;
        refuse(self.mbit == 0, "a link has a rate of at least 1 Mbit/s")?;
        refuse(self.mbit > Rate::MAX_BITS / 1_000_000, "a link has a rate of at most 1 Tbit/s")?;
        let hosts = self.hosts_max().saturating_add(1);
        self.links.check(hosts).map_err(|why| format!("links {why}"))?;
        self.busy.check(hosts).map_err(|why| format!("busy {why}"))?;
        self.think.check(hosts).map_err(|why| format!("think {why}"))?;
        refuse(!self.busy.is_empty() && self.system != System::Vfield, "only nodes of vfield are made busy")?;
        refuse(self.bucket && self.system != System::Vfield, "only vfield reads the image from a bucket")?;
        refuse(!self.think.is_empty() && self.system == System::Chain, "a chain has no readers that think")?;
        refuse(self.size_bytes == 0, "an image has at least one byte")?;
        refuse(self.fronted > self.readers, "there are not so many readers to stand before")?;
        refuse(self.origin_gone && !self.warm, "the origin can be gone only if the nodes were warmed before")?;
        refuse(!self.gap_s.is_finite() || self.gap_s < 0.0, "the gap is a number of seconds")?;
        refuse(!(self.limit_s.is_finite() && self.limit_s > 0.0), "the limit is a number of seconds")?;
        if self.mode == Mode::Random {
            refuse(self.system == System::Chain, "a chain cannot read at random places")?;
            let fits = self.block_bytes > 0 && u64::from(self.block_bytes) <= self.size_bytes;
            refuse(!fits || self.depth == 0, "random reads have a block within the image, and a depth")?;
            let in_pieces = PIECE_BYTES.is_multiple_of(u64::from(self.block_bytes));
            refuse(self.sparse == 0, "a sparse image has a piece in at least one")?;
            refuse(self.sparse > 1 && !in_pieces, "blocks of a sparse image are a part of a MiB")?;
        } else {
            refuse(self.sparse != 1 || self.in_order, "only random reads are of sparse images, or in order")?;
        }
        refuse(self.sparse != 1 && self.content.is_some(), "a sparse image has random bytes")?;
        for event in &self.events {
            let host = event.trouble.host().unwrap_or_default();
            refuse(host > self.hosts_max(), &format!("event {event}: there is no such host"))?;
            let grows = matches!(event.trouble, Trouble::Join { .. });
            refuse(grows && self.system == System::Chain, "a chain cannot grow")?;
        }
        Ok(())
    }

    /// Readers that join later, by events.
    pub fn joiners(&self) -> usize {
        let joins = |event: &Event| match event.trouble {
            Trouble::Join { count } => count,
            _ => 0,
        };
        self.events.iter().map(joins).sum()
    }

    /// The last reader's number; the origin is host 0.
    pub fn hosts_max(&self) -> usize {
        self.readers + self.joiners()
    }

    /// When a reader starts, in seconds after the start of the storm.
    pub fn start_s(&self, host: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are at most some hundred hosts")]
        let gaps = host.saturating_sub(1) as f64;
        if self.mode == Mode::Stagger { gaps * self.gap_s } else { 0.0 }
    }

    /// Payload bytes per second that could come over the link of a host without one of its own, if
    /// headers took nothing.
    #[expect(clippy::cast_precision_loss, reason = "rates of links are small numbers")]
    pub fn link_bytes_per_s(&self) -> f64 {
        self.links.usual().map_or(self.mbit as f64 * 125_000.0, |link| link.nominal().down.bytes() as f64)
    }

    /// The rates of a host's link.
    pub fn rates(&self, host: usize) -> Rates {
        let usual = Rate::of_bits(self.mbit * 1_000_000).expect("checked");
        self.links.rates(host, usual, self.seed)
    }

    /// What an operator lets a host send, in bytes a second.
    pub fn sends_at_most(&self, host: usize) -> Option<u64> {
        let Rates { down, up } = self.rates(host);
        (self.limited && up < down).then(|| up.bytes())
    }

    /// The shaped link of a host.
    pub(super) fn link(&self, host: usize) -> Link {
        let Rates { down, up } = self.rates(host);
        Link::kbit(down.bits() / 1000, up.bits() / 1000)
    }

    /// Bound of what happens before the start, and of the storm itself.
    pub fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.limit_s)
    }
}

/// `warm 6 %`, `cold`: how a storm of vfield begins.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Storm => "storm",
            Mode::Stagger => "stagger",
            Mode::Random => "random",
        };
        let start = match (self.system, self.warm, self.origin_gone) {
            (System::Nbdkit, ..) => "nbdkit".to_owned(),
            (System::Chain, ..) => "chain".to_owned(),
            (System::Vfield, false, _) if self.bucket => format!("vfield cold {}, bucket", self.store),
            (System::Vfield, false, _) => format!("vfield cold {}", self.store),
            (System::Vfield, true, false) => format!("vfield warm {}", self.store),
            (System::Vfield, true, true) => format!("vfield warm {}, origin gone", self.store),
        };
        #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
        let size = self.size_bytes as f64 / 1e6;
        let link = if self.links.is_empty() { self.mbit.to_string() } else { format!("{} ", self.links) };
        write!(f, "{mode:<8}{start:<32}N={:<4}B={link:<5}S={size:<7.1}", self.readers)
    }
}

/// A number of bytes as one types it: `64K`, `128M`, `2G`, in binary units.
///
/// # Errors
/// In words for the one who typed it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim_end_matches("iB").char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number = u64::from_str(digits).map_err(|_| format!("{text:?} is not a number of bytes such as 128M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too many bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(bytes("128M"), Ok(128 << 20));
        assert_eq!(bytes("64KiB"), Ok(64 << 10));
        assert_eq!(bytes("17"), Ok(17));
        assert!(bytes("M").is_err() && bytes("1T").is_err() && bytes("-1").is_err() && bytes("99999999999G").is_err());
    }

    #[test]
    fn plans_that_make_no_sense_are_refused() {
        let plan = |change: fn(&mut Plan)| {
            let mut plan = Plan::default();
            change(&mut plan);
            plan.check()
        };
        assert_eq!(plan(|_| ()), Ok(()));
        assert!(plan(|plan| plan.origin_gone = true).is_err());
        assert!(plan(|plan| plan.readers = 0).is_err());
        assert!(plan(|plan| plan.limit_s = f64::NAN).is_err());
        assert!(plan(|plan| plan.events = vec!["1s:kill:5".parse().unwrap()]).is_err());
        let later = |plan: &mut Plan| plan.events = vec!["1s:join:1".parse().unwrap(), "2s:kill:5".parse().unwrap()];
        assert_eq!(plan(later), Ok(()));
    }

    #[test]
    fn unequal_hosts_have_to_be_there_and_to_make_sense() {
        let plan = |change: fn(&mut Plan)| {
            let mut plan = Plan { readers: 5, ..Plan::default() };
            change(&mut plan);
            plan.check()
        };
        assert_eq!(plan(|plan| plan.links = "30M,3M@5".parse().unwrap()), Ok(()));
        let line = plan(|plan| plan.links = "30M,3M@6".parse().unwrap()).unwrap_err();
        assert!(line.contains("3M@6") && line.contains("the last one is 5"), "{line}");
        assert!(plan(|plan| plan.busy = "20@6".parse().unwrap()).is_err());
        assert!(plan(|plan| plan.think = "1s@6".parse().unwrap()).is_err());
        let nbdkit = |plan: &mut Plan| (plan.system, plan.busy) = (System::Nbdkit, "20@1".parse().unwrap());
        assert!(plan(nbdkit).is_err());
        assert!(plan(|plan| plan.mbit = 2_000_000).is_err());
    }

    #[test]
    fn a_host_has_its_own_link_both_ways() {
        let plan = Plan { links: "30M,3M/1500K@2".parse().unwrap(), ..Plan::default() };
        assert_eq!(plan.link(1), Link::mbit(30));
        assert_eq!(plan.link(2), Link::kbit(3000, 1500));
        assert_eq!(plan.link(2).slower(10), Link::kbit(300, 150));
        assert_eq!(plan.sends_at_most(2), None);
        let limited = Plan { limited: true, ..plan.clone() };
        assert_eq!([1, 2].map(|host| limited.sends_at_most(host)), [None, Some(187_500)]);
        assert_eq!(Plan::default().link(2), Link::mbit(100));
        assert!((plan.link_bytes_per_s() - 3_750_000.0).abs() < 1e-6);
        let json = serde_json::to_value(&plan).unwrap();
        assert_eq!((&json["links"], &json["busy"]), (&"30M,3M/1.5M@2".into(), &"".into()));
    }

    #[test]
    fn starts_are_staggered_from_the_first_reader_on() {
        let plan = Plan { mode: Mode::Stagger, gap_s: 2.0, ..Plan::default() };
        assert_eq!([1, 2, 4].map(|host| plan.start_s(host)), [0.0, 2.0, 6.0]);
    }
}
