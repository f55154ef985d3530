//! The limits of a node's traffic, and of single images; see [`crate::limits`].

use super::Node;
use crate::limits::Rates;
use std::time::Duration;
use vfield_core::image::ImageId;

impl Node {
    /// Limits the traffic with other nodes from now on.
    pub fn limit(&self, rates: Rates) {
        self.driver.limit(rates);
    }

    /// Limits the traffic of single images from now on, by any of their names; other images have no
    /// limit of their own. It also counts for images that are added later.
    pub fn limit_images(&self, rates: Vec<(String, Rates)>) {
        self.driver.limit_images(rates);
    }

    /// The limits in force of an image, and for how long each held bytes back, up and down. `None`
    /// if the image is not one of this node's.
    pub fn image_limits(&self, id: ImageId) -> Option<(Rates, [Duration; 2])> {
        let image = self.driver.image(id)?;
        let held = self.driver.look(|core| core.held_back(id));
        Some((self.driver.limits.of_image(image.names()), [image.limit().held(), held]))
    }

    /// The limits in force, and for how long each held bytes back, up and down.
    pub fn limits(&self) -> (Rates, [Duration; 2]) {
        let limits = &self.driver.limits;
        (limits.rates(), [limits.up.held(), limits.down.held()])
    }
}
