//! The end of an image on this node: waiting readers get an error, and other members hear of it.
//!
//! Invariant: nothing begun for the image affects another image, or the same image joined again.
//! Its number is never reused and means no image from then on. So queues, parked chunks, timers and
//! answers that still name it lead nowhere.

use super::Node;
use crate::fetch::{Asker, RequestId};
use crate::image::ImageId;
use crate::placement::{Arc, Filled};
use crate::record::{RECORDS_OF_ONE_MAX, Record, RecordKey};
use crate::signing::Signature;
use crate::wire::Refusal;

/// The id behind a dropped image's number. No image has it, since ids are hashes.
pub(super) const NONE: ImageId = ImageId([0xFF; 32]);

impl Node {
    /// True if others would hear of one more image. They keep a bounded number of records of one
    /// node, those of dropped images included.
    pub fn may_add(&self, image: ImageId) -> bool {
        let (node, records) = (self.me().node, self.membership.records());
        records.of(node).len() < RECORDS_OF_ONE_MAX || records.get(&RecordKey { node, image }).is_some()
    }

    /// Ends an image on this node; see [`super::Input::Drop`].
    pub(super) fn drop_image(&mut self, id: ImageId) {
        let Some(image) = self.images.remove(&id) else { return };
        let number = image.number;
        let open = self.requests.iter().filter(|(_, request)| request.image == number);
        let open: Vec<RequestId> = open.map(|(request, _)| RequestId(request)).collect();
        for request in open {
            self.orphan(request);
        }
        for (chunk, fetch) in self.fetches.end_all(number) {
            self.cancel(fetch.timer());
            let askers: Vec<Asker> = fetch.askers.iter().map(|(asker, _)| *asker).collect();
            self.refuse(askers, (number, chunk), Refusal::NoSuchImage);
        }
        self.slices.drop_image(number);
        self.peers.drop_image(number);
        self.bounds.drop_image(number);
        self.end_reads(id);
        self.numbered[number.0 as usize] = NONE;
        let record = Record {
            node: self.me().node,
            version: image.version,
            progress: 0,
            subject: image.subject,
            origin: false,
            arc: Arc::default(),
            filled: Filled::default(),
            leaving: true,
            signature: Signature::default(),
        };
        let effects = self.membership.announce(record, self.now);
        self.apply(effects);
        self.announce_outside();
    }
}
