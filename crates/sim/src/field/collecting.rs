//! Images that nobody needs: a machine's shell tells its core who reads, and takes images away.

use super::{Event, Field};
use crate::checks;
use vfield_core::image::ImageId;
use vfield_core::node::Input;
use vfield_core::rubbish::Uses;

impl Field {
    /// The machine has an image for a tag, and not because its operator asked for it.
    pub fn unwish(&mut self, machine: usize, image: usize) {
        if let Some(shelf) = self.machines[machine].shelf_mut(image) {
            shelf.unwished = true;
        }
        self.tell_uses(machine, image);
    }

    /// True if a reader of the machine is not done with an image.
    pub fn is_open(&self, machine: usize, image: usize) -> bool {
        let readers = self.machines[machine].readers.iter().map(|reader| &self.readers[*reader as usize]);
        readers.filter(|reader| reader.image == image).any(|reader| reader.failed.is_none() && !reader.is_done())
    }

    /// Tells a core whether its readers have an image open, if that matters.
    pub(super) fn tell_uses(&mut self, machine: usize, image: usize) {
        if self.machines[machine].shelf(image).is_some_and(|shelf| shelf.unwished) {
            let uses = Uses { wished: false, pinned: false, open: self.is_open(machine, image) };
            let input = Input::Used { image: self.images[image].id, uses };
            self.queue.push(self.queue.now(), Event::Tell(machine as u32, Box::new(input)));
        }
    }

    /// Notes since when a core has needed each of its images.
    pub(super) fn note_needs(&mut self, machine: usize) {
        let now = self.queue.now();
        for image in 0..self.images.len() {
            let (id, host) = (self.images[image].id, &mut self.machines[machine]);
            let needed = host.node.need_for(id).is_some();
            if let Some(shelf) = host.shelf_mut(image) {
                shelf.needed_since = if needed { shelf.needed_since.or(Some(now)) } else { None };
            }
        }
    }

    /// The shell takes an image away, unless a reader has come.
    pub(super) fn discard(&mut self, machine: usize, id: ImageId) {
        let image = self.image(id);
        if self.is_open(machine, image) {
            return self.tell_uses(machine, image);
        }
        if self.machines[machine].node.may_discard(id) {
            self.note(machine, "discards", [image as u64, 0]);
            if let Err(violation) = checks::Checks::before_discard(self, machine, image) {
                self.found(violation);
            }
            self.machines[machine].shelves[image] = None;
            // Their answers come to nothing, also if the machine joins the image again.
            self.machines[machine].flights.cancel_image(image as u16);
            self.input(machine, Input::Drop(id));
        }
    }
}
