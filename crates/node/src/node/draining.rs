//! A drained node: peers ask it last, its store fetches no more, and what hangs on it can be seen.

use super::{LEAVE_POLL, Node, report};
use crate::status::Sole;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;
use vfield_core::node::{Input, Node as Core};

/// After this long without a request of a peer, all peers have heard that the node is drained:
/// gossip reaches a thousand nodes within a second.
const QUIET: Duration = Duration::from_secs(1);

/// What hangs on a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hanging {
    /// Data that no other node was seen to hold.
    pub sole: Vec<Sole>,
    /// Addresses of nodes that have no way to stores with the rest of an image whose only origin it
    /// is.
    pub dependents: Vec<SocketAddr>,
    /// True if peers ask this node, or did so a moment ago.
    pub is_asked: bool,
    /// Reads of this machine that wait for a chunk.
    pub reads: usize,
}

impl Hanging {
    /// True if nothing does.
    pub fn is_none(&self) -> bool {
        self.sole.is_empty() && self.dependents.is_empty() && !self.is_asked && self.reads == 0
    }
}

impl Node {
    /// Has peers ask this node last, and its store fetch no more; or takes that back.
    pub fn drain(&self, drains: bool) {
        self.driver.apply(Input::Drain(drains));
    }

    /// True while peers are to ask this node last.
    pub fn is_draining(&self) -> bool {
        self.driver.look(Core::is_draining)
    }

    /// The addresses of nodes that could not read all of an image if this node left: it is the only
    /// origin, and they have no way to stores with the rest.
    pub fn dependents(&self) -> Vec<SocketAddr> {
        self.driver.look(|core| {
            let dependents = core.dependents();
            let members = core.members().into_iter().filter(|member| dependents.contains(&member.identity.node));
            members.map(|member| member.identity.addr).collect()
        })
    }

    /// Waits until nothing hangs on a drained node, or it is drained no more, for at most `bound`.
    /// Returns what hangs on it then. The last node of a field has nobody who could take anything.
    pub async fn drained(&self, bound: Duration) -> Hanging {
        let end = Instant::now() + bound;
        let counters = &self.driver.counters;
        let (mut asked, mut since) = (counters.asked(), Instant::now());
        loop {
            let reads = self.driver.look(Core::waits_here);
            let now = counters.asked();
            if now != asked || counters.owes() {
                (asked, since) = (now, Instant::now());
            }
            let alone = self.driver.look(Core::is_alone);
            let sole = if alone { Vec::new() } else { report::sole(&self.driver) };
            let dependents = self.dependents();
            let hanging = Hanging { sole, dependents, is_asked: !alone && since.elapsed() < QUIET, reads };
            if hanging.is_none() || Instant::now() >= end || !self.is_draining() {
                return hanging;
            }
            // What others hold comes with gossip, of which no event tells.
            tokio::time::sleep(LEAVE_POLL).await;
        }
    }
}
