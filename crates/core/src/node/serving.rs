//! Peers that want a chunk which is not here: relay it, or say no.

use super::{Node, Output};
use crate::chunk::Chunk;
use crate::config::HOPS_MAX;
use crate::fetch::Asker;
use crate::image::ImageId;
use crate::wire::{Priority, Refusal};

/// So many peers may wait for one chunk: more than a field has nodes in one zone.
const ASKERS_MAX: usize = 4096;

impl Node {
    pub(super) fn asked(&mut self, asker: Asker, id: ImageId, chunk: Chunk, priority: Priority) {
        match self.join(asker, id, chunk, priority) {
            Ok(true) => self.out(Output::Serve { asker, image: id, chunk, priority }),
            Ok(false) => {}
            Err(refusal) => self.out(Output::Refuse(asker, refusal)),
        }
    }

    /// True if it is here, false if the asker waits for it now.
    fn join(&mut self, asker: Asker, id: ImageId, chunk: Chunk, priority: Priority) -> Result<bool, Refusal> {
        let image = self.images.get_mut(&id).ok_or(Refusal::NoSuchImage)?;
        if image.inventory.geometry().chunk(chunk.0).is_none() {
            return Err(Refusal::NotHeld);
        }
        if image.inventory.is_here(chunk) {
            image.inventory.touch(chunk);
            return Ok(true);
        }
        let known = image.fetches.get(&chunk);
        if known.is_some_and(|fetch| fetch.askers.len() >= ASKERS_MAX) {
            return Err(Refusal::Busy);
        }
        // Whoever has been passed on far enough may only wait for what is surely coming.
        let may_join = known.is_some_and(|fetch| fetch.may_join(asker.hop));
        if (known.is_some() && !may_join) || (known.is_none() && asker.hop >= HOPS_MAX) || image.origin {
            return Err(Refusal::NotHeld);
        }
        self.want(id, chunk, priority);
        let fetch = self.images.get_mut(&id).and_then(|image| image.fetches.get_mut(&chunk)).ok_or(Refusal::NotHeld)?;
        fetch.hop = fetch.hop.max(asker.hop.saturating_add(1).min(HOPS_MAX));
        fetch.askers.push(asker);
        Ok(false)
    }

    /// Takes out askers that no longer wait. What is under way for them is kept when it comes: they, or
    /// others, will ask again.
    pub(super) fn forget_askers(&mut self, gone: impl Fn(&Asker) -> bool) -> Vec<Asker> {
        let fetches = self.images.values_mut().flat_map(|image| image.fetches.values_mut());
        fetches.flat_map(|fetch| fetch.askers.extract_if(.., |asker| gone(asker))).collect()
    }
}
