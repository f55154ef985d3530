//! Chunks that a peer waits for while they are read from an object or a disk: an origin's, or that
//! of a store.
//!
//! If the source keeps failing, the peer is told to ask others, in words that do not lay blame on
//! this node.

use super::super::answers::{Answer, Body};
use super::Serving;
use crate::driver::Reply;
use crate::image::LocalImage;
use crate::source::Away;
use std::sync::Arc;
use std::time::Instant;
use vfield_core::chunk::Chunk;
use vfield_core::image::ImageId;
use vfield_core::wire::Refusal;

/// An answer whose chunk came, or not.
#[derive(Debug)]
pub struct Brought {
    answer: Answer,
    image: ImageId,
    since: Instant,
    result: Result<(), Away>,
}

impl Serving<'_> {
    /// Has a chunk brought, for the answer to a request that was taken in.
    pub(super) fn bring(&mut self, image: Arc<LocalImage>, chunk: Chunk, answer: Answer) {
        let (driver, id, request, since) = (Arc::clone(self.driver), self.id, answer.request, Instant::now());
        let brings = async move {
            let result = image.bring(chunk, answer.priority).await;
            let brought = Brought { answer, image: image.id(), since, result };
            driver.reply(id, Reply::Brought(brought));
        };
        self.waiting.begin(request, Box::pin(brings));
    }

    /// Queues the answer, unless the request was cancelled meanwhile.
    pub(super) fn brought(&mut self, Brought { mut answer, image, since, result }: Brought) {
        if !self.waiting.ended(answer.request) {
            return;
        }
        match result {
            Ok(()) => {
                if let Body::Chunk { waited, .. } = &mut answer.body {
                    *waited += since.elapsed();
                }
                self.serve(image, answer);
            }
            Err(Away::Changed) => self.answers.refuse(answer.request, Refusal::SourceChanged),
            Err(Away::Failing) => self.answers.refuse(answer.request, Refusal::Busy),
        }
    }
}
