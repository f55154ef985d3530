//! Seeking: a node calls addresses at which other nodes of the field may be, until one answers.
//!
//! There are two kinds of them: the addresses of former members, each of which may restart without
//! knowing any other; and the bootstrap addresses, through which this node was configured to join.
//! The answering node says its identity, and both exchange snapshots. A call costs a connection. So
//! calls grow rare with the time without an answer, and in a large field each node calls less
//! often. This module decides when and where; [`Output::Call`] does it.

use super::{Node, Output, Timer, TimerKey};
use crate::config::SYNC_EVERY_EARLY;
use crate::identity::NodeId;
use crate::membership::Member;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// The first pause between two calls, and that of a node in need.
const PAUSE_FIRST: Duration = SYNC_EVERY_EARLY;
/// The longest pause, in a small field: a machine that is back is found within this.
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// A pause is this part of the time without an answer: a node that was away for a minute is found 8
/// s later at most.
const PAUSE_PART: u32 = 8;
/// How long a node in need keeps the first pace: a switch restarts within this time.
const HURRY_FOR: Duration = Duration::from_secs(300);
/// Addresses called at that pace. Twice as many are called half as often.
const CALLED_AT_FULL_PACE: u32 = 8;
/// Most bootstrap addresses: one answer is enough.
const BOOTSTRAP_MAX: usize = 64;
/// Events within this time are handled at once.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// An address through which the node was configured to join.
#[derive(Debug)]
struct BootstrapAddr {
    addr: SocketAddr,
    /// The node that answered there last; others may know it by another address.
    node: Option<NodeId>,
}

/// The addresses to call, and when.
#[derive(Debug, Default)]
pub(super) struct Seeking {
    bootstrap: Vec<BootstrapAddr>,
    /// Since when this node needs others than it has.
    needy_since: Option<Time>,
    /// When each address is called next.
    calls: BTreeMap<SocketAddr, Time>,
    timer: Option<TimerKey>,
}

impl Seeking {
    /// True for the timer that was set last.
    pub fn is_due(&self, key: TimerKey) -> bool {
        self.timer == Some(key)
    }
}

/// The pause after a call of an address at which nobody has answered for `age`.
fn pause(age: Duration, needy: bool) -> Duration {
    if needy && age < HURRY_FOR { PAUSE_FIRST } else { (age / PAUSE_PART).clamp(PAUSE_FIRST, PAUSE_LONGEST) }
}

impl Node {
    /// Sets the bootstrap addresses. Who answered at one that stays is not forgotten.
    pub(super) fn set_bootstrap(&mut self, bootstrap: &[SocketAddr]) {
        let before = std::mem::take(&mut self.seeking.bootstrap);
        let node = |addr| before.iter().find(|entry| entry.addr == addr).and_then(|entry| entry.node);
        let entry = |addr: &SocketAddr| BootstrapAddr { addr: *addr, node: node(*addr) };
        self.seeking.bootstrap = bootstrap.iter().take(BOOTSTRAP_MAX).map(entry).collect();
        self.seek_soon();
    }

    /// A node answered our call at this address.
    pub(super) fn answered_at(&mut self, addr: SocketAddr, member: Member) {
        for entry in self.seeking.bootstrap.iter_mut().filter(|entry| entry.addr == addr) {
            entry.node = Some(member.identity.node);
        }
        self.met(member);
    }

    /// Schedules a search: this node may need more nodes, or none, after a change.
    pub(super) fn seek_soon(&mut self) {
        let nowhere = self.seeking.bootstrap.is_empty() && self.former.is_empty();
        let soon = self.now + LOOK_AFTER;
        if !nowhere && self.seeking.timer.is_none_or(|(at, _)| at > soon) {
            // One timer at a time: the later one would be another each time that the map changes.
            self.cancel(self.seeking.timer);
            self.seeking.timer = Some(self.set(LOOK_AFTER, Timer::Seek));
        }
    }

    /// Makes the calls that are due.
    pub(super) fn seek(&mut self) {
        self.seeking.timer = None;
        if self.leaving {
            return;
        }
        let (now, needy) = (self.now, self.is_needy());
        let since = if needy { self.seeking.needy_since.or(Some(now)) } else { None };
        if !needy {
            self.former.forget(now);
        }
        self.seeking.needy_since = since;
        let mut absent: BTreeMap<SocketAddr, Duration> =
            self.former.iter().map(|former| (former.identity.addr, now - former.at)).collect();
        if let Some(since) = since {
            absent.extend(self.seeking.bootstrap.iter().map(|entry| (entry.addr, now - since)));
        }
        for member in self.membership.live().values().chain([self.me()]) {
            absent.remove(&member.addr);
        }
        let slower = self.talk().max(absent.len() as u32 / CALLED_AT_FULL_PACE).max(1);
        let mut calls = BTreeMap::new();
        for (addr, age) in absent {
            // Nodes that miss the same one do not all call at once.
            let pause = (pause(age, needy) * slower).mul_f64(0.75 + (self.dice() % 512) as f64 / 1024.0);
            let due = self.seeking.calls.get(&addr).copied();
            if due.is_some_and(|due| due <= now) {
                self.out(Output::Call(addr));
            }
            let next = due.filter(|due| *due > now).map_or(now + pause, |due| due.min(now + pause));
            calls.insert(addr, next);
        }
        let next = calls.values().min().copied();
        self.seeking.calls = calls;
        self.seeking.timer = next.map(|at| self.set(at - now, Timer::Seek));
    }

    /// True if this node needs more nodes than it knows. It is alone, lacks chunks of an image, or
    /// none of its bootstrap addresses is a member. In a field of zones those may be in another
    /// zone, of which it knows few nodes.
    pub fn is_needy(&self) -> bool {
        let live = self.membership.live();
        if self.is_zoned() {
            return live.is_empty() && self.outside.contacts.is_empty();
        }
        let addrs: BTreeSet<SocketAddr> = live.values().map(|member| member.addr).gathered();
        let is_met = |entry: &BootstrapAddr| {
            let answered = entry.node.is_some_and(|node| live.contains_key(&node));
            answered || addrs.contains(&entry.addr) || entry.addr == self.me().addr
        };
        let unmet = !self.seeking.bootstrap.is_empty() && !self.seeking.bootstrap.iter().any(is_met);
        let lacks = self.images.values().any(|image| {
            let readable = image.origin || !image.map.origins().is_empty();
            !readable && !image.claimed_whole
        });
        live.is_empty() || unmet || lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_grow_rare_with_the_time_for_which_nobody_answers() {
        let seconds = |age: u64, needy| pause(Duration::from_secs(age), needy).as_millis();
        assert_eq!([seconds(0, false), seconds(60, false), seconds(3000, false)], [700, 7500, 30_000]);
        assert_eq!([seconds(0, true), seconds(60, true), seconds(3000, true)], [700, 700, 30_000]);
    }
}
