//! Chunks that a peer waits for while an origin reads them from its object.
//!
//! Invariant: each request in the table has one task, and gets one answer: at the end of the task,
//! or at its cancellation. The peer hears signs of life meanwhile. If the store keeps failing, the
//! peer is told to ask others, in words that do not lay blame on this node. The end of the
//! connection ends the tasks.

use super::super::answers::{Answer, Body};
use super::Serving;
use crate::driver::Reply;
use crate::image::LocalImage;
use crate::object_origin::Away;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::{AbortHandle, JoinSet};
use vfield_core::chunk::Chunk;
use vfield_core::image::ImageId;
use vfield_core::wire::{FrameHeader, Priority, Refusal};

/// The requests of one connection that wait for an object.
#[derive(Debug, Default)]
pub struct Bringing {
    tasks: JoinSet<()>,
    requests: BTreeMap<u64, AbortHandle>,
}

/// A chunk that came, or not.
#[derive(Debug)]
pub struct Brought {
    request: u64,
    priority: Priority,
    image: ImageId,
    chunk: Chunk,
    since: Instant,
    result: Result<(), Away>,
}

impl Bringing {
    /// The asker wants it no more. True if it is still to be answered.
    pub fn cancel(&mut self, request: u64) -> bool {
        let task = self.requests.remove(&request);
        task.inspect(AbortHandle::abort).is_some()
    }
}

impl Serving<'_> {
    /// Has a chunk brought, for a request that was taken in.
    pub(super) fn bring(&mut self, image: &LocalImage, header: FrameHeader, chunk: Chunk) {
        let Some(object) = image.object().cloned() else { return };
        let FrameHeader { request, priority, .. } = header;
        let (driver, id, image, since) = (Arc::clone(self.driver), self.id, image.id(), Instant::now());
        // Ended tasks are forgotten here, so that the set stays as small as the table.
        while self.bringing.tasks.try_join_next().is_some() {}
        let task = self.bringing.tasks.spawn(async move {
            let result = object.bring(chunk).await;
            driver.reply(id, Reply::Brought(Brought { request, priority, image, chunk, since, result }));
        });
        self.bringing.requests.insert(request, task);
    }

    /// Queues the answer, unless the request was cancelled meanwhile.
    pub(super) fn brought(&mut self, brought: Brought) {
        let Brought { request, priority, image, chunk, since, result } = brought;
        if self.bringing.requests.remove(&request).is_none() {
            return;
        }
        match result {
            Ok(()) => {
                let body = Body::Chunk { image, chunk, waited: since.elapsed() };
                self.answers.push(Answer { request, priority, body });
            }
            Err(Away::Changed) => self.answers.refuse(request, Refusal::SourceChanged),
            Err(Away::Failing) => self.answers.refuse(request, Refusal::Busy),
        }
    }
}
