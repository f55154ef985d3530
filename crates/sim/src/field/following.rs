//! Machines that follow a tag: a shell joins the image that the tag names, and holds the others for
//! the tag only.

use super::{Event, Field};
use crate::machine::Fault;
use crate::reader::Order;
use vfield_core::image::ImageId;
use vfield_core::tag::Tag;

/// How the machines of a field follow its tag.
#[derive(Debug, Clone)]
pub struct Followers {
    /// Places whose operator asked for all images that the machine has, tag or not.
    pub wishes: Vec<u32>,
    /// Chunks of each image that the machine at each place holds.
    pub stores: Vec<u64>,
    /// The order in which a machine reads an image that it joins.
    pub order: Order,
    /// Blocks read at a time.
    pub depth: usize,
}

impl Field {
    /// A core has taken up a tag.
    pub(super) fn tagged(&mut self, machine: usize) {
        if self.followers.is_some() {
            self.queue.push(self.queue.now(), Event::Follow(machine as u32));
        }
    }

    /// The shell of a machine does what the latest tag says.
    pub(super) fn follow(&mut self, machine: usize) {
        let host = &self.machines[machine];
        let Some(followers) = self.followers.clone() else { return };
        // A machine that has not joined yet follows after that.
        let waits = self.arrivals.contains_key(&(machine as u32));
        if waits || !host.alive || host.fault == Fault::Paused {
            return;
        }
        let is_wished = followers.wishes.contains(&host.place);
        let (tags, node) = (host.node.tags().all(), host.identity.node);
        let tag: Option<Tag> = tags.map(|known| &known.tag).max_by_key(|tag| tag.serial).cloned();
        let Some(tag) = tag else { return };
        let here = |field: &Self, image: usize| field.machines[machine].shelf(image).map(|shelf| shelf.origin);
        for image in 0..self.images.len() {
            if here(self, image) == Some(false) && !is_wished {
                self.unwish(machine, image);
            }
        }
        let target: Option<ImageId> = tag.target(node).map(|version| version.image);
        let Some(image) = target.and_then(|id| self.images.iter().position(|image| image.id == id)) else { return };
        if here(self, image).is_none() {
            let place = self.machines[machine].place as usize;
            self.add_image(machine, image, false, followers.stores.get(place).copied().unwrap_or(0));
            if !is_wished {
                self.unwish(machine, image);
            }
            self.read_blocks(machine, image, followers.order, followers.depth);
        }
    }
}
