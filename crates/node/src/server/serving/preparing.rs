//! The bytes of answers, made when their turn comes.
//!
//! A chunk that is not here any more becomes a refusal. Nothing here waits.

use super::super::answers::{Answer, Body};
use super::super::outgoing::Outgoing;
use super::{LONG, Serving};
use crate::codec;
use crate::compression::Compressed;
use crate::image::{Local, LocalImage};
use crate::learned;
use crate::slices;
use std::sync::Arc;
use std::time::Instant;
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::image::ImageId;
use vfield_core::wire::{self, Codec, FrameHeader, Kind, ListQuestion, Proof, Refusal};

impl Serving<'_> {
    /// Gets the bytes of the next answer.
    pub(super) fn prepare(&mut self, answer: Answer) -> Outgoing {
        let request = answer.request;
        match answer.body {
            Body::Patience => Outgoing::frame(FrameHeader::new(Kind::Patience, 0, 0).encode().to_vec()),
            Body::DialledBack(what) => Outgoing::frame(wire::dialled_back_frame(request, what)),
            Body::Redirect(node) => Outgoing::frame(wire::redirect_frame(request, node)),
            Body::Account(account) => Outgoing::frame(wire::account_frame(request, &account)),
            Body::Refusal(refusal) => Outgoing::refusal(request, refusal),
            Body::Snapshot => self.snapshot(request),
            Body::Proof(image) => {
                let proof = self.proof(image);
                let frame = proof.map(|proof| Outgoing::frame(wire::proof_frame(request, &proof)));
                frame.unwrap_or_else(|| Outgoing::refusal(request, Refusal::NotHeld))
            }
            Body::Header(image) => self.header(request, image),
            Body::PrefetchLists(image) => match learned::told(self.driver, image) {
                Some(lists) => Outgoing::frame(wire::prefetch_lists_frame(request, &lists)),
                None => Outgoing::refusal(request, Refusal::NotHeld),
            },
            Body::AdmissionList(question) => self.admission_list(request, &question),
            Body::Slice { image, chunk, slice } => {
                let found = self.image(image).map(|image| slices::answer(&image, chunk, slice));
                local(request, found, |piece| Outgoing::slice(request, piece))
            }
            Body::Chunk { image, chunk, waited } => {
                let Some(image) = self.image(image) else { return Outgoing::refusal(request, Refusal::NoSuchImage) };
                let plain = image.geometry().length(chunk);
                let found = self.find_compressed(&image, chunk).map_or_else(|| Err(image.chunk(chunk)), Ok);
                if image.object().is_some() && matches!(found, Ok(_) | Err(Local::Here(_))) {
                    let peer = self.peer.node;
                    let is_home = self.driver.look(|core| core.is_home(image.id(), chunk, peer));
                    image.sent(chunk, peer, is_home, self.driver.now());
                }
                let compressed = |compressed| Outgoing::compressed(request, compressed, plain, waited);
                let outgoing = match found {
                    Ok(found) => compressed(found),
                    Err(found) => local(request, Some(found), |piece| match self.compress(&image, chunk, &piece) {
                        Some(made) => compressed(made),
                        None => Outgoing::chunk(request, piece, waited),
                    }),
                };
                // The limit of the image counted the plain chunk.
                image.limit().give_back(plain.saturating_sub(outgoing.payload_bytes()));
                outgoing
            }
        }
    }

    /// A compressed chunk as it came, or as it lies in the store, if the peer takes it so. Plain
    /// chunks are less work on a fast link: there it is unpacked if it lies in the store.
    fn find_compressed(&self, image: &LocalImage, chunk: Chunk) -> Option<Compressed> {
        if !image.geometry().is_data(chunk) || !self.takes(Codec::Lz4) {
            return None;
        }
        let stored = || self.backlog.codec(Instant::now()).and_then(|_| image.store().find_compressed(chunk));
        image.compression().find(chunk).or_else(stored).filter(|found| self.takes(found.codec))
    }

    /// Compresses a chunk if the link is slow.
    fn compress(&self, image: &LocalImage, chunk: Chunk, piece: &Piece) -> Option<Compressed> {
        if !image.geometry().is_data(chunk) {
            return None;
        }
        let worth = self.backlog.codec(Instant::now())?;
        let codec = [worth, Codec::Lz4].into_iter().find(|codec| self.takes(*codec) && codec::makes(*codec))?;
        image.compression().make(codec, chunk, piece)
    }

    fn takes(&self, codec: Codec) -> bool {
        self.takes_since >= codec.since()
    }

    /// The next proof of an image for this peer; none after the last, then the first again.
    fn proof(&mut self, image: ImageId) -> Option<Arc<Proof>> {
        let number = self.proved.filter(|(last, _)| *last == image).map_or(0, |(_, number)| number);
        let proof = self.driver.proofs.of(image, number);
        self.proved = proof.is_some().then_some((image, number + 1));
        proof
    }

    /// The proof of an image's header, if this node has it or the top page.
    fn header(&mut self, request: u64, image: ImageId) -> Outgoing {
        let Some(image) = self.image(image) else { return Outgoing::refusal(request, Refusal::NoSuchImage) };
        let frame = image.header_proof().map(|proof| Outgoing::frame(wire::header_proof_frame(request, proof)));
        frame.unwrap_or_else(|| Outgoing::refusal(request, Refusal::NotHeld))
    }

    /// A snapshot of the field. If it is long, and as many others are being sent, the peer asks
    /// again later.
    fn snapshot(&mut self, request: u64) -> Outgoing {
        let frame = wire::snapshot_frame(
            Kind::Synced,
            request,
            self.driver.look(|core| core.snapshot(&self.peer, &self.known)),
        );
        self.long_frame(request, frame)
    }

    /// The admission list, if the peer's is older.
    fn admission_list(&mut self, request: u64, question: &ListQuestion) -> Outgoing {
        match self.driver.admissions.answer(question) {
            Some(verified) => self.long_frame(request, wire::list_frame(request, &verified.list)),
            None => Outgoing::refusal(request, Refusal::NotHeld),
        }
    }

    /// A frame that may be long.
    fn long_frame(&mut self, request: u64, frame: Vec<u8>) -> Outgoing {
        if frame.len() > LONG {
            self.going = self.long.frames.take(self.long.ip);
            if self.going.is_none() {
                return Outgoing::refusal(request, Refusal::Busy);
            }
        }
        Outgoing::frame(frame)
    }
}

/// The answer with local bytes, or a refusal that says why there are none.
fn local(request: u64, found: Option<Local>, answer: impl FnOnce(Piece) -> Outgoing) -> Outgoing {
    match found {
        Some(Local::Here(piece)) => answer(piece),
        Some(Local::SourceChanged) => Outgoing::refusal(request, Refusal::SourceChanged),
        // Evicted since it came: the asker asks again, and has nobody to blame.
        Some(Local::Away) => Outgoing::refusal(request, Refusal::Busy),
        Some(Local::Missing) => {
            // Dropped since it was promised: the asker may ask again, or elsewhere.
            tracing::trace!(request, "dropped before it was sent");
            Outgoing::refusal(request, Refusal::NotHeld)
        }
        None => Outgoing::refusal(request, Refusal::NoSuchImage),
    }
}
