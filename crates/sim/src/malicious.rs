//! Malicious members: machines with a key of their own that attack the field.
//!
//! Such a machine runs an honest core and greets like any member. From some time on it also sends
//! crafted frames and datagrams, and answers requests in its own way. Each [`Attack`] is a row of
//! the table in docs/explanation/security-model.md, or one of a few more.
//!
//! This module makes the messages, and signs with [`own::Own`] only. [`crate::field`] carries it
//! out, and [`crate::checks`] looks at the honest machines.

mod crowding;
pub mod own;
mod serving;
mod speaking;

use crate::dice::Dice;
use crate::original::Original;
use clap::ValueEnum;
use own::Own;
use serde::{Deserialize, Serialize};
pub use serving::{Answer, Served};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::membership::message::{Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member};
use vfield_core::record::Record;
use vfield_core::snapshot::Snapshot;
use vfield_core::time::Time;

/// What a malicious member does. The number of a row is that of the attack in
/// docs/explanation/security-model.md. Rows 12 to 15 and 17 are attacks on one machine, its clients
/// or its boot, which the simulator does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Row 1: gives another image the name of the field's, and the field's another name.
    Names,
    /// Row 2: wrong headers and second images, in its own name and in others'.
    Headers,
    /// Row 3: greets as another member, which it cannot prove.
    Poses,
    /// Row 4: other keys of its own are at the addresses of others, with high generations.
    Contests,
    /// Row 5: others live at its address, in a later life.
    Moves,
    /// Row 6: records of others with high versions, and invented progress.
    Versions,
    /// Row 7: datagrams in the name of others, with later lives. The simulator seals nothing, so
    /// used-up numbers of seals are tested in the crate for them.
    Voices,
    /// Row 8: claims to hold all, or to be an origin, and delivers little or nothing.
    Boasts,
    /// Row 9: names hundreds of gateways.
    Gateways,
    /// Row 10: invents hundreds of members.
    Ghosts,
    /// Row 11: invents forty members with low ids, which claim to hold all.
    LowGhosts,
    /// Row 16: pings, relays and introductions for foreign addresses.
    Strangers,
    /// Row 18: long frames, as fast as a part of its link lets it. The simulator's shells have no
    /// places for long frames that could run out.
    LongFrames,
    /// Frames and datagrams of random or cut bytes.
    Garbage,
    /// Sends wrong chunks.
    Lies,
    /// Answers pings, and no request; some of it gives signs of life.
    Silence,
    /// Calls others suspect, dead or gone.
    Rumours,
    /// Repeats old statements and records of others.
    Replays,
}

impl Attack {
    /// All of them, in the order of the table.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Its name, as `--attack` takes it.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// True if a member with this attack makes false claims about its store, or another's. Until
    /// holders are verified, others count such a store.
    pub const fn claims(self) -> bool {
        matches!(self, Self::Boasts | Self::LowGhosts | Self::Lies | Self::Silence | Self::Versions)
    }

    /// True if it uses what others said.
    pub const fn listens(self) -> bool {
        matches!(self, Self::Versions | Self::Voices | Self::Rumours | Self::Replays)
    }

    /// True if others do not hear what its store holds.
    pub const fn hides(self) -> bool {
        matches!(self, Self::Names | Self::Headers)
    }
}

/// The drawn plan of a malicious member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The way in which it attacks.
    pub attack: Attack,
    /// The time between two strokes.
    pub every: Duration,
    /// The seed of its own draws.
    pub seed: u64,
}

impl Plan {
    /// A plan of this attack, drawn.
    pub fn drawn(attack: Attack, dice: &mut Dice) -> Self {
        Self { attack, every: Duration::from_millis(dice.one_of(&[50, 200, 200, 1000])), seed: dice.roll() }
    }
}

/// What a malicious member sees when it strikes.
#[derive(Debug)]
pub struct Sight<'a> {
    /// The simulated time of the stroke.
    pub now: Time,
    /// Its statement about itself.
    pub myself: Member,
    /// The honest machines that run: number and present identity.
    pub others: Vec<(usize, Identity)>,
    /// What it knows: statements of others and their records, as they signed them.
    pub heard: Snapshot,
    /// The field's image.
    pub image: &'a Original,
}

/// A message that a malicious member sends.
#[derive(Debug)]
pub enum Deed {
    /// A datagram to an address; its source may be forged.
    Datagram {
        /// The source that the receiver sees.
        source: SocketAddr,
        /// The address that it goes to.
        to: SocketAddr,
        /// The whole datagram, parsable or not.
        bytes: Vec<u8>,
    },
    /// A snapshot on a connection that it opens, in a frame of any bytes.
    Frame {
        /// The machine that gets it.
        to: usize,
        /// The frame with its header.
        bytes: Vec<u8>,
    },
    /// A connection on which it greets as another member.
    Pose {
        /// The machine that is dialled.
        to: usize,
        /// The machine that it greets as.
        victim: usize,
        /// The way in which it forges the proof.
        way: u64,
    },
}

impl Deed {
    /// Bytes on its link, about.
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Datagram { bytes, .. } | Self::Frame { bytes, .. } => bytes.len() as u64,
            // Two greetings and two proofs.
            Self::Pose { .. } => 1024,
        }
    }
}

/// The state of a malicious member.
#[derive(Debug)]
pub struct Malice {
    /// The plan that was drawn for it.
    pub plan: Plan,
    /// Its key, and keys that it made up.
    pub own: Own,
    dice: Dice,
    /// Old statements and records of others that it repeats.
    old: Vec<Item>,
    serving: serving::Serving,
}

/// Old items that a member keeps to repeat.
const OLD_MAX: usize = 64;
/// Members or records in a crafted snapshot at most, but for invented ones.
const TARGETS: u64 = 4;

impl Malice {
    /// The malice of the machine with this identity.
    pub fn new(plan: Plan, me: &Identity) -> Self {
        let mut dice = Dice::new(plan.seed);
        let serving = serving::Serving::drawn(plan.attack, &mut dice);
        Self { own: Own::of(me), dice, old: Vec::new(), serving, plan }
    }

    /// The messages of one stroke.
    pub fn strike(&mut self, sight: &Sight<'_>) -> Vec<Deed> {
        let mut deeds = Vec::new();
        if sight.others.is_empty() {
            return deeds;
        }
        match self.plan.attack {
            Attack::Names => self.misname(sight, &mut deeds),
            Attack::Headers => self.mishead(sight, &mut deeds),
            Attack::Poses => self.pose(sight, &mut deeds),
            Attack::Contests => self.contest(sight, &mut deeds),
            Attack::Moves => self.relocate(sight, &mut deeds),
            Attack::Versions => self.outnumber(sight, &mut deeds),
            Attack::Voices => self.impersonate(sight, &mut deeds),
            Attack::Rumours => self.spread_rumours(sight, &mut deeds),
            Attack::Replays => self.repeat(sight, &mut deeds),
            Attack::Boasts => self.boast(sight, &mut deeds),
            Attack::Gateways => self.name_gateways(sight, &mut deeds),
            Attack::Ghosts => self.invent_members(sight, &mut deeds),
            Attack::LowGhosts => self.invent_holders(sight, &mut deeds),
            Attack::Strangers => self.send_elsewhere(sight, &mut deeds),
            Attack::LongFrames => self.write_at_length(sight, &mut deeds),
            Attack::Garbage => self.babble(sight, &mut deeds),
            // These only answer.
            Attack::Lies | Attack::Silence => {}
        }
        deeds
    }

    /// Some of the others: one, a few or all.
    fn targets(&mut self, sight: &Sight<'_>) -> Vec<(usize, Identity)> {
        let mut targets = sight.others.clone();
        self.dice.shuffle(&mut targets);
        let most = [1, TARGETS as usize, targets.len()][self.dice.among(0..3) as usize];
        targets.truncate(most);
        targets
    }

    /// One of the others.
    fn victim(&mut self, sight: &Sight<'_>) -> (usize, Identity) {
        sight.others[self.dice.among(0..sight.others.len() as u64) as usize]
    }

    /// The statement of another member about itself that it has heard, if it has.
    fn statement(sight: &Sight<'_>, of: NodeId) -> Option<Member> {
        let heard = sight.heard.members.iter().chain(&sight.heard.gateways);
        heard.copied().find(|member| member.identity.node == of)
    }

    /// Tells each target these items: by datagrams, by a frame, or both.
    fn tell(&mut self, sight: &Sight<'_>, targets: &[(usize, Identity)], items: &[Item], deeds: &mut Vec<Deed>) {
        let how = self.dice.among(0..3);
        let level = if self.dice.percent(80) { Level::Zone } else { Level::Backbone };
        for &(to, identity) in targets {
            if how != 1 {
                let head = Self::head(sight, level, identity.node, Purpose::News);
                deeds.extend(datagrams(&head, items).map(|bytes| Deed::Datagram {
                    source: sight.myself.identity.addr,
                    to: identity.addr,
                    bytes,
                }));
            }
            if how != 0 {
                deeds.push(Deed::Frame { to, bytes: frame(Self::snapshot(sight, level, items)) });
            }
        }
    }

    fn head(sight: &Sight<'_>, level: Level, to: NodeId, purpose: Purpose) -> Head {
        let Member { identity, .. } = sight.myself;
        Head { level, from: identity.node, life: sight.myself.life(), to, purpose }
    }

    /// A snapshot of a member that says these items besides the truth about itself.
    fn snapshot(sight: &Sight<'_>, level: Level, items: &[Item]) -> Snapshot {
        let mut members = vec![sight.myself];
        let mut records: Vec<Record> = Vec::new();
        for item in items {
            match item {
                Item::Member(member) => members.push(*member),
                Item::Record(record) => records.push(record.clone()),
                // Snapshots carry no tags, and whole records only.
                Item::Tag(_) | Item::KnownTags { .. } | Item::Progress(_) => {}
            }
        }
        match level {
            Level::Zone => Snapshot { members, records, ..Snapshot::default() },
            Level::Backbone => {
                let gateways = members;
                Snapshot {
                    members: vec![sight.myself],
                    gateways,
                    outside: records,
                    backbone: true,
                    ..Snapshot::default()
                }
            }
        }
    }
}

/// Datagrams with all these items, as many as they need.
fn datagrams<'a>(head: &'a Head, items: &'a [Item]) -> impl Iterator<Item = Vec<u8>> + 'a {
    let mut rest = items;
    std::iter::from_fn(move || {
        let mut draft = Draft::new(head);
        let fitted = rest.iter().take_while(|item| draft.add(item)).count();
        rest = &rest[fitted..];
        (fitted > 0).then(|| draft.finish())
    })
}

/// The frame that asks for a snapshot and brings one.
fn frame(snapshot: Snapshot) -> Vec<u8> {
    vfield_core::wire::snapshot_frame(vfield_core::wire::Kind::Sync, 0, snapshot)
}
