//! Who keeps the memory of stores while no daemon runs: somebody outside, who gives it to the next process of this node.
//!
//! Owns what was handed over until an image asks for it. What nobody can use, or nobody asks for, is given up
//! with a word about it, and kept no longer. Does not know how descriptors travel: [`Keeper`] does.

use crate::naming::Known;
use crate::store::found::Found;
use crate::store::label::Label;
use crate::store::{Kept, Store};
use std::fmt::Debug;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use vfield_core::image::{Header, ImageId};

/// Somebody who outlives this process: a guard, a service manager.
pub trait Keeper: Debug + Send + Sync {
    /// What it has kept, each with the name under which it was given; nothing the second time.
    fn take(&self) -> Vec<(String, OwnedFd)>;
    /// Gives it a file to keep until it is forgotten, in place of another one of that name.
    fn keep(&self, name: &str, file: BorrowedFd<'_>);
    /// It need not keep that file any more.
    fn forget(&self, name: &str);
}

/// What is kept for this node's stores.
#[derive(Debug)]
pub struct KeptStores {
    keeper: Option<Arc<dyn Keeper>>,
    stores: Vec<(String, Kept)>,
    /// What was given up, and why, in words.
    pub refused: Vec<String>,
}

impl KeptStores {
    /// All that `keeper` has.
    pub fn take(keeper: Option<Arc<dyn Keeper>>) -> Self {
        let mut kept = Self { keeper, stores: Vec::new(), refused: Vec::new() };
        let files = kept.keeper.as_ref().map_or_else(Vec::new, |keeper| keeper.take());
        for (name, file) in files {
            match Kept::read(file) {
                Ok(store) => kept.stores.push((name, store)),
                Err(why) => kept.refuse(&name, &why.to_string()),
            }
        }
        kept
    }

    /// Nothing: for an image that comes or goes when all that was kept has been used or given up.
    pub const fn of_none(keeper: Option<Arc<dyn Keeper>>) -> Self {
        Self { keeper, stores: Vec::new(), refused: Vec::new() }
    }

    /// The memory of this image's store need not be kept any more.
    pub fn forget(&self, id: ImageId) {
        if let Some(keeper) = &self.keeper {
            keeper.forget(&name_of(id));
        }
    }

    /// The images of which something is kept.
    pub fn known(&self) -> Vec<Known> {
        let known = |label: &Label| Known { id: label.id, names: label.names.clone(), header: label.header };
        self.stores.iter().map(|(_, kept)| known(kept.label())).collect()
    }

    /// The store of this image, if there is one, and what was found in it.
    pub fn of(&mut self, id: ImageId, header: &Header) -> Option<(Arc<Store>, Found)> {
        let fits = |(_, kept): &(String, Kept)| kept.label().id == id && kept.label().header == *header;
        let at = self.stores.iter().position(fits)?;
        let (name, kept) = self.stores.remove(at);
        Store::take_over(kept).inspect_err(|why| self.refuse(&name, &why.to_string())).ok()
    }

    /// From now on this store's memory is kept, if there is somebody to do so.
    pub fn keep(&self, store: &Store) {
        if let Some(keeper) = &self.keeper {
            keeper.keep(&name_of(store.id()), store.file().as_fd());
        }
    }

    /// All images have what is theirs: the rest is given up.
    pub fn drop_rest(&mut self) {
        for (name, kept) in std::mem::take(&mut self.stores) {
            let label = kept.label();
            self.refuse(&name, &format!("{} ({}) is not joined any more", label.names, label.id.short()));
        }
    }

    fn refuse(&mut self, name: &str, why: &str) {
        self.refused.push(format!("the memory that was kept as {name} is not used: {why}"));
        if let Some(keeper) = &self.keeper {
            keeper.forget(name);
        }
    }
}

fn name_of(id: ImageId) -> String {
    format!("store-{}", id.short())
}
