//! Chunks that a peer waits for while they are read from an object or a disk: an origin's, or that
//! of a store.
//!
//! If the source keeps failing, the peer is told to ask others, in words that do not lay blame on
//! this node. What an earlier process left on a disk may turn out not to be the chunk: then it is
//! asked for like any other.

use super::super::answers::{Answer, Body};
use super::Serving;
use crate::driver::Reply;
use crate::image::LocalImage;
use crate::source::Away;
use crate::survey;
use std::sync::Arc;
use std::time::Instant;
use vfield_core::chunk::Chunk;
use vfield_core::image::ImageId;
use vfield_core::reach::Reach;
use vfield_core::wire::Refusal;

/// An answer whose chunk came, or not.
#[derive(Debug)]
pub struct Brought {
    answer: Answer,
    reach: Reach,
    image: ImageId,
    since: Instant,
    result: Result<(), Away>,
}

impl Serving<'_> {
    /// True if a chunk is to be brought. If an earlier process left it in memory, it is checked.
    pub(super) fn is_to_be_brought(&self, image: &LocalImage, chunk: Chunk) -> bool {
        let chunks = chunk.0..chunk.0 + 1;
        if image.store().awaited(chunks.clone()).is_some() {
            return true;
        }
        survey::look_in_memory(self.driver, image, chunks);
        image.is_away(chunk)
    }

    /// Has a chunk brought, for the answer to a request that was taken in.
    pub(super) fn bring(&mut self, image: Arc<LocalImage>, chunk: Chunk, answer: Answer, reach: Reach) {
        let (driver, id, request, since) = (Arc::clone(self.driver), self.id, answer.request, Instant::now());
        let brings = async move {
            survey::look(&driver, &image, chunk.0..chunk.0 + 1).await;
            let result = image.bring(chunk, answer.priority).await;
            let brought = Brought { answer, reach, image: image.id(), since, result };
            driver.reply(id, Reply::Brought(brought));
        };
        self.waiting.begin(request, Box::pin(brings));
    }

    /// Queues the answer, unless the request was cancelled meanwhile.
    pub(super) fn brought(&mut self, Brought { mut answer, reach, image, since, result }: Brought) {
        if !self.waiting.ended(answer.request) {
            return;
        }
        match result {
            Ok(()) => {
                if let Body::Chunk { waited, .. } = &mut answer.body {
                    *waited += since.elapsed();
                }
                match self.image(image) {
                    Some(image) => self.answer_or_ask(&image, answer, reach),
                    None => self.answers.push(answer),
                }
            }
            Err(Away::Changed) => self.answers.refuse(answer.request, Refusal::SourceChanged),
            Err(Away::Failing) => self.answers.refuse(answer.request, Refusal::Busy),
        }
    }
}
