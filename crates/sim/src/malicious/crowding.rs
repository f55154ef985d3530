//! Attacks by numbers: invented members and gateways, foreign addresses, long frames, noise.

use super::own::abroad;
use super::{Deed, Malice, Sight, frame};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::membership::message::{Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member};
use vfield_core::placement::Arc;
use vfield_core::record::Record;
use vfield_core::snapshot::{Known, Snapshot};

/// Members that a flood invents, each time the same ones.
const FLOODS: [u64; 5] = [10, 40, 100, 100, 400];
/// More than one frame may bring. Each costs the simulator as much as a thousand other messages, so
/// this is rare.
const GREAT_FLOOD: u64 = 5000;
/// How often a flood is a great one, in percent.
const GREAT_PERCENT: u64 = 2;
/// Ghosts ahead of all others: row 11 of the table has forty.
const LOW: u64 = 40;
/// Digests of a long frame, of up to 15 bytes each. The greatest number fills a mebibyte.
const LENGTHS: [u64; 3] = [2_200, 20_000, 69_000];

impl Malice {
    /// Zones that malicious members make up: more than the contacts of one frame may be in.
    pub const ZONES: usize = 300;

    /// The signed statement of a member that does not exist, at a foreign address.
    fn ghost(&mut self, sight: &Sight<'_>, number: u64, low: bool, zone: Zone) -> Member {
        let node = self.own.ghost(number, low);
        let addr = abroad(node.0 >> 24 ^ number);
        let generation = sight.myself.identity.generation;
        self.own.invented(Identity { addr, node, generation, zone })
    }

    fn flood(&mut self) -> u64 {
        if self.dice.percent(GREAT_PERCENT) { GREAT_FLOOD } else { self.dice.one_of(&FLOODS) }
    }

    /// Strikes as row 9 of the table of attacks says.
    pub(super) fn name_gateways(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let count = self.flood();
        let mine = sight.myself.identity.zone;
        let mut gateways = vec![sight.myself];
        for number in 0..count {
            let other = Zone::named(&format!("none-{}", number % Self::ZONES as u64)).unwrap_or_default();
            let zone = if self.dice.percent(50) { mine } else { other };
            gateways.push(self.ghost(sight, number, false, zone));
        }
        let backbone = self.dice.percent(50);
        let snapshot = Snapshot { members: vec![sight.myself], gateways, backbone, ..Snapshot::default() };
        let bytes = frame(snapshot);
        deeds.extend(self.targets(sight).into_iter().map(|(to, _)| Deed::Frame { to, bytes: bytes.clone() }));
    }

    /// Strikes as row 10 of the table of attacks says.
    pub(super) fn invent_members(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let count = self.flood();
        let zone = sight.myself.identity.zone;
        let mut members = vec![sight.myself];
        members.extend((0..count).map(|number| self.ghost(sight, number, false, zone)));
        let bytes = frame(Snapshot { members, ..Snapshot::default() });
        deeds.extend(self.targets(sight).into_iter().map(|(to, _)| Deed::Frame { to, bytes: bytes.clone() }));
    }

    /// Strikes as row 11 of the table of attacks says.
    pub(super) fn invent_holders(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let zone = sight.myself.identity.zone;
        let (name, header) = (sight.image.name.clone(), *sight.image.geometry.header());
        let mut items = Vec::new();
        for number in 0..LOW {
            let ghost = self.ghost(sight, number, true, zone);
            let claim = Self::claim(sight, ghost.identity.node, sight.image.id, &name, &header);
            let length = if self.dice.percent(50) { claim.arc.length } else { 0 };
            let claim = Record { origin: length == 0, arc: Arc { start: 0, length }, ..claim };
            items.push(Item::Member(ghost));
            items.push(Item::Record(self.own.record(claim)));
        }
        let targets = self.targets(sight);
        self.tell(sight, &targets, &items, deeds);
    }

    /// Strikes as row 16 of the table of attacks says.
    pub(super) fn send_elsewhere(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        for (_, to) in self.targets(sight) {
            for _ in 0..self.dice.among(1..20) {
                let stranger = self.own.ghost(self.dice.among(0..1000), false);
                let (_, third) = self.victim(sight);
                let from = self.dice.one_of(&[stranger, third.node, self.own.id()]);
                let source = self.dice.one_of(&[abroad(stranger.0 >> 24), third.addr]);
                let number = self.dice.roll() as u32;
                let purpose = self.dice.one_of(&[
                    Purpose::Ping(number),
                    Purpose::PingFor(stranger, number),
                    Purpose::Relay(stranger, number),
                    Purpose::Relay(third.node, number),
                    Purpose::AckFor(stranger, number),
                    Purpose::Vouch(third.node, number),
                    Purpose::Introduce,
                ]);
                // To the receiver, or to a former node at its address.
                let node = self.dice.one_of(&[to.node, to.node, stranger]);
                let level = self.dice.one_of(&[Level::Zone, Level::Zone, Level::Backbone]);
                let head = Head { level, from, life: (1, 0), to: node, purpose };
                deeds.push(Deed::Datagram { source, to: to.addr, bytes: Draft::new(&head).finish() });
            }
        }
    }

    /// Row 18: a valid frame, as long as frames may be. The field spaces them out on the link.
    pub(super) fn write_at_length(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let count = self.dice.one_of(&LENGTHS);
        let known = (0..count).map(|_| Known { node: NodeId(self.dice.roll()), digest: self.dice.roll() as u32 });
        let mut known: Vec<Known> = known.collect();
        known.sort_unstable();
        let bytes = frame(Snapshot { members: vec![sight.myself], known, ..Snapshot::default() });
        let (to, _) = self.victim(sight);
        deeds.push(Deed::Frame { to, bytes });
    }

    /// An answer that makes no sense to who asked for a snapshot, now and then.
    pub fn noise(&mut self) -> Option<Vec<u8>> {
        let makes_noise = self.plan.attack == super::Attack::Garbage && self.dice.percent(50);
        makes_noise.then(|| (0..self.dice.among(0..200)).map(|_| self.dice.roll() as u8).collect())
    }

    /// Bytes that make no sense, or stop making sense.
    pub(super) fn babble(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        for (to, identity) in self.targets(sight) {
            let head = Self::head(sight, Level::Zone, identity.node, Purpose::Ping(1));
            let mut datagram = super::datagrams(&head, &[Item::Member(sight.myself)]).next().unwrap_or_default();
            let mut bytes = frame(Self::snapshot(sight, Level::Zone, &[Item::Member(sight.myself)]));
            for noise in [&mut datagram, &mut bytes] {
                let length = noise.len() as u64;
                if self.dice.percent(30) {
                    noise.truncate(self.dice.among(0..length) as usize);
                } else {
                    for _ in 0..self.dice.among(1..9) {
                        let at = self.dice.among(0..length) as usize;
                        noise[at] = self.dice.roll() as u8;
                    }
                }
            }
            deeds.push(Deed::Datagram { source: sight.myself.identity.addr, to: identity.addr, bytes: datagram });
            if self.dice.percent(20) {
                deeds.push(Deed::Frame { to, bytes });
            }
        }
    }
}
