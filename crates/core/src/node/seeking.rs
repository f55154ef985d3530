//! Seeking: addresses at which somebody of the field may be are called until somebody is.
//!
//! A node knows two kinds of them: those of former members, of whom each may be started again without knowing whom to join; and
//! its doors, the addresses that it was told to join through. Whoever answers a call says who it is, and both compare notes.
//! A call costs a connection, so calls grow rare with the time for which nobody has answered, and in a large field each node
//! calls more seldom. Decides when and where; [`Output::Call`] does it.

use super::{Node, Output, Timer, TimerKey};
use crate::config::SYNC_EVERY_EARLY;
use crate::identity::{Identity, NodeId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// The first pause between two calls, and that of a node in need.
const PAUSE_FIRST: Duration = SYNC_EVERY_EARLY;
/// The longest pause, in a small field: a machine that is back is found within this.
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// A pause is this part of the time for which nobody has answered: whoever was away for a minute is found 8 s later at most.
const PAUSE_PART: u32 = 8;
/// A node in need calls at the first pace for so long: a switch restarts within this.
const HURRY_FOR: Duration = Duration::from_secs(300);
/// So many addresses are called at the pace above; twice as many, each half as often.
const CALLED_AT_FULL_PACE: u32 = 8;
/// More doors are not tried: one that opens is enough.
const DOORS_MAX: usize = 64;
/// What follows one upon another in this time is looked at once.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// An address that the node was told to join through.
#[derive(Debug)]
struct Door {
    addr: SocketAddr,
    /// Who answered there last; others may know it by another address.
    node: Option<NodeId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Seeking {
    doors: Vec<Door>,
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
    /// Takes note of its doors.
    pub(super) fn look_behind(&mut self, doors: &[SocketAddr]) {
        self.seeking.doors = doors.iter().take(DOORS_MAX).map(|addr| Door { addr: *addr, node: None }).collect();
        self.seek_soon();
    }

    /// Somebody greeted us where we called.
    pub(super) fn answered_at(&mut self, addr: SocketAddr, identity: Identity) {
        for door in self.seeking.doors.iter_mut().filter(|door| door.addr == addr) {
            door.node = Some(identity.node);
        }
        self.met(identity);
    }

    /// Something has changed that may make this node look for others, or look no more.
    pub(super) fn seek_soon(&mut self) {
        let nowhere = self.seeking.doors.is_empty() && self.former.is_empty();
        let soon = self.now + LOOK_AFTER;
        if !nowhere && self.seeking.timer.is_none_or(|(at, _)| at > soon) {
            // One timer at a time: the later one would be another each time that the map changes.
            if let Some(later) = self.seeking.timer.take() {
                self.timers.remove(&later);
            }
            self.seeking.timer = Some(self.set(LOOK_AFTER, Timer::Seek));
        }
    }

    /// Calls whom it is time to call.
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
            absent.extend(self.seeking.doors.iter().map(|door| (door.addr, now - since)));
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

    /// True if this node needs others than it has: it is alone, or lacks chunks of an image, or nobody whom it was told to join
    /// through is there. In a field of zones the others may be of another zone, of whom it knows few.
    fn is_needy(&self) -> bool {
        let live = self.membership.live();
        if self.is_zoned() {
            return live.is_empty() && self.outside.contacts() == 0;
        }
        let addrs: BTreeSet<SocketAddr> = live.values().map(|member| member.addr).collect();
        let opens = |door: &Door| {
            let answered = door.node.is_some_and(|node| live.contains_key(&node));
            answered || addrs.contains(&door.addr) || door.addr == self.me().addr
        };
        let locked_out = !self.seeking.doors.is_empty() && !self.seeking.doors.iter().any(opens);
        let lacks = self.images.values().any(|image| {
            let readable = image.origin || !image.map.origins().is_empty();
            !readable && !image.told_covered
        });
        live.is_empty() || locked_out || lacks
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
