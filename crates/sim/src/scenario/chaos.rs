//! Chaos: a small field, its machines' tasks, and all its faults, drawn from one seed.

use crate::dice::Dice;
use crate::faults::{Fault, Habits, Planned};
use crate::field::Followers;
use crate::malicious::{Attack, Plan};
use crate::network::{Cards, Discipline, Links};
use crate::original::Original;
use crate::reader::Order;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::Config;
use vfield_weather::each::Machines;
use vfield_weather::{self as weather, Link, Rate};

/// Which malicious members a field has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Malicious {
    /// As many as the seed draws, mostly none or one, with attacks that it draws.
    #[default]
    Drawn,
    /// No machine is malicious.
    None,
    /// At least one, and all with this attack.
    Only(Attack),
}

impl FromStr for Malicious {
    type Err = String;

    /// `drawn`, `none`, or the name of an attack.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "drawn" => Ok(Self::Drawn),
            "none" => Ok(Self::None),
            name => Attack::from_str(name, false).map(Self::Only),
        }
    }
}

impl Malicious {
    /// The option that asks for it, with a space before it; nothing if it is the default.
    pub fn option(self) -> String {
        let name = match self {
            Self::Drawn => return String::new(),
            Self::None => "none".to_owned(),
            Self::Only(attack) => attack.name(),
        };
        format!(" --attack {name}")
    }

    /// All that can be asked for, by name.
    pub fn names() -> Vec<String> {
        let attacks = Attack::all().iter().map(|attack| attack.name());
        ["drawn", "none"].into_iter().map(str::to_owned).chain(attacks).collect()
    }
}

/// The plan of a trial.
#[derive(Debug, Clone)]
pub struct Chaos {
    /// The seed of all randomness.
    pub seed: u64,
    /// Which malicious members were asked for.
    pub malicious: Malicious,
    /// The image that all read.
    pub image: Original,
    /// Its next version, if there is one.
    pub next: Option<Original>,
    /// How the machines follow a tag, if there is one.
    pub followers: Option<Followers>,
    /// When each place besides the origin's is switched on.
    pub starts: Vec<Duration>,
    /// Stores and reads of the machines.
    pub habits: Habits,
    /// Groups that each read takes of the first chunk of a block; `None` for whole blocks.
    pub groups: Option<u16>,
    /// The properties of the network.
    pub links: Links,
    /// The cores' settings.
    pub config: Config,
    /// The faults by time.
    pub faults: Vec<Planned>,
    /// When all faults are mended, as far as possible.
    pub heals_at: Duration,
}

/// The drawn plan in words.
#[derive(Debug, Clone, Serialize)]
pub struct Drawn {
    /// The seed of all randomness.
    pub seed: u64,
    /// The field in words.
    pub field: String,
    /// Each fault in words.
    pub faults: Vec<String>,
}

/// Chunks in a window, as in the product.
const WINDOW_CHUNKS: u64 = 128;
/// A cache keeps at least twice what a reader waits for at once: eight blocks of eight chunks.
const CACHE_CHUNKS: u64 = 128;
/// Faults begin within this many milliseconds.
const FAULTS_FOR: u64 = 8_000;

impl Chaos {
    /// The chaos of a seed. Its malicious members and its unequal links come from streams of their
    /// own: without them the rest is the same.
    pub fn drawn_from(seed: u64, malicious: Malicious) -> Self {
        let mut chaos = Self::honest(seed);
        chaos.malicious = malicious;
        let mut dice = Dice::new(seed ^ 0xBAD_5EED);
        turns(&mut dice, chaos.starts.len(), malicious, &mut chaos.faults);
        chaos.next = update(&mut Dice::new(seed ^ 0x0E_2510), &chaos.image, chaos.starts.len(), &mut chaos.faults);
        tags(&mut Dice::new(seed ^ 0x7A6_0058), &mut chaos);
        chaos.faults.sort_by_key(|planned| planned.at);
        chaos.groups = short_reads(&mut Dice::new(seed ^ 0x0051_1CE5));
        chaos.links.cards =
            Dice::new(seed ^ 0x00CA_2D5E).one_of(&[Cards::Silent, Cards::True, Cards::Same, Cards::Mixed]);
        chaos.links.remembered =
            Dice::new(seed ^ 0x0004_E4E4).one_of(&[Cards::Silent, Cards::True, Cards::Same, Cards::Mixed]);
        chaos.links.limited = Dice::new(seed ^ 0x0011_417E).one_of(&[false, true]);
        chaos.links.own = unequal(&mut Dice::new(seed ^ 0x0DD_11E5), chaos.starts.len(), chaos.links.rate);
        chaos
    }

    /// True if it has malicious members.
    pub fn has_malice(&self) -> bool {
        self.faults.iter().any(|planned| matches!(planned.fault, Fault::Turn(..)))
    }

    fn honest(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0xC4A0_5000);
        let nodes = if dice.percent(70) { dice.among(2..12) } else { dice.among(12..41) } as usize;
        let image = image(&mut dice);
        let chunks = image.chunks();
        let shape = dice.among(0..4);
        let share = |dice: &mut Dice| match shape {
            0 => 100,
            1 => dice.among(0..30),
            _ => dice.among(0..101),
        };
        let stores = (0..=nodes).map(|_| chunks * share(&mut dice) / 100).collect();
        let together = dice.percent(50);
        let within = if together { 50 } else { 3000 };
        let starts = (0..nodes).map(|_| Duration::from_millis(dice.among(0..within))).collect();
        let order = order(&mut dice, &image);
        let depth = dice.one_of(&[1, 1, 2, 8]);
        let links = links(&mut dice);
        let chunk_bytes = image.geometry.chunk_bytes();
        let config = Config {
            window_bytes: dice.one_of(&[1 << 20, 2 << 20, 8 << 20]).max(WINDOW_CHUNKS * chunk_bytes),
            transient_bytes: dice.one_of(&[256 << 10, 1 << 20, 24 << 20]).max(CACHE_CHUNKS * chunk_bytes),
            read_ahead_bytes: dice.one_of(&[0, 128 << 10, 512 << 10]),
            join_boost: dice.among(0..10) as u8,
            ..Config::default()
        };
        let mut faults = Vec::new();
        for _ in 0..dice.among(0..7) {
            incident(&mut dice, nodes, links.zone_size, &mut faults);
        }
        faults.sort_by_key(|planned| planned.at);
        let habits = Habits { stores, order, depth };
        let last = faults.last().map_or(Duration::ZERO, |planned| planned.at);
        let heals_at = last.max(Duration::from_millis(FAULTS_FOR)) + Duration::from_millis(500);
        let (malicious, groups, next, followers) = (Malicious::None, None, None, None);
        Self { seed, malicious, image, next, followers, starts, habits, groups, links, config, faults, heals_at }
    }

    /// The plan in words.
    pub fn in_words(&self) -> Drawn {
        let Self { links, config, .. } = self;
        let field = format!(
            "{} nodes in zones of {}, {} chunks of {}, stores {:?}, {} bytes/s, own links {:?} of cards {:?}, remembered {:?}{}, uplinks {}, {:?} + {:?}, {:?}, window {}, transient {}, \
             read-ahead {}, boost {}, \
             {} reads of {:?} at a time, groups of each {:?}, starts {:?}{}",
            self.starts.len(),
            links.zone_size,
            self.image.chunks(),
            self.image.geometry.chunk_bytes(),
            &self.habits.stores[1..],
            links.rate,
            links.own.to_string(),
            links.cards,
            links.remembered,
            if links.limited { ", known bounds" } else { "" },
            links.zone_rate,
            links.delay,
            links.jitter,
            links.discipline,
            config.window_bytes,
            config.transient_bytes,
            config.read_ahead_bytes,
            config.join_boost,
            self.habits.order.kind(),
            self.habits.depth,
            self.groups,
            self.starts,
            self.followers.as_ref().map_or_else(String::new, |_| format!(", a tag, grace {:?}", config.rubbish_grace)),
        );
        Drawn { seed: self.seed, field, faults: self.faults.iter().map(ToString::to_string).collect() }
    }
}

/// Adds the malicious members: mostly none or one, at most a third of all machines. Some turn at
/// the start, some later. They go on to the end, or their processes die before the faults are
/// mended.
fn turns(dice: &mut Dice, nodes: usize, malicious: Malicious, faults: &mut Vec<Planned>) {
    let most = ((nodes + 1) / 3).max(1) as u64;
    let count = match dice.among(0..100) {
        0..60 => 0,
        60..85 => 1,
        _ => dice.among(1..most + 1),
    };
    let count = match malicious {
        Malicious::None => 0,
        Malicious::Drawn => count,
        Malicious::Only(_) => count.max(1),
    };
    let mut places: Vec<usize> = (1..=nodes).collect();
    dice.shuffle(&mut places);
    for place in places.into_iter().take(count as usize) {
        let attack = dice.one_of(Attack::all());
        let plan = Plan::drawn(if let Malicious::Only(attack) = malicious { attack } else { attack }, dice);
        let at = if dice.percent(50) { 0 } else { dice.among(0..FAULTS_FOR) };
        let until = dice.among(at..FAULTS_FOR + 1);
        let mut add = |ms: u64, fault| faults.push(Planned { at: Duration::from_millis(ms), fault });
        add(at, Fault::Turn(place, plan));
        if dice.percent(25) {
            add(until, Fault::PowerLoss(place));
        }
    }
}

/// The next version of the image, in a quarter of all seeds. Most machines take part in it sooner
/// or later.
fn update(dice: &mut Dice, image: &Original, nodes: usize, faults: &mut Vec<Planned>) -> Option<Original> {
    if !dice.percent(25) {
        return None;
    }
    let percent = dice.one_of(&[0, 2, 14, 14, 50, 100]);
    let next = image.next(2, image.data().filter(|_| dice.percent(percent)).collect::<Vec<_>>());
    let published = dice.among(0..FAULTS_FOR / 2);
    let mut add = |ms: u64, place| faults.push(Planned { at: Duration::from_millis(ms), fault: Fault::Update(place) });
    add(published, 0);
    for place in (1..=nodes).filter(|_| dice.percent(80)).collect::<Vec<_>>() {
        add(dice.among(published..FAULTS_FOR), place);
    }
    Some(next)
}

/// A tag that moves from version to version and back, in most seeds with two versions.
fn tags(dice: &mut Dice, chaos: &mut Chaos) {
    let is_published = |planned: &&Planned| planned.fault == Fault::Update(0);
    let Some(published) = chaos.faults.iter().find(is_published).map(|planned| planned.at) else { return };
    if !dice.percent(80) {
        return;
    }
    let places = chaos.starts.len() as u64 + 1;
    let mut moves: Vec<u64> = (0..dice.among(1..6)).map(|_| dice.among(0..FAULTS_FOR)).collect();
    moves.sort_unstable();
    for (serial, ms) in (1..).zip(moves) {
        let (at, place) = (Duration::from_millis(ms), dice.among(0..places) as usize);
        // Nobody can have a version before it is published.
        let image = if at > published { dice.among(0..2) as usize } else { 0 };
        let keep = dice.one_of(&[1, 1, 2]);
        chaos.faults.push(Planned { at, fault: Fault::Tag(place, serial, image, keep) });
    }
    if dice.percent(60) {
        // Machines depend on each other then.
        let at = Duration::from_millis(dice.among(0..FAULTS_FOR)).max(published);
        chaos.faults.push(Planned { at, fault: Fault::Leave(0) });
    }
    chaos.config.rubbish_grace = Duration::from_millis(dice.one_of(&[0, 500, 2_000, 8_000, 15_000]));
    let wishes = (1..places as u32).filter(|_| dice.percent(25)).collect();
    let Habits { stores, order, depth } = chaos.habits.clone();
    chaos.followers = Some(Followers { wishes, stores, order, depth });
}

fn image(dice: &mut Dice) -> Original {
    let size = ChunkSize::new(dice.one_of(&[16 << 10, 16 << 10, 64 << 10])).expect("a size");
    let chunks = if dice.percent(80) { dice.among(8..300) } else { dice.among(300..1200) };
    if dice.percent(75) {
        return Original::of(1, chunks, size, std::slice::from_ref(&(0..chunks)));
    }
    // With holes, sometimes larger than what one page tells of.
    let (start, end) = (dice.among(0..chunks), dice.among(0..chunks + 1));
    Original::of(1, chunks, size, std::slice::from_ref(&(start.min(end)..start.max(end).max(start + 1))))
}

fn order(dice: &mut Dice, image: &Original) -> Order {
    let (chunks, step) = (image.geometry.data_chunks(), dice.one_of(&[1, 4, 8]));
    if dice.percent(60) {
        Order::Along { chunks: 0..chunks, step }
    } else {
        Order::Random { dice: Dice::new(dice.roll()), chunks, step, left: dice.among(1..chunks + 1).min(200) }
    }
}

fn links(dice: &mut Dice) -> Links {
    let delay = Duration::from_micros(dice.one_of(&[20, 100, 500, 3000]));
    Links {
        rate: dice.one_of(&[2_500_000, 12_500_000, 125_000_000, 1_250_000_000]),
        delay,
        jitter: delay * dice.among(0..3) as u32 / 2,
        discipline: dice.one_of(&[Discipline::Fair, Discipline::Fifo]),
        zone_size: dice.one_of(&[0, 0, 4, 8]),
        zone_rate: dice.one_of(&[12_500_000, 1_250_000_000]),
        ..Links::default()
    }
}

/// How short reads are, in a third of all seeds.
fn short_reads(dice: &mut Dice) -> Option<u16> {
    dice.percent(33).then(|| dice.one_of(&[1, 1, 2, 4]))
}

/// The links of machines that are no equals, in a quarter of all seeds. Each machine has all, a
/// quarter or a tenth of `rate`, in bytes a second.
fn unequal(dice: &mut Dice, nodes: usize, rate: u64) -> weather::Links {
    if !dice.percent(25) {
        return weather::Links::default();
    }
    let link = |place| {
        let rate = Rate::of_bits(rate * 8 / dice.one_of(&[1, 4, 10]))?;
        Some((Machines::new(place, place, 1), Link::new(rate, rate, 1)?))
    };
    weather::Links::new((0..=nodes).filter_map(link)).expect("one for each place")
}

/// Adds a fault, and its repair, if that comes before the general one.
fn incident(dice: &mut Dice, nodes: usize, zone_size: usize, faults: &mut Vec<Planned>) {
    let places = nodes as u64 + 1;
    let at = dice.among(100..FAULTS_FOR);
    let until = dice.among(at..FAULTS_FOR + 1);
    let place = dice.among(1..places) as usize;
    let mut plan = |ms: u64, fault| faults.push(Planned { at: Duration::from_millis(ms), fault });
    match dice.among(0..22) {
        0 => {
            plan(at, Fault::Crash(place));
            plan(until, Fault::Start(place));
        }
        1 => {
            plan(at, Fault::PowerLoss(place));
            plan(until, Fault::Start(place));
        }
        2 => {
            plan(at, Fault::Pause(place));
            plan(until, Fault::Resume(place));
        }
        3 => plan(at, Fault::Leave(place)),
        4 => {
            // A partition: all are on one side or the other.
            let (one, other): (Vec<usize>, Vec<usize>) = (0..=nodes).partition(|_| dice.percent(50));
            plan(at, Fault::Cut(one.clone(), other.clone()));
            plan(at, Fault::Cut(other.clone(), one.clone()));
            plan(until, Fault::Mend(one.clone(), other.clone()));
            plan(until, Fault::Mend(other, one));
        }
        5 => {
            // In one direction only.
            let (one, other): (Vec<usize>, Vec<usize>) = (0..=nodes).partition(|_| dice.percent(30));
            plan(at, Fault::Cut(one.clone(), other.clone()));
            plan(until, Fault::Mend(one, other));
        }
        6 => {
            let rest: Vec<usize> = (0..=nodes).filter(|other| *other != place).collect();
            plan(at, Fault::Cut(vec![place], rest.clone()));
            plan(at, Fault::Cut(rest.clone(), vec![place]));
            plan(until, Fault::Mend(vec![place], rest.clone()));
            plan(until, Fault::Mend(rest, vec![place]));
        }
        7 => {
            plan(at, Fault::Stall(place));
            plan(until, Fault::Heal(place));
        }
        8 => {
            plan(at, Fault::Lie(place));
            plan(until, Fault::Heal(place));
        }
        9 => {
            // Now one end of it, now another.
            for _ in 0..dice.among(1..20) {
                let (a, b) = (dice.among(0..places) as usize, dice.among(0..places) as usize);
                let when = dice.among(at..until.max(at + 1));
                if a != b {
                    plan(when, Fault::Reset(a, b));
                }
            }
        }
        10 => {
            let factors = [dice.one_of(&[1, 10, 100]), dice.one_of(&[1, 10, 100])];
            plan(at, Fault::Slow(place, factors[0], factors[1]));
            plan(until, Fault::Slow(place, 1, 1));
        }
        11 => plan(at, Fault::Jump(place, Duration::from_millis(dice.one_of(&[400, 5_000, 3_600_000])))),
        12 => {
            // The origin goes, often before the stores have everything.
            let gone = [Fault::Crash(0), Fault::PowerLoss(0), Fault::Leave(0)];
            plan(at, gone[dice.among(0..3) as usize].clone());
            if dice.percent(50) {
                plan(until, Fault::Start(0));
            }
        }
        13 => plan(at, Fault::Join(dice.among(1..10) as usize, dice.among(0..101))),
        14 => {
            // A third of all at once, with or without a goodbye.
            let kind = dice.among(0..3);
            for place in (1..=nodes).filter(|_| dice.percent(33)) {
                plan(at, [Fault::Crash(place), Fault::PowerLoss(place), Fault::Leave(place)][kind as usize].clone());
            }
        }
        15 => {
            // A flapping node.
            let period = dice.among(50..1500);
            for round in 0..dice.among(2..8) {
                plan(at + round * 2 * period, Fault::Crash(place));
                plan(at + (round * 2 + 1) * period, Fault::Start(place));
            }
        }
        16 => {
            plan(at, Fault::Suspend(place));
            plan(until, Fault::Resume(place));
        }
        17 => {
            // A zone loses its power, and has it again; datagrams are lost meanwhile.
            let zone = nearby(place, zone_size, nodes);
            for &place in &zone {
                plan(at, Fault::PowerLoss(place));
                plan(until, Fault::Start(place));
            }
            plan(at, Fault::Loss(dice.among(0..20)));
            plan(until, Fault::Loss(0));
        }
        18 => {
            plan(at, Fault::Boast(place));
            plan(until, Fault::Heal(place));
        }
        19 => {
            // Ports are isolated: only one machine has a way to all, mostly the origin.
            let all = if dice.percent(80) { 0 } else { place };
            for one in (0..=nodes).filter(|one| *one != all) {
                let others: Vec<usize> = (0..=nodes).filter(|other| ![one, all].contains(other)).collect();
                plan(at, Fault::Cut(vec![one], others.clone()));
                plan(until, Fault::Mend(vec![one], others));
            }
        }
        20 => {
            for place in (0..=nodes).filter(|_| dice.percent(50)) {
                plan(at, Fault::Firewall(place));
                plan(until, Fault::Open(place));
            }
        }
        _ => {
            // A zone's uplink is cut, and mended.
            let zone = nearby(place, zone_size, nodes);
            let rest: Vec<usize> = (0..=nodes).filter(|other| !zone.contains(other)).collect();
            plan(at, Fault::Cut(zone.clone(), rest.clone()));
            plan(at, Fault::Cut(rest.clone(), zone.clone()));
            plan(until, Fault::Mend(zone.clone(), rest.clone()));
            plan(until, Fault::Mend(rest, zone));
        }
    }
}

/// Machines in a rack, in a field without zones: they fail together.
const RACK: usize = 4;

/// The places of a place's zone, the origin's among them if that is in it.
fn nearby(place: usize, zone_size: usize, nodes: usize) -> Vec<usize> {
    let size = if zone_size == 0 { RACK } else { zone_size };
    let first = place / size * size;
    (first..(first + size).min(nodes + 1)).collect()
}
