//! Identity: no honest machine is expelled, framed or impersonated, whatever others say.
//!
//! Each is a state of two honest machines that may last a while. A hint is believed until its
//! subject denies it, and a first statement is a hint until another one differs. So a state counts
//! if it lasts longer than its bound, while both machines are well and nothing is cut off.

use super::{Violation, violation};
use crate::field::Field;
use crate::machine::Machine;
use std::collections::BTreeMap;
use std::time::Duration;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::membership::Member;
use vfield_core::record::Record;
use vfield_core::signing::Simulated;
use vfield_core::time::Time;

/// What one honest machine does to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    /// It does not count the other as a member.
    Expelled,
    /// It blames the other, or does not believe in its store.
    Framed,
    /// It believes a statement or a record of the other that the other did not sign.
    Impersonated,
}

impl Wrong {
    const fn checker(self) -> &'static str {
        match self {
            Self::Expelled => "expelled",
            Self::Framed => "framed",
            Self::Impersonated => "impersonated",
        }
    }

    /// For how long it may last. Snapshots are exchanged every 10 s, and lost members are greeted
    /// every 2 s in turn. So it is three rounds of the first, and some time for the others.
    const fn bound(self) -> Duration {
        match self {
            Self::Expelled | Self::Impersonated => Duration::from_secs(35),
            // A first ban for false claims lasts for a second, the next one for two.
            Self::Framed => Duration::from_secs(5),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Expelled => "holds a live honest machine for gone",
            Self::Framed => "blames an honest machine, or does not believe in its store",
            Self::Impersonated => "believes what an honest machine never said of itself",
        }
    }
}

/// The states of all pairs, as far as they are wrong.
#[derive(Debug, Default)]
pub struct Pairs {
    since: BTreeMap<(Wrong, usize, usize), Time>,
    /// The longest that each lasted, for who sets the bounds.
    pub longest: BTreeMap<&'static str, Duration>,
}

impl Pairs {
    /// Looks at all pairs now; it is to be called a few times a second.
    pub fn look(&mut self, field: &Field) -> Result<(), Violation> {
        let mut found = BTreeMap::new();
        let well: Vec<usize> = field.honest().into_iter().filter(|machine| is_undisturbed(field, *machine)).collect();
        for &machine in &well {
            for (wrong, other) in wrongs(field, machine, &well) {
                let key = (wrong, machine, other);
                found.insert(key, self.since.get(&key).copied().unwrap_or(field.now()));
            }
        }
        self.since = found;
        for (&(wrong, machine, other), &since) in &self.since {
            let lasts = field.now() - since;
            let longest = self.longest.entry(wrong.checker()).or_default();
            *longest = lasts.max(*longest);
            if lasts > wrong.bound() {
                let what = format!("{}: machine {other}, for {lasts:?}", wrong.words());
                return Err(violation(field, wrong.checker(), machine, what));
            }
        }
        Ok(())
    }
}

/// True for a machine that is well and has the link that it should have, in a field without walls
/// and losses.
fn is_undisturbed(field: &Field, machine: usize) -> bool {
    let host = &field.machines[machine];
    let link = host.port.is_at_its_own_rate();
    host.is_well() && link && field.has_no_walls() && field.links.loss_percent == 0
}

/// The wrongs between a machine and the others of its zone.
fn wrongs(field: &Field, machine: usize, others: &[usize]) -> Vec<(Wrong, usize)> {
    let host = &field.machines[machine];
    let members = host.node.members();
    let state: BTreeMap<NodeId, &'static str> =
        members.iter().map(|member| (member.identity.node, member.state)).collect();
    let said = host.node.snapshot(host.node.me(), &[]);
    let mut wrong = Vec::new();
    for &other in others.iter().filter(|other| **other != machine && field.machines[**other].zone == host.zone) {
        let about = &field.machines[other];
        match state.get(&about.identity.node) {
            None => wrong.push((Wrong::Expelled, other)),
            Some(&("blamed" | "doubted")) if !about.has_lied && !about.had_fault => wrong.push((Wrong::Framed, other)),
            Some(_) => {}
        }
        let members = said.members.iter().filter(|member| member.state.is_live());
        let mut records = said.records.iter();
        if members.clone().any(|member| !is_own(about, member)) || records.any(|record| !has_said(about, record)) {
            wrong.push((Wrong::Impersonated, other));
        }
    }
    wrong
}

/// True unless the statement is about this machine and not by it.
fn is_own(about: &Machine, said: &Member) -> bool {
    let Identity { node, addr, .. } = about.identity;
    said.identity.node != node || (said.identity.addr == addr && said.is_genuine(&Simulated(node)))
}

/// The same of a record.
fn has_said(about: &Machine, record: &Record) -> bool {
    let node = about.identity.node;
    record.node != node || record.is_genuine(&Simulated::key_of(node), &Simulated(node))
}
