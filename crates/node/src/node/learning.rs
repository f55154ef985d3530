//! What machines read first of a node's images, for its shell.

use super::Node;
use vfield_core::image::ImageId;
use vfield_core::prefetch::PrefetchList;

impl Node {
    /// How many machines have told what they read first of an image, this one among them, and what
    /// half of them agree on.
    pub fn learned(&self, image: ImageId) -> (usize, PrefetchList) {
        let me = self.driver.look(|core| core.me().node);
        self.driver.image(image).map(|image| image.learned().agreed(me)).unwrap_or_default()
    }

    /// Takes the encoded list of an earlier process of this node, or of others, for the image that
    /// it is about.
    pub fn remember(&self, image: ImageId, list: Vec<u8>) {
        if let Some(image) = self.driver.image(image).filter(|_| self.driver.learns) {
            image.learned().remember(list);
        }
    }
}
