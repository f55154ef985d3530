//! Turns: two nodes that replace each other at one address again and again.
//!
//! Of two processes at an address the one that spoke last is real. If two machines were given the
//! same address, each speaks again, so the room takes them for replaced several times a second.
//! That is said once, in words that help, and not by two lines each time.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use vfield_core::identity::NodeId;

/// A node that is replaced twice within this time takes turns with another. A process that is
/// started anew is another node.
const WITHIN: Duration = Duration::from_secs(60);
/// After this long it is said again.
const SAID_FOR: Duration = Duration::from_secs(3600);
/// Most replaced nodes and addresses remembered.
const MOST: usize = 32;

/// Nodes that were replaced, and addresses at which some take turns.
#[derive(Debug, Default)]
pub struct Turns(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    replaced: VecDeque<(SocketAddr, NodeId, Instant)>,
    said: BTreeMap<SocketAddr, Instant>,
}

impl Turns {
    /// Notes that a node was replaced by another one at its address. Returns what to say if it is
    /// to be said now that they take turns.
    pub fn replaced(&self, addr: SocketAddr, node: NodeId, now: Instant) -> Option<String> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let again = seen.replaced.iter().any(|(there, who, at)| (*there, *who) == (addr, node) && now - *at < WITHIN);
        seen.replaced.truncate(MOST - 1);
        seen.replaced.push_front((addr, node, now));
        seen.said.retain(|_, at| now - *at < SAID_FOR);
        let news = again && !seen.said.contains_key(&addr) && seen.said.len() < MOST;
        news.then(|| {
            seen.said.insert(addr, now);
            format!("two nodes take turns at {addr}: do two machines have this address?")
        })
    }

    /// True if that was said of this address.
    pub fn are_taken(&self, addr: SocketAddr) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).said.contains_key(&addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_take_turns_are_told_once_an_hour() {
        let (turns, start) = (Turns::default(), Instant::now());
        let [here, there] = [7, 8].map(|host| SocketAddr::from(([192, 168, 1, host], 4440)));
        let at = |secs| start + Duration::from_secs(secs);
        // Three processes, one after the other, and one of another machine.
        let processes = [(here, 1, 0), (here, 2, 1), (here, 3, 2), (there, 1, 3)];
        assert!(processes.iter().all(|(addr, node, secs)| turns.replaced(*addr, NodeId(*node), at(*secs)).is_none()));
        assert!(turns.replaced(here, NodeId(1), at(61)).is_none(), "that was long ago");
        assert!(turns.replaced(here, NodeId(2), at(62)).is_none());
        assert!(!turns.are_taken(here));
        let text = turns.replaced(here, NodeId(1), at(63)).expect("the second time");
        assert_eq!(text, "two nodes take turns at 192.168.1.7:4440: do two machines have this address?");
        assert!(turns.are_taken(here) && !turns.are_taken(there));
        for secs in 64..3660 {
            assert!(turns.replaced(here, NodeId(secs % 2), at(secs)).is_none());
        }
        assert!(turns.replaced(here, NodeId(1), at(3664)).is_some());
    }

    #[test]
    fn whoever_invents_addresses_fills_a_table_and_no_log() {
        let (turns, now) = (Turns::default(), Instant::now());
        let told = (0..10_000u16).filter(|port| {
            let addr = SocketAddr::from(([192, 168, 1, 7], *port));
            turns.replaced(addr, NodeId(1), now);
            turns.replaced(addr, NodeId(1), now).is_some()
        });
        assert_eq!(told.count(), MOST);
        assert_eq!(turns.0.lock().unwrap().replaced.len(), MOST);
    }
}
