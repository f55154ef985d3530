//! The pending answers of a connection, demand answers first ([`SendQueue`]). It holds no chunk's
//! bytes.

use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;
use vfield_core::pursuit::Account;
use vfield_core::send_queue::SendQueue;
use vfield_core::slice::Slice;
use vfield_core::wire::{DialledBack, ListQuestion, Priority, Refusal};

/// An answer that waits for its turn.
#[derive(Debug)]
pub struct Answer {
    /// The asker's number.
    pub request: u64,
    /// As it asked.
    pub priority: Priority,
    /// The content of the answer.
    pub body: Body,
}

/// The content of an answer.
#[derive(Debug)]
pub enum Body {
    /// A chunk, looked up when its turn comes.
    Chunk {
        /// The image it belongs to.
        image: ImageId,
        /// The chunk, data or page.
        chunk: Chunk,
        /// How long the core waited for it.
        waited: Duration,
    },
    /// A slice of a chunk, made when its turn comes.
    Slice {
        /// The image it belongs to.
        image: ImageId,
        /// The chunk of data.
        chunk: Chunk,
        /// The part of it, and the pages above.
        slice: Slice,
    },
    /// What this node says of a chunk.
    Account(Account),
    /// A refusal of the chunk.
    Refusal(Refusal),
    /// The id of another node to ask instead.
    Redirect(NodeId),
    /// A snapshot of the field, taken when the answer's turn comes.
    Snapshot,
    /// The proof of an image.
    Proof(ImageId),
    /// The proof of an image's header.
    Header(ImageId),
    /// What machines read first of an image.
    PrefetchLists(ImageId),
    /// The admission list, for a node that asked with this question.
    AdmissionList(ListQuestion),
    /// The result of dialling back.
    DialledBack(DialledBack),
    /// A sign of life.
    Patience,
}

/// The answers of one connection.
#[derive(Debug, Default)]
pub struct Answers {
    queue: SendQueue<Answer>,
    /// Requests received and not answered yet, those with the core included.
    open: usize,
}

impl Answers {
    /// A request was taken in.
    pub fn opened(&mut self) {
        self.open += 1;
    }

    /// Requests taken in and not answered.
    pub const fn open(&self) -> usize {
        self.open
    }

    /// Queues an answer.
    pub fn push(&mut self, answer: Answer) {
        self.queue.push(answer.priority, answer);
    }

    /// Queues a refusal.
    pub fn refuse(&mut self, request: u64, refusal: Refusal) {
        self.before(request, Body::Refusal(refusal));
    }

    /// Queues an answer before all chunks. Like a refusal it is mostly short, and lets the asker go
    /// on.
    pub fn before(&mut self, request: u64, body: Body) {
        self.queue.push_first(Answer { request, priority: Priority::Demand, body });
    }

    /// Queues a sign of life, which answers nothing.
    pub fn beat(&mut self) {
        self.opened();
        self.before(0, Body::Patience);
    }

    /// The asker wants it no more: a refusal instead, so that every request has its answer.
    pub fn cancel(&mut self, request: u64) {
        let is_chunk = |answer: &&mut Answer| {
            answer.request == request && matches!(answer.body, Body::Chunk { .. } | Body::Slice { .. })
        };
        if let Some(answer) = self.queue.iter_mut().find(is_chunk) {
            answer.body = Body::Refusal(Refusal::NotHeld);
        }
    }

    /// The image, if the answer to send next is a chunk.
    pub fn next_chunk_of(&self) -> Option<ImageId> {
        match self.queue.front()?.body {
            Body::Chunk { image, .. } => Some(image),
            _ => None,
        }
    }

    /// The answer to send next.
    pub fn next(&mut self) -> Option<Answer> {
        let next = self.queue.pop()?;
        self.open = self.open.saturating_sub(1);
        Some(next)
    }
}
