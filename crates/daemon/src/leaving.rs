//! How a daemon goes: what it hands over, and when it stays since the last copies would go with it.
//!
//! A signal ends the daemon in any case: a machine that shuts down asks nobody. An order (`vfield
//! leave`) is refused if chunks would be lost that others may want, unless it is forced. Called by
//! [`crate::run`] and the request handler.

use super::exports::Exports;
use super::images::Images;
use super::overlays::Overlays;
use super::signals::Signals;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use vfield_console::log::Console;
use vfield_control::message::{DrainLeft, Reply};
use vfield_control::shares::{apart_text, sole_text};
use vfield_node::Node;
use vfield_node::node::Leaving;

/// Threads that still hash or write when all else has ended get this long.
pub const LAST_THREADS: Duration = Duration::from_secs(1);

/// People wonder by then why the daemon does not end. A disk that works takes less for the changes
/// of a few seconds.
const SAID_AFTER: Duration = Duration::from_secs(3);

/// Time for other nodes to show what they hold. Eight chunks of each store that is needed take less
/// than a second on most links.
pub const SHOWN_WITHIN: Duration = Duration::from_secs(3);

/// An order to leave.
pub struct LeaveOrder {
    /// Maximum time to hand over.
    pub bound: Duration,
    /// True to leave although chunks are lost.
    pub force: bool,
    /// Takes the answer, if a client waits for one.
    pub tell: Option<oneshot::Sender<Reply>>,
}

impl LeaveOrder {
    /// Tells whoever gave it; they may have gone.
    pub fn answer(self, reply: Reply) {
        self.tell.map(|tell| tell.send(reply));
    }
}

/// The leave orders that the request handler takes.
pub struct Orders(mpsc::Receiver<LeaveOrder>);

impl Orders {
    /// One order waits at most.
    pub fn channel() -> (mpsc::Sender<LeaveOrder>, Self) {
        let (sender, orders) = mpsc::channel(1);
        (sender, Self(orders))
    }

    /// The next one; never returns when there cannot be any more.
    pub async fn next(&mut self) -> LeaveOrder {
        match self.0.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }
}

/// Hands over what only this node holds, and gives the order back if it may be obeyed. If not, the
/// node stays, and whoever gave the order has been told why.
pub async fn judge(node: &Node, order: LeaveOrder, signals: &mut Signals) -> Option<LeaveOrder> {
    if order.force || is_alone(node) {
        return Some(order);
    }
    tokio::select! {
        _ = node.hand_over(order.bound) => {}
        () = signals.end() => return Some(order),
    }
    let (sole, dependents) = (node.sole(), texts(node.dependents()));
    let (fact, hint) = if !sole.is_empty() {
        let lost = format!("{} would be lost with it", sole_text(&sole));
        (lost, "no other node holds these chunks: serve the file elsewhere, or enlarge other stores")
    } else if let Some(apart) = apart_text(&dependents) {
        (apart, "let these nodes reach the others, or serve the file elsewhere too")
    } else {
        return Some(order);
    };
    node.stay();
    let hint = format!("{hint}; `vfield leave --force` leaves anyway");
    order.answer(Reply::refused(format!("the node stays: {fact}"), hint));
    None
}

/// Hands over, while readers are still served.
pub async fn leave(node: &Node, bound: Duration, console: &Console) -> Leaving {
    let alone = is_alone(node);
    // The node keeps to the bound by itself; the rest is a margin for a hung node.
    let left = tokio::time::timeout(bound + LAST_THREADS, node.leave(bound)).await.unwrap_or_else(|_| {
        console.warn("the hand-over timed out");
        Leaving { handed_over: 0, lost: 0 }
    });
    // The last one takes the field with it: nobody is left who could miss anything.
    if alone { Leaving { lost: 0, ..left } } else { left }
}

/// Ends the exports, and puts on the disk what clients have written. Says so if that takes long.
pub async fn finish(exports: Option<Exports>, overlays: &Overlays, console: &Console) {
    let finishing = async {
        if let Some(exports) = exports {
            exports.stop(console).await;
        }
        overlays.close(console).await;
    };
    tokio::pin!(finishing);
    if tokio::time::timeout(SAID_AFTER, &mut finishing).await.is_err() {
        let what = if overlays.are_none() { "clients end" } else { "what clients wrote is on the disk" };
        console.warn(&format!("waiting until {what}; a signal ends the daemon without that"));
        finishing.await;
    }
}

/// Has peers ask the node last and the exports take no new clients, or as before. True if that is
/// news.
pub async fn drain(node: &Node, images: &Images, drains: bool) -> bool {
    images.shut(drains).await;
    let is_news = node.is_draining() != drains;
    node.drain(drains);
    is_news
}

/// What still hangs on a drained node once nothing should, or after `bound`.
pub async fn drained(node: &Node, images: &Images, bound: Duration) -> DrainLeft {
    let hanging = node.drained(bound).await;
    let reads = hanging.reads as u64;
    let dependents = texts(hanging.dependents);
    DrainLeft { images: hanging.sole, dependents, is_asked: hanging.is_asked, reads, clients: images.clients().await }
}

/// What would be lost if the daemon left now, before anything is handed over; nothing if it is the
/// last one.
pub async fn rehearse(node: &Node) -> Reply {
    let alone = is_alone(node);
    let images = if alone { Vec::new() } else { node.verified_sole(SHOWN_WITHIN).await };
    Reply::WouldLose { alone, images, dependents: texts(node.dependents()) }
}

fn texts(addresses: Vec<SocketAddr>) -> Vec<String> {
    addresses.into_iter().map(|addr| addr.to_string()).collect()
}

/// True if nobody else is there who could miss anything.
pub fn is_alone(node: &Node) -> bool {
    node.status().nodes.iter().all(|node| node.state == "self" || node.state == "unreachable")
}
