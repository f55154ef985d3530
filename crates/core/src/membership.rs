//! Membership: who is in the field and alive, and what they say, by gossip.
//!
//! Wraps foca (SWIM: Das, Gupta and Motivala, 2002) for liveness and lets it carry [`Record`]s along.
//! Called by [`crate::node::Node`] with datagrams, due timers and snapshots; gives back datagrams to send,
//! timers to set, and who came and went. Knows nothing of chunks.

use crate::config::{TALK_FORMING, TALK_MEMBERS};
use crate::identity::{Identity, NodeId};
use crate::record::{Record, RecordKey, Records, Snapshot};
use foca::{BroadcastHandler, Foca, Member, OwnedNotification, PostcardCodec, State};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Largest gossip datagram, in bytes: an Ethernet frame with room for IPv6 and tunnels.
pub const DATAGRAM_MAX: usize = 1400;

/// How often a member is probed. Of N members one finds a dead one in 1.6 periods on average (SWIM, 3.1).
const PROBE_PERIOD: Duration = Duration::from_millis(300);
/// How long a direct answer may take before others are asked to probe.
const PROBE_RTT: Duration = Duration::from_millis(120);
/// From suspicion to death: 0.5 + 0.3 + 0.7 stay below the promised 2 s.
const SUSPECT_TO_DOWN: Duration = Duration::from_millis(700);
/// Nobody stays suspect for longer than twice this: well above what a denial takes.
pub const VIGIL: Duration = Duration::from_millis(1500);
/// How long the dead are remembered, so that old gossip does not bring them back.
const REMEMBER_DOWN: Duration = Duration::from_secs(60);

/// So many lost members are looked for by a node that has lost all.
const FORMER_MAX: usize = 16;

/// Something foca asked to be reminded of.
pub type Reminder = foca::Timer<Identity>;

/// That a member may be dead, and since which of its incarnations.
#[derive(Debug, Clone, Copy)]
pub struct Suspicion {
    member: Identity,
    incarnation: u16,
}

/// What a call left to be done.
#[derive(Debug, Default)]
pub struct Effects {
    /// Datagrams to send.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Reminders to give back after a while.
    pub reminders: Vec<(Duration, Reminder)>,
    /// Suspicions to give to [`Membership::bury`] after a while.
    pub suspicions: Vec<(Duration, Suspicion)>,
    /// Members that are new, or back.
    pub up: Vec<Identity>,
    /// Members that died or left.
    pub down: Vec<Identity>,
}

/// Hands records that arrive with gossip to the table.
struct Inbox {
    me: NodeId,
    records: Arc<Mutex<Records>>,
}

/// A record that cannot be read; the rest of its datagram is dropped.
#[derive(Debug, thiserror::Error)]
#[error("unreadable record")]
struct BadRecord;

impl BroadcastHandler<Identity> for Inbox {
    type Key = RecordKey;
    type Error = BadRecord;

    fn receive_item(&mut self, data: &[u8], sender: Option<&Identity>) -> Result<Option<RecordKey>, BadRecord> {
        let record = Record::decode(data).ok_or(BadRecord)?;
        if sender.is_some() && record.node == self.me {
            // What this node holds, it knows best.
            return Ok(None);
        }
        let key = RecordKey { node: record.node, image: record.image };
        Ok(lock(&self.records).learn(record).then_some(key))
    }
}

/// The members of the field and their records.
pub struct Membership {
    foca: Foca<Identity, PostcardCodec, SmallRng, Inbox>,
    /// Shared with foca's handler only: never contended, never held across a call.
    records: Arc<Mutex<Records>>,
    live: BTreeMap<NodeId, Identity>,
    forming: bool,
    /// Members that died since there was last a new one.
    former: Vec<Identity>,
    /// Members that were suspect at the last [`Membership::vigil`], with their incarnations.
    watched: BTreeMap<NodeId, u16>,
}

impl Membership {
    /// A field with one member. `seed` makes every choice of it repeatable.
    pub fn new(me: Identity, seed: u64) -> Self {
        let records = Arc::new(Mutex::new(Records::default()));
        let inbox = Inbox { me: me.node, records: Arc::clone(&records) };
        let rng = SmallRng::seed_from_u64(seed);
        Self {
            foca: Foca::with_custom_broadcast(me, config(), rng, PostcardCodec, inbox),
            records,
            live: BTreeMap::new(),
            forming: false,
            former: Vec::new(),
            watched: BTreeMap::new(),
        }
    }

    /// Who this node is; the generation may have grown.
    pub fn me(&self) -> &Identity {
        self.foca.identity()
    }

    /// Takes in a datagram. Whatever is wrong with it, nothing of ours is harmed: foca checks it whole.
    pub fn datagram(&mut self, bytes: &[u8]) -> Effects {
        self.run(|foca, runtime| foca.handle_data(bytes, runtime))
    }

    /// Gives back a reminder that is due.
    pub fn remind(&mut self, reminder: Reminder) -> Effects {
        self.run(|foca, runtime| foca.handle_timer(reminder, runtime))
    }

    /// Takes in what another member told us when we met.
    pub fn learn(&mut self, snapshot: Snapshot) -> Effects {
        let me = *self.me();
        for record in snapshot.records {
            if record.node != me.node {
                self.pass_on(record);
            }
        }
        let news = snapshot.members.into_iter().filter(|(member, _)| member.node != me.node);
        let news: Vec<_> = news.map(|(member, incarnation)| Member::new(member, incarnation, State::Alive)).collect();
        self.run(|foca, runtime| foca.apply_many(news.into_iter(), true, runtime))
    }

    /// A member greeted us, so it lives.
    pub fn met(&mut self, identity: Identity) -> Effects {
        if self.live.get(&identity.node) == Some(&identity) || identity.node == self.me().node {
            return Effects::default();
        }
        self.run(|foca, runtime| foca.apply_many([Member::alive(identity)].into_iter(), true, runtime))
    }

    /// A member's connections broke: it has to prove within [`SUSPECT_TO_DOWN`] that it lives.
    pub fn suspect(&mut self, node: NodeId) -> Effects {
        let Some(identity) = self.live.get(&node) else { return Effects::default() };
        let known = self.foca.iter_members().find(|member| member.id() == identity);
        let Some(member) = known.filter(|member| member.state() == State::Alive) else { return Effects::default() };
        let suspicion = Suspicion { member: *member.id(), incarnation: member.incarnation() };
        let suspect = Member::new(suspicion.member, suspicion.incarnation, State::Suspect);
        let mut effects = self.run(|foca, runtime| foca.apply_many([suspect].into_iter(), true, runtime));
        effects.suspicions.push((SUSPECT_TO_DOWN * self.talk(), suspicion));
        effects
    }

    /// A suspicion's time is up: unless the member has refuted it, it is dead. (Foca does this for
    /// suspicions of its own only.)
    pub fn bury(&mut self, suspicion: Suspicion) -> Effects {
        let Suspicion { member, incarnation } = suspicion;
        let silent = |known: &Member<Identity>| {
            *known.id() == member && known.state() == State::Suspect && known.incarnation() == incarnation
        };
        if !self.foca.iter_members().any(silent) {
            return Effects::default();
        }
        let dead = Member::new(member, incarnation, State::Down);
        self.run(|foca, runtime| foca.apply_many([dead].into_iter(), true, runtime))
    }

    /// Buries members that have been suspect since the last call, by whoever's word: a denial may have been
    /// lost, and whoever lives comes back as a later generation. To be called every [`VIGIL`].
    pub fn vigil(&mut self) -> Effects {
        let suspects = self.foca.iter_members().filter(|member| member.state() == State::Suspect).cloned();
        let suspects: Vec<Member<Identity>> = suspects.collect();
        let old = |member: &&Member<Identity>| self.watched.get(&member.id().node) == Some(&member.incarnation());
        let bury =
            suspects.iter().filter(old).map(|member| Member::new(*member.id(), member.incarnation(), State::Down));
        let bury: Vec<Member<Identity>> = bury.collect();
        self.watched = suspects.iter().map(|member| (member.id().node, member.incarnation())).collect();
        if bury.is_empty() {
            return Effects::default();
        }
        self.run(|foca, runtime| foca.apply_many(bury.into_iter(), true, runtime))
    }

    /// Begins anew as a later generation of itself, without memory of who is dead: for a node that has lost
    /// all others, who may have lost it. What was asked to be reminded of before is void.
    pub fn start_over(&mut self, seed: u64) {
        let me = *self.me();
        let me = foca::Identity::renew(&me).unwrap_or(me);
        let inbox = Inbox { me: me.node, records: Arc::clone(&self.records) };
        let rng = SmallRng::seed_from_u64(seed);
        self.foca = Foca::with_custom_broadcast(me, config(), rng, PostcardCodec, inbox);
    }

    /// Members that died since there was last a new one, at most [`FORMER_MAX`].
    pub fn former(&self) -> &[Identity] {
        &self.former
    }

    /// Says something about an image, now and to all.
    pub fn announce(&mut self, record: Record) -> Effects {
        self.pass_on(record);
        self.run(|foca, runtime| foca.broadcast(runtime))
    }

    /// Passes news on at once, to a few.
    pub fn spread(&mut self) -> Effects {
        self.run(|foca, runtime| foca.gossip(runtime))
    }

    /// Says goodbye.
    pub fn leave(&mut self) -> Effects {
        self.run(|foca, runtime| foca.leave_cluster(runtime))
    }

    /// What to tell a node that we meet.
    pub fn snapshot(&self) -> Snapshot {
        let me = (*self.me(), 0);
        let members = self.foca.iter_members().map(|member| (*member.id(), member.incarnation()));
        let records = self.records();
        let live = records.iter().filter(|record| record.node == me.0.node || self.live.contains_key(&record.node));
        Snapshot { members: std::iter::once(me).chain(members).collect(), records: live.cloned().collect() }
    }

    /// Live members other than this node.
    pub fn live(&self) -> &BTreeMap<NodeId, Identity> {
        &self.live
    }

    /// By how much talk that every member pays for is slowed down: see [`TALK_MEMBERS`].
    pub fn talk(&self) -> u32 {
        let talk = (self.live.len() as u32 / TALK_MEMBERS).max(1);
        if self.forming { talk.max(TALK_FORMING) } else { talk }
    }

    /// Many members are coming, on machines that are busy starting: be slow to suspect and to bury.
    pub fn set_forming(&mut self, forming: bool) {
        self.forming = forming;
    }

    /// Members that may be dead.
    pub fn suspects(&self) -> BTreeSet<NodeId> {
        let suspects = self.foca.iter_members().filter(|member| member.state() == State::Suspect);
        suspects.map(|member| member.id().node).collect()
    }

    /// All records, of the dead too until they are swept out.
    pub fn records(&self) -> MutexGuard<'_, Records> {
        lock(&self.records)
    }

    /// Forgets the records of nodes that are not alive.
    pub fn sweep(&mut self) {
        let me = self.me().node;
        let live = &self.live;
        lock(&self.records).retain(|node| node == me || live.contains_key(&node));
    }

    fn pass_on(&mut self, record: Record) {
        // Our own limits keep a record below a datagram; one that cannot be sent is still learned.
        let bytes = record.encode();
        let _ = self.foca.add_broadcast(&bytes);
    }

    /// Runs one foca call and sorts out what it asks for. Errors say that a peer sent nonsense or that a
    /// datagram came late; foca's documentation says for each that its state is unharmed.
    fn run<F>(&mut self, call: F) -> Effects
    where
        F: FnOnce(
            &mut Foca<Identity, PostcardCodec, SmallRng, Inbox>,
            &mut foca::AccumulatingRuntime<Identity>,
        ) -> Result<(), foca::Error>,
    {
        let mut runtime = foca::AccumulatingRuntime::new();
        let _ = call(&mut self.foca, &mut runtime);
        let mut effects = Effects::default();
        while let Some((to, bytes)) = runtime.to_send() {
            effects.datagrams.push((to.addr, bytes.to_vec()));
        }
        while let Some((after, reminder)) = runtime.to_schedule() {
            let paced = matches!(
                reminder,
                foca::Timer::ProbeRandomMember(_)
                    | foca::Timer::SendIndirectProbe { .. }
                    | foca::Timer::PeriodicGossip(_)
                    // A denial takes as long as any news.
                    | foca::Timer::ChangeSuspectToDown { .. }
            );
            let after = if paced { after * self.talk() } else { after };
            effects.reminders.push((after, reminder));
        }
        while let Some(notification) = runtime.to_notify() {
            self.note(notification, &mut effects);
        }
        effects
    }

    fn note(&mut self, notification: OwnedNotification<Identity>, effects: &mut Effects) {
        match notification {
            OwnedNotification::MemberUp(member) => {
                let known = self.live.insert(member.node, member).is_some();
                effects.up.extend((!known).then_some(member));
                self.former.clear();
            }
            OwnedNotification::MemberDown(member) => {
                // News of an earlier life says nothing about this one.
                let known = self.live.get(&member.node).is_some_and(|live| live.generation <= member.generation);
                let dead = known.then(|| self.live.remove(&member.node)).flatten();
                effects.down.extend(dead);
                self.former.extend(dead.filter(|_| self.former.len() < FORMER_MAX));
            }
            OwnedNotification::Rename(old, new) => self.rename(old, new, effects),
            _ => {}
        }
    }

    /// A member has a new identity: it refuted its death, or another process has taken its address.
    fn rename(&mut self, old: Identity, new: Identity, effects: &mut Effects) {
        if self.live.remove(&old.node).is_none() {
            return;
        }
        self.live.insert(new.node, new);
        if old.node != new.node {
            effects.down.push(old);
            effects.up.push(new);
        }
    }
}

fn lock(records: &Mutex<Records>) -> MutexGuard<'_, Records> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config() -> foca::Config {
    const ONE: NonZeroUsize = NonZeroUsize::MIN;
    const THREE: NonZeroUsize = NonZeroUsize::new(3).expect("not zero");
    let every = |frequency, num_members| Some(foca::PeriodicParams { frequency, num_members });
    foca::Config {
        probe_period: PROBE_PERIOD,
        probe_rtt: PROBE_RTT,
        num_indirect_probes: THREE,
        // Each piece of news is passed on so often by each node: enough for thousands (SWIM, 4.1).
        max_transmissions: NonZeroU8::new(10).expect("not zero"),
        suspect_to_down_after: SUSPECT_TO_DOWN,
        remove_down_after: Some(REMEMBER_DOWN),
        max_packet_size: NonZeroUsize::new(DATAGRAM_MAX).expect("not zero"),
        notify_down_members: true,
        periodic_announce: every(Duration::from_secs(30), ONE),
        // What heals a parted field: the dead are greeted now and then, and deny it.
        periodic_announce_to_down_members: every(Duration::from_secs(2), THREE),
        periodic_gossip: every(Duration::from_millis(200), ONE),
    }
}
