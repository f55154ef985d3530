//! Requests for chunks and slices: those that can be answered at once, and those that wait.
//!
//! Nothing here waits or reads bytes: an answer is made when its turn comes.

use super::super::answers::{Answer, Body};
use super::Serving;
use crate::image::LocalImage;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::Asker;
use vfield_core::image::ImageId;
use vfield_core::node::Input;
use vfield_core::reach::Reach;
use vfield_core::wire::{FrameHeader, Get, GetSlice, Priority, Refusal};

impl Serving<'_> {
    /// Queues the answer if the chunk is here. Else it is to be brought, or the core decides.
    pub(super) fn get(&mut self, header: FrameHeader, get: Get) {
        self.driver.counters.is_asked();
        self.answers.opened();
        self.mark_ask(header.request, (get.image, get.chunk), header.priority);
        let Some(image) = self.image(get.image) else {
            return self.answers.refuse(header.request, Refusal::NoSuchImage);
        };
        if image.geometry().chunk(get.chunk.0).is_none() {
            return self.answers.refuse(header.request, Refusal::NotHeld);
        }
        if let Some(node) = image.instead(get.chunk, self.peer.node, header.insists, self.driver.now()) {
            return self.answers.before(header.request, Body::Redirect(node));
        }
        let body = Body::Chunk { image: get.image, chunk: get.chunk, waited: Duration::ZERO };
        let answer = Answer { request: header.request, priority: header.priority, body };
        if self.is_to_be_brought(&image, get.chunk) {
            return self.bring(image, get.chunk, answer, get.reach);
        }
        self.answer_or_ask(&image, answer, get.reach);
    }

    /// Answers with bytes that are here. Without them the core decides about a chunk, and a slice
    /// is refused.
    pub(super) fn answer_or_ask(&mut self, image: &LocalImage, answer: Answer, reach: Reach) {
        let Answer { request, priority, .. } = answer;
        match answer.body {
            Body::Chunk { chunk, .. } if !is_here(image, chunk) => {
                let asker = Asker { connection: self.id, request, reach };
                self.driver.apply(Input::Asked { asker, image: image.id(), chunk, priority });
            }
            Body::Slice { chunk, .. } if !is_here(image, chunk) => self.answers.refuse(request, Refusal::NotHeld),
            _ => self.answer(image, answer),
        }
    }

    /// The peer has chunks. To an object's origin it says which ones it stores; the core of another
    /// node decides whether to ask for them.
    pub(super) fn here(&mut self, id: ImageId, mut chunks: Vec<Chunk>) {
        let Some(image) = self.image(id) else { return };
        let (peer, now) = (self.peer.node, self.driver.now());
        if image.source().is_none() {
            return self.driver.apply(Input::Here { from: peer, image: id, chunks });
        }
        if image.object().is_some() {
            // A peer that says it all the time holds the core up once for each frame.
            self.driver.look(|core| chunks.retain(|chunk| core.is_home(id, *chunk, peer)));
            chunks.into_iter().for_each(|chunk| image.stored_by(chunk, peer, now));
        }
    }

    /// Answers with a slice of a chunk that is here; an asker waits for no other chunk.
    pub(super) fn get_slice(&mut self, request: u64, GetSlice { image: id, chunk, slice }: GetSlice) {
        self.driver.counters.is_asked();
        self.answers.opened();
        self.mark_ask(request, (id, chunk), Priority::Demand);
        let Some(image) = self.image(id) else { return self.answers.refuse(request, Refusal::NoSuchImage) };
        if slice.length(image.geometry(), chunk).is_none() {
            return self.answers.refuse(request, Refusal::NotHeld);
        }
        let is_to_be_brought = self.is_to_be_brought(&image, chunk);
        if !is_to_be_brought && !is_here(&image, chunk) {
            return self.answers.refuse(request, Refusal::NotHeld);
        }
        if image.object().is_some_and(|object| object.is_away(chunk)) {
            return self.answers.refuse(request, Refusal::Whole);
        }
        let length_bytes = image.geometry().length(chunk);
        if !image.slices().may_send(chunk, length_bytes, slice.groups, self.driver.now()) {
            return self.answers.refuse(request, Refusal::Whole);
        }
        let answer = Answer { request, priority: Priority::Demand, body: Body::Slice { image: id, chunk, slice } };
        if is_to_be_brought {
            return self.bring(image, chunk, answer, Reach::HOLDER);
        }
        self.answer(&image, answer);
    }
}

/// True if a chunk can be answered from here. An origin that has lost the bytes says so when the
/// answer's turn comes.
fn is_here(image: &LocalImage, chunk: Chunk) -> bool {
    image.source().is_some() || image.store().is_resident(chunk) || image.store().is_zero(chunk)
}
