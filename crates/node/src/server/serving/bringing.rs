//! Chunks that a peer waits for while an origin reads them from its object.
//!
//! If the store keeps failing, the peer is told to ask others, in words that do not lay blame on
//! this node.

use super::super::answers::{Answer, Body};
use super::Serving;
use crate::driver::Reply;
use crate::image::LocalImage;
use crate::object_origin::Away;
use std::sync::Arc;
use std::time::Instant;
use vfield_core::chunk::Chunk;
use vfield_core::image::ImageId;
use vfield_core::wire::{FrameHeader, Priority, Refusal};

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

impl Serving<'_> {
    /// Has a chunk brought, for a request that was taken in.
    pub(super) fn bring(&mut self, image: &LocalImage, header: FrameHeader, chunk: Chunk) {
        let Some(object) = image.object().cloned() else { return };
        let FrameHeader { request, priority, .. } = header;
        let (driver, id, image, since) = (Arc::clone(self.driver), self.id, image.id(), Instant::now());
        let brings = async move {
            let result = object.bring(chunk).await;
            driver.reply(id, Reply::Brought(Brought { request, priority, image, chunk, since, result }));
        };
        self.waiting.begin(request, Box::pin(brings));
    }

    /// Queues the answer, unless the request was cancelled meanwhile.
    pub(super) fn brought(&mut self, brought: Brought) {
        let Brought { request, priority, image, chunk, since, result } = brought;
        if !self.waiting.ended(request) {
            return;
        }
        match result {
            Ok(()) => {
                let body = Body::Chunk { image, chunk, waited: since.elapsed() };
                self.serve(image, Answer { request, priority, body });
            }
            Err(Away::Changed) => self.answers.refuse(request, Refusal::SourceChanged),
            Err(Away::Failing) => self.answers.refuse(request, Refusal::Busy),
        }
    }
}
