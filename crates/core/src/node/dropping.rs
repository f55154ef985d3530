//! The end of an image on this node: who waits for it is told so, the others that it is not here any more.
//!
//! Invariant: nothing that was begun for the image has an effect on another one, or on the same one that is taken up
//! again. Its number is never given again and from then on means no image, so lines, parked chunks, timers and
//! answers that still name it lead nowhere.

use super::{Node, Output};
use crate::fetch::{Asker, RequestId};
use crate::image::ImageId;
use crate::placement::{Arc, Filled};
use crate::record::{RECORDS_OF_ONE_MAX, Record, RecordKey};
use crate::wire::Refusal;

/// The id that a dropped image's number stands for: no image has it, since ids are hashes.
pub(super) const NONE: ImageId = ImageId([0xFF; 32]);

impl Node {
    /// True if the others would hear of one more image: they keep so many records of one node, also those of images that it
    /// has dropped.
    pub fn may_add(&self, image: ImageId) -> bool {
        let (node, records) = (self.me().node, self.membership.records());
        records.of(node).len() < RECORDS_OF_ONE_MAX || records.get(&RecordKey { node, image }).is_some()
    }

    /// See [`super::Input::Drop`].
    pub(super) fn drop_image(&mut self, id: ImageId) {
        let Some(image) = self.images.remove(&id) else { return };
        let number = image.number;
        let open = self.requests.iter().filter(|(_, request)| request.image == number);
        let open: Vec<RequestId> = open.map(|(request, _)| RequestId(request)).collect();
        for request in open {
            self.orphan(request);
        }
        for (chunk, fetch) in image.fetches {
            fetch.overdue_timer.map(|timer| self.timers.remove(&timer));
            let askers: Vec<Asker> = fetch.askers.iter().map(|(asker, _)| *asker).collect();
            askers.iter().for_each(|asker| self.asks.ended(asker, number, chunk));
            self.outputs.extend(askers.into_iter().map(|asker| Output::Refuse(asker, Refusal::NoSuchImage)));
        }
        self.end_reads(id);
        self.numbered[number.0 as usize] = NONE;
        let record = Record {
            node: self.me().node,
            version: image.version + 1,
            subject: image.subject,
            origin: false,
            arc: Arc::default(),
            filled: Filled::default(),
            leaving: true,
        };
        let effects = self.membership.announce(record, self.now);
        self.apply(effects);
        self.announce_outside();
    }
}
