//! Attacks by false words: about names, headers, addresses, lives and records of others.

use super::{Attack, Deed, Malice, OLD_MAX, Sight, datagrams};
use vfield_core::identity::{Identity, NodeId};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::message::{Head, Item, Purpose};
use vfield_core::membership::progress::Progress;
use vfield_core::membership::{Level, Member, State};
use vfield_core::outbid::{CLAIM_MAX, FIRST_MAX, latest_believed};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;

/// An image that does not exist.
const OTHER_IMAGE: ImageId = ImageId([0xEE; 32]);

impl Malice {
    /// A record of `node` about an image of this id and name, unsigned.
    pub(super) fn claim(sight: &Sight<'_>, node: NodeId, image: ImageId, name: &str, header: &Header) -> Record {
        let chunks = sight.image.chunks();
        Record {
            node,
            // Above what its core says, and below the last version, so others still follow.
            version: CLAIM_MAX + sight.now.since_start().as_millis() as u64,
            progress: 0,
            subject: Subject { image, names: name.to_owned().into(), header: header.encode() }.into(),
            origin: true,
            arc: Arc { start: 0, length: chunks },
            filled: Filled { from: 0, count: chunks },
            leaving: false,
            signature: Signature::default(),
        }
    }

    /// A header that is not the image's.
    fn wrong_header(&mut self, sight: &Sight<'_>) -> Header {
        let header = sight.image.geometry.header();
        let size = header.chunk_size();
        let chunks = self.dice.one_of(&[1, sight.image.data().end + 1, 5000]);
        Header::new(chunks * size.bytes(), size, chunks).expect("a header")
    }

    /// Strikes as row 1 of the table of attacks says.
    pub(super) fn misname(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let header = *sight.image.geometry.header();
        let me = self.own.id();
        let old = Self::claim(sight, me, sight.image.id, "old-image", &header);
        let mine = Self::claim(sight, me, OTHER_IMAGE, &sight.image.name, &header);
        let length = if self.dice.percent(50) { 0 } else { old.arc.length };
        let old = Record { origin: self.dice.percent(50), arc: Arc { start: 0, length }, ..old };
        let items = [old, mine].map(|record| Item::Record(self.own.record(record)));
        let targets = self.targets(sight);
        self.tell(sight, &targets, &items, deeds);
    }

    /// Strikes as row 2 of the table of attacks says.
    pub(super) fn mishead(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let (_, victim) = self.victim(sight);
        let wrong = self.wrong_header(sight);
        let name = sight.image.name.clone();
        let mut records = Vec::new();
        for node in [self.own.id(), victim.node] {
            records.push(Self::claim(sight, node, sight.image.id, &name, &wrong));
            records.push(Self::claim(sight, node, OTHER_IMAGE, &name, &wrong));
        }
        let items: Vec<Item> = records.into_iter().map(|record| Item::Record(self.own.record(record))).collect();
        let targets = self.targets(sight);
        self.tell(sight, &targets, &items, deeds);
    }

    /// Strikes as row 3 of the table of attacks says.
    pub(super) fn pose(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let (victim, _) = self.victim(sight);
        for (to, _) in self.targets(sight) {
            deeds.push(Deed::Pose { to, victim, way: self.dice.roll() });
        }
    }

    /// Row 4: a key that nobody else has, at the address of another.
    pub(super) fn contest(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let (at, victim) = self.victim(sight);
        let last = latest_believed(victim.generation);
        let generation = self.dice.one_of(&[
            victim.generation.saturating_add(1),
            CLAIM_MAX,
            last - 1,
            last,
            (1 << 53) - 1,
            FIRST_MAX,
            u64::MAX - 1,
            u64::MAX,
        ]);
        let node = self.own.ghost(self.dice.among(0..8), self.dice.percent(50));
        let claim = self.own.invented(Identity { node, generation, ..victim });
        let mut targets = self.targets(sight);
        if self.dice.percent(50) {
            targets = vec![(at, victim)];
        }
        self.tell(sight, &targets, &[Item::Member(claim)], deeds);
    }

    /// Strikes as row 5 of the table of attacks says.
    pub(super) fn relocate(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let (_, victim) = self.victim(sight);
        let generation =
            self.dice.one_of(&[victim.generation, victim.generation.saturating_add(1), CLAIM_MAX, FIRST_MAX]);
        let incarnation = self.dice.one_of(&[0, 1, 9, u32::MAX - 1]);
        let here = Identity { addr: sight.myself.identity.addr, generation, ..victim };
        let state = self.dice.one_of(&[State::Alive, State::Alive, State::Suspect, State::Left]);
        let lie = self.own.forged(here, incarnation, state);
        let targets = self.targets(sight);
        self.tell(sight, &targets, &[Item::Member(lie)], deeds);
    }

    /// Strikes as row 6 of the table of attacks says.
    pub(super) fn outnumber(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let (_, victim) = self.victim(sight);
        let heard = sight.heard.records.iter().chain(&sight.heard.outside);
        let Some(said) = heard.filter(|record| record.node == victim.node).max_by_key(|record| record.rank()) else {
            return;
        };
        let version = self.dice.one_of(&[said.version.saturating_add(1), CLAIM_MAX, u64::MAX - 1, u64::MAX]);
        let forged = Record { version, origin: false, arc: Arc { start: 0, length: 0 }, leaving: true, ..said.clone() };
        // The signed part stays as it is: only the progress is invented.
        let chunks = sight.image.chunks();
        let count = self.dice.one_of(&[0, chunks, chunks, u64::MAX]);
        let progress = self.dice.one_of(&[said.progress.saturating_add(1), CLAIM_MAX, u64::MAX]);
        let invented = Record { progress, filled: Filled { from: said.arc.start, count }, ..said.clone() };
        // Alone, or in a record.
        let alone = Progress::of(&invented, victim.node).filter(|_| self.dice.one_of(&[false, true]));
        let invented = alone.map_or(Item::Record(invented), Item::Progress);
        let items = [Item::Record(self.own.record(forged)), invented];
        let targets = self.targets(sight);
        self.tell(sight, &targets, &items, deeds);
    }

    /// Strikes as row 7 of the table of attacks says.
    pub(super) fn impersonate(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let (_, victim) = self.victim(sight);
        let known = Self::statement(sight, victim.node);
        let present = known.map_or((victim.generation, 0), |known| known.life());
        let life = self.dice.one_of(&[
            present,
            (present.0, present.1.saturating_add(1)),
            (CLAIM_MAX, 0),
            (u64::MAX, u32::MAX),
        ]);
        let source = self.dice.one_of(&[victim.addr, sight.myself.identity.addr]);
        for (_, to) in self.targets(sight) {
            let number = self.dice.roll() as u32;
            let (_, third) = self.victim(sight);
            let purpose = self.dice.one_of(&[
                Purpose::News,
                Purpose::Ping(number),
                Purpose::Ack(number % 64),
                Purpose::Relay(third.node, number),
                Purpose::PingFor(third.node, number),
                Purpose::AckFor(third.node, number % 64),
                Purpose::Vouch(third.node, number % 64),
                Purpose::Introduce,
            ]);
            let head = Head { level: Level::Zone, from: victim.node, life, to: to.node, purpose };
            let later = Identity { generation: life.0, ..victim };
            let items = [Item::Member(self.own.forged(later, life.1, State::Alive))];
            deeds.extend(datagrams(&head, &items).map(|bytes| Deed::Datagram { source, to: to.addr, bytes }));
        }
    }

    /// Calls others suspect, dead or gone, as any node may.
    pub(super) fn spread_rumours(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let state = self.dice.one_of(&[State::Suspect, State::Down, State::Down, State::Left]);
        let mut items = Vec::new();
        for (_, about) in self.targets(sight) {
            if let Some(known) = Self::statement(sight, about.node) {
                items.push(Item::Member(Member { state, ..known }));
            }
        }
        let targets = self.targets(sight);
        self.tell(sight, &targets, &items, deeds);
    }

    /// Repeats old statements and records, as others signed them.
    pub(super) fn repeat(&mut self, sight: &Sight<'_>, deeds: &mut Vec<Deed>) {
        let members = sight.heard.members.iter().map(|member| Item::Member(*member));
        let records = sight.heard.records.iter().map(|record| Item::Record(record.clone()));
        let news: Vec<Item> = members.chain(records).collect();
        if !news.is_empty() {
            let item = news[self.dice.among(0..news.len() as u64) as usize].clone();
            if self.old.len() < OLD_MAX {
                self.old.push(item);
            } else {
                let at = self.dice.among(0..OLD_MAX as u64) as usize;
                self.old[at] = item;
            }
        }
        let old = self.old.clone();
        let targets = self.targets(sight);
        self.tell(sight, &targets, &old, deeds);
    }

    /// True if its own records are not what its core says: then its core must not hear of them, or
    /// it would deny them.
    pub fn speaks_otherwise(&self) -> bool {
        matches!(self.plan.attack, Attack::Names | Attack::Headers | Attack::Boasts)
    }
}
