//! What a node has learned that outlives it: what machines read first of its images, and what its
//! link carries.

use super::Node;
use std::net::IpAddr;
use vfield_core::image::ImageId;
use vfield_core::prefetch::PrefetchList;

impl Node {
    /// How many machines have told what they read first of an image, this one among them, and what
    /// half of them agree on.
    pub fn learned(&self, image: ImageId) -> (usize, PrefetchList) {
        let me = self.driver.look(|core| core.me().node);
        self.driver.image(image).map(|image| image.learned().agreed(me)).unwrap_or_default()
    }

    /// The node's address in the field, and the bytes a second that its link carries, as this
    /// process measured it.
    pub fn measured_link(&self) -> Option<(IpAddr, u64)> {
        self.driver.look(|core| core.measured_bytes_per_s().map(|bytes_per_s| (core.me().addr.ip(), bytes_per_s)))
    }

    /// A number that rises whenever [`Self::learned`] may have changed; it costs less.
    pub fn learned_extent(&self, image: ImageId) -> u64 {
        self.driver.image(image).map_or(0, |image| image.learned().extent())
    }

    /// Takes the encoded list of an earlier process of this node, or of others, for the image that
    /// it is about.
    pub fn remember(&self, image: ImageId, list: Vec<u8>) {
        if let Some(image) = self.driver.image(image).filter(|_| self.driver.learns) {
            image.learned().remember(list);
        }
    }
}
