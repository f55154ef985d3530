//! Answers within the limit of their image.
//!
//! An answer is queued once the limit lets all of it go. Until then it waits beside the connection,
//! so that those of other images pass it. The peer is told how long that took, as for a chunk that
//! the core had to wait for: the node's links are not slow.

use super::super::answers::{Answer, Body};
use super::Serving;
use crate::driver::Reply;
use crate::image::LocalImage;
use std::sync::Arc;
use std::time::Instant;

/// An answer that may go, and since when it waited.
#[derive(Debug)]
pub struct Freed {
    answer: Answer,
    since: Instant,
}

impl Serving<'_> {
    /// Queues an answer with bytes of an image as soon as that image's limit allows.
    pub(super) fn answer(&mut self, image: &LocalImage, answer: Answer) {
        let limit = image.limit();
        let bytes = bytes(image, &answer.body);
        if !limit.is_limited() || limit.try_whole_turn(bytes) {
            return self.answers.push(answer);
        }
        let request = answer.request;
        let (driver, id, limit, since) = (Arc::clone(self.driver), self.id, Arc::clone(limit), Instant::now());
        let held = async move {
            limit.whole_turn(answer.priority, bytes).await;
            driver.reply(id, Reply::Freed(Freed { answer, since }));
        };
        self.waiting.begin(request, Box::pin(held));
    }

    /// Queues an answer that its limit lets go, unless it was cancelled meanwhile.
    pub(super) fn freed(&mut self, Freed { mut answer, since }: Freed) {
        if !self.waiting.ended(answer.request) {
            return;
        }
        if let Body::Chunk { waited, .. } = &mut answer.body {
            *waited += since.elapsed();
        }
        self.answers.push(answer);
    }
}

/// The bytes of an answer that count, as long as nothing is compressed.
fn bytes(image: &LocalImage, body: &Body) -> u64 {
    match body {
        Body::Chunk { chunk, .. } => image.geometry().length(*chunk),
        Body::Slice { chunk, slice, .. } => slice.length(image.geometry(), *chunk).unwrap_or_default() as u64,
        _ => 0,
    }
}
