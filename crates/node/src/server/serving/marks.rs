//! A peer's requests in a trace: when each comes, when its turn comes, and when it is answered.
//!
//! While nobody records, each of them costs one load of an atomic.

use super::super::answers::{Answer, Body};
use super::Serving;
use crate::driver::Driver;
use crate::trace::{Did, priority_word};
use vfield_core::chunk::Chunk;
use vfield_core::fetch::ConnectionId;
use vfield_core::image::ImageId;
use vfield_core::wire::Priority;

impl Serving<'_> {
    /// The peer asks for a chunk.
    pub(super) fn mark_ask(&self, request: u64, of: (ImageId, Chunk), priority: Priority) {
        if self.driver.tracer.is_on() {
            let (connection, peer, priority) = (self.id.0, self.peer.addr, priority_word(priority));
            mark(self.driver, Some(of), Did::PeerAsks { connection, request, peer, priority });
        }
    }

    /// The turn of an answer has come. The request's number if it is one that asked for a chunk.
    pub(super) fn mark_turn(&self, answer: &Answer) -> Option<u64> {
        let request = answer.request;
        let answers =
            matches!(answer.body, Body::Chunk { .. } | Body::Slice { .. } | Body::Refusal(_) | Body::Redirect(_));
        let marked = self.driver.tracer.is_on() && answers;
        marked.then(|| mark(self.driver, None, Did::Sending { connection: self.id.0, request }));
        marked.then_some(request)
    }
}

/// The kernel has all of an answer.
pub(super) fn sent(driver: &Driver, connection: ConnectionId, request: u64, bytes: u64) {
    if driver.tracer.is_on() {
        mark(driver, None, Did::Sent { connection: connection.0, request, bytes });
    }
}

fn mark(driver: &Driver, of: Option<(ImageId, Chunk)>, did: Did) {
    driver.tracer.note(driver.now(), of, did);
}
