//! The limits in force: what connections keep to, and what the core knows of them.

use super::Driver;
use crate::image::LocalImage;
use crate::limits::Rates;
use std::sync::Arc;
use vfield_core::node::Input;
use vfield_core::speed::LinkBounds;

impl Driver {
    /// Limits the traffic with other nodes from now on.
    pub fn limit(self: &Arc<Self>, rates: Rates) {
        self.limits.set(rates);
        self.apply(Input::Bounds(rates.into()));
    }

    /// Limits the traffic of single images from now on, by any of their names; others have no
    /// limit of their own.
    pub fn limit_images(self: &Arc<Self>, rates: Vec<(String, Rates)>) {
        self.limits.set_images(rates);
        for image in self.images() {
            self.apply(Input::BoundsOf(image.id(), self.bounds_of(&image)));
        }
    }

    /// Sets the limit of an image's answers, and returns the bounds for the core.
    pub(super) fn bounds_of(&self, image: &LocalImage) -> LinkBounds {
        let rates = self.limits.of_image(image.names());
        image.limit().set(rates.up);
        rates.into()
    }
}
