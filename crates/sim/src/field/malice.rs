//! Malicious members in the field: when they strike, how their messages go out, and how the shells
//! of others meet them. [`crate::malicious`] decides what they do.

use super::lanes::connection;
use super::{Event, Field};
use crate::checks;
use crate::machine::{Fault, place_of};
use crate::malicious::{Answer, Deed, Malice, Plan, Sight};
use crate::network::Message;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::fetch::Asker;
use vfield_core::greeting::{self, Greeting, HEAD, Transcript};
use vfield_core::identity::{Identity, NodeId};
use vfield_core::membership::message::{self, Draft, Item};
use vfield_core::node::Input;
use vfield_core::signing::{Signatures, Simulated};
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{self, FrameHeader, Kind, Refusal};

/// Share of a link, the slowest of all, that all malicious members together fill with what they
/// craft. No bound of a node protects its link from a flood.
const SHARE: u64 = 4;

impl Field {
    /// From now on a machine is malicious, until its process ends.
    pub fn turn(&mut self, machine: usize, plan: &Plan) {
        self.note(machine, "turns", [plan.attack as u64, plan.seed]);
        let host = &mut self.machines[machine];
        host.malice = Some(Box::new(Malice::new(plan.clone(), &host.identity)));
        self.after(plan.every, Event::Strike(machine as u32));
    }

    /// The malicious machines that run.
    pub fn malicious(&self) -> impl Iterator<Item = (usize, &Malice)> {
        let running = self.machines.iter().enumerate().filter(|(_, host)| host.alive);
        running.filter_map(|(at, host)| Some((at, host.malice.as_deref()?)))
    }

    /// True if a machine was ever malicious.
    pub fn has_known_malice(&self) -> bool {
        self.machines.iter().any(|host| host.malice.is_some())
    }

    pub(super) fn strike(&mut self, at: u32) {
        let machine = at as usize;
        let joined = !self.arrivals.contains_key(&at);
        let host = &mut self.machines[machine];
        let Some(mut malice) = host.malice.take_if(|_| host.alive) else { return };
        let paused = host.fault == Fault::Paused;
        let deeds = if paused || !joined { Vec::new() } else { malice.strike(&self.sight(machine, &malice)) };
        let every = malice.plan.every;
        self.machines[machine].malice = Some(malice);
        let bytes: u64 = deeds.iter().map(Deed::bytes).sum();
        for deed in deeds {
            self.perform_deed(machine, deed);
        }
        let alive = self.machines.iter().filter(|host| host.alive);
        let own = alive.map(|host| self.links.rates(host.place)).map(|own| own.up.min(own.down)).min();
        let rate = self.machines[machine].port.up.rate.min(own.unwrap_or(u64::MAX));
        let mine = (rate / SHARE / self.malicious().count().max(1) as u64).max(1);
        let pause = Duration::from_secs_f64(bytes as f64 / mine as f64);
        self.after(every.max(pause), Event::Strike(at));
    }

    fn sight(&self, machine: usize, malice: &Malice) -> Sight<'_> {
        let host = &self.machines[machine];
        let honest = self.there().into_iter().filter(|other| self.machines[*other].is_honest());
        let heard =
            if malice.plan.attack.listens() { host.node.snapshot(host.node.me(), &[]) } else { Snapshot::default() };
        Sight {
            now: self.now(),
            myself: *host.node.myself(),
            others: honest.map(|other| (other, *self.machines[other].node.me())).collect(),
            heard,
            image: &self.images[0],
        }
    }

    fn perform_deed(&mut self, machine: usize, deed: Deed) {
        match deed {
            Deed::Datagram { source, to, bytes } => {
                self.note(machine, "whispers", [bytes.len() as u64, 0]);
                self.trace.bytes(&bytes);
                let lost = self.links.loss_percent > 0 && self.dice.percent(self.links.loss_percent);
                if let Some(to) = place_of(to).and_then(|place| self.at_place(place)).filter(|_| !lost) {
                    self.send(machine, to, Message::Forged { source, bytes });
                }
            }
            Deed::Frame { to, bytes } => {
                self.note(machine, "tells", [bytes.len() as u64, to as u64]);
                let peer = self.machines[to].identity;
                if self.reach(machine, peer).is_some() {
                    self.send(machine, to, Message::Sync(bytes));
                }
            }
            Deed::Pose { to, victim, way } => self.pose(machine, [to, victim], way),
        }
    }

    /// A machine greets another one in the name of a third. Nothing follows unless it is believed.
    fn pose(&mut self, machine: usize, [to, victim]: [usize; 2], way: u64) {
        self.note(machine, "poses", [to as u64, victim as u64]);
        if to == victim || !self.machines[to].alive || self.is_walled_off(machine, to) {
            return;
        }
        let said = self.greeting_of(victim);
        let mine = self.greeting_of(machine);
        let theirs = self.greeting_of(to);
        let said = match way % 3 {
            // All of the victim's greeting, its statement under the own key, or its id with that.
            0 => said,
            1 => Greeting { member: said.member, ..mine },
            _ => {
                let member = said.member.map(|member| vfield_core::membership::Member { key: mine.key, ..member });
                Greeting { member, ..mine }
            }
        };
        let here = Transcript::new(&[0; 32], &greeting::greeting(&said), &greeting::greeting(&theirs));
        let Some(malice) = &self.machines[machine].malice else { return };
        let proof = match way / 3 % 3 {
            0 => malice.own.prove(&here, true),
            // The victim proves itself to whoever calls it: a proof for another connection.
            1 => Transcript::new(&[0; 32], &greeting::greeting(&mine), &greeting::greeting(&said))
                .prove(false, &Simulated(self.machines[victim].identity.node)),
            _ => malice.own.prove(&here, false),
        };
        let sent = greeting::greeting(&said);
        let keys = Simulated(self.machines[to].identity.node);
        let read = greeting::decode(&sent[HEAD..]).ok();
        let taken_for = read.and_then(|read| here.prover(true, &read, &proof, &keys));
        if taken_for.is_some_and(|node| node != self.machines[machine].identity.node) {
            let what = format!("takes machine {machine} for machine {victim}, which it greets as");
            self.found(checks::violation(self, "impersonated", to, what));
        }
    }

    /// An honest greeting of a machine.
    fn greeting_of(&mut self, machine: usize) -> Greeting {
        let mut nonce = [0; 32];
        nonce[..8].copy_from_slice(&self.dice.roll().to_le_bytes());
        let node = &self.machines[machine].node;
        let key = Simulated(self.machines[machine].identity.node).key();
        Greeting { key, nonce, member: Some(*node.myself()), you: node.me().addr, latest: node.latest() }
    }

    /// The snapshot that the shell of a machine reads from a frame. Some malicious
    /// machines say of themselves what their cores do not know, and keep that from their cores.
    pub(super) fn read_snapshot(&self, machine: usize, frame: &[u8]) -> Option<Snapshot> {
        let head = FrameHeader::decode(frame.first_chunk()?).ok()?;
        let whole = head.length as usize == frame.len() - wire::HEADER;
        let mut snapshot = wire::decode_snapshot(&frame[wire::HEADER..]).ok().filter(|_| whole)?;
        if let Some(malice) = self.machines[machine].malice.as_ref().filter(|malice| malice.speaks_otherwise()) {
            let me = malice.own.id();
            snapshot.records.retain(|record| record.node != me);
            snapshot.outside.retain(|record| record.node != me);
        }
        Some(snapshot)
    }

    /// The same of a datagram.
    pub(super) fn read_datagram(&self, machine: usize, bytes: Vec<u8>) -> Vec<u8> {
        let Some(malice) = self.machines[machine].malice.as_ref().filter(|malice| malice.speaks_otherwise()) else {
            return bytes;
        };
        let Some((head, items)) = message::parse(&bytes) else { return bytes };
        let mut draft = Draft::new(&head);
        for item in items {
            let about = match &item {
                Item::Record(record) => Some(record.node),
                Item::Progress(progress) => Some(progress.node),
                _ => None,
            };
            if about != Some(malice.own.id()) {
                draft.add(&item);
            }
        }
        draft.finish()
    }

    /// The bytes of a frame make no sense to a machine. On a connection that it opened, the other
    /// proved who it is, and is charged.
    pub(super) fn broken_frame(&mut self, from: usize, to: usize, kind: Kind) {
        let reset = self.links.delay;
        let (opener, other) = if kind == Kind::Sync { (from, to) } else { (to, from) };
        let node = self.machines[other].identity.node;
        if self.close(opener, other, reset) {
            self.tell(reset, opener, Input::Broken(node));
        }
        self.lose_flights(opener, other, reset);
        if kind == Kind::Synced {
            self.input(to, Input::Misbehaved(node));
        }
    }

    /// The answer of a malicious machine that is asked for its snapshot, if it is none.
    pub(super) fn noise(&mut self, machine: usize) -> Option<Vec<u8>> {
        self.machines[machine].malice.as_mut()?.noise()
    }

    /// How a machine treats a request, if not as an honest node; true if that was all.
    pub(super) fn mistreats(&mut self, from: usize, to: usize, epoch: u32, message: &Message) -> bool {
        let &Message::Get { request, image, chunk, priority, reach, .. } = message else { return false };
        let others: Vec<NodeId> = match &self.machines[to].malice {
            Some(_) => self.there().into_iter().map(|other| self.machines[other].identity.node).collect(),
            None => return false,
        };
        let Some(malice) = &mut self.machines[to].malice else { return false };
        let asker = Asker { connection: connection(from, epoch), request: request.0, reach };
        match malice.answer(chunk, &others) {
            Answer::Honest => return false,
            Answer::Refuse => self.refuse(to, asker, Refusal::NotHeld),
            Answer::Ignore(gives_signs) => {
                if gives_signs {
                    self.begin_to_beat(to, from);
                }
            }
            Answer::Wrong => self.serve_wrong(to, asker, (usize::from(image), chunk), priority),
            Answer::Elsewhere(node) => self.redirect(to, from, request, node),
        }
        true
    }

    /// A machine dials an address at which the wanted node is not.
    pub(super) fn dial_nobody(&mut self, machine: usize, peer: Identity) {
        let there = place_of(peer.addr).and_then(|place| self.at_place(place));
        let there = there.filter(|there| self.machines[*there].alive && *there != machine);
        let there = there.filter(|there| !self.is_walled_off(machine, *there) && !self.is_walled_off(*there, machine));
        let after = if there.is_some() { self.links.delay * 2 } else { super::lanes::CONNECT };
        if let Some(there) = there {
            self.tell(after, machine, Input::Met(*self.machines[there].node.myself()));
        }
        self.tell(after, machine, Input::Broken(peer.node));
        if let Some(to) = self.number(peer.node) {
            self.lose_flights(machine, to, after);
        }
    }

    /// True if a node is where this address says, as far as a new connection goes.
    pub(super) fn lives_at(&self, machine: usize, addr: SocketAddr) -> bool {
        place_of(addr) == Some(self.machines[machine].place)
    }
}
