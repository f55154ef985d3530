//! Keepers: an outside process that keeps the memory of stores while no daemon runs, for the next
//! one. Files on a disk keep themselves.
//!
//! This module owns the kept stores until an image claims them. It drops stores that are unusable
//! or unclaimed, and reports why. It does not know how descriptors travel: [`Keeper`] does.

use crate::disk::{self, Disk};
use crate::event::EventSink;
use crate::naming::Known;
use crate::store::found::Found;
use crate::store::label::Label;
use crate::store::{Kept, Store};
use std::fmt::Debug;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use vfield_core::image::{Header, ImageId};

/// A process that outlives this one: a guard, a service manager.
pub trait Keeper: Debug + Send + Sync {
    /// All kept files, each with its name; none at a second call.
    fn take(&self) -> Vec<(String, OwnedFd)>;
    /// Gives it a file to keep until it is forgotten, in place of another one of that name.
    fn keep(&self, name: &str, file: BorrowedFd<'_>);
    /// Drops the file of this name.
    fn forget(&self, name: &str);
    /// True if it keeps listening sockets too: the files of those with a path stay meanwhile.
    fn keeps_sockets(&self) -> bool {
        false
    }
}

/// The stores that an earlier process left.
#[derive(Debug)]
pub struct KeptStores {
    keeper: Option<Arc<dyn Keeper>>,
    disk: Option<Arc<Disk>>,
    stores: Vec<(String, Kept)>,
    /// Dropped stores with the reasons, for display.
    pub refused: Vec<String>,
}

impl KeptStores {
    /// Takes all stores from `disk`, then those from `keeper`.
    pub async fn take(keeper: Option<Arc<dyn Keeper>>, disk: Option<Arc<Disk>>, events: &EventSink) -> Self {
        let mut kept = Self::of_none(keeper, disk);
        let files = match &kept.disk {
            Some(disk) => disk.kept(events).await,
            None => Ok(Vec::new()),
        };
        match files {
            Ok(files) => files.into_iter().for_each(|(name, store)| match store {
                Ok(store) => kept.stores.push((name, store)),
                Err(why) => kept.refuse(&name, &why.to_string()),
            }),
            Err(error) => kept.refused.push(format!("the stores of an earlier process are not used: {error}")),
        }
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
    pub const fn of_none(keeper: Option<Arc<dyn Keeper>>, disk: Option<Arc<Disk>>) -> Self {
        Self { keeper, disk, stores: Vec::new(), refused: Vec::new() }
    }

    /// Drops the kept memory of this image's store, and its file.
    pub fn forget(&self, id: ImageId) {
        if let Some(disk) = &self.disk {
            disk.remove(&disk::name_of(id));
        }
        if let Some(keeper) = &self.keeper {
            keeper.forget(&name_of(id));
        }
    }

    /// The images with a kept store.
    pub fn known(&self) -> Vec<Known> {
        let known = |label: &Label| Known { id: label.id, names: label.names.clone(), header: label.header };
        self.stores.iter().map(|(_, kept)| known(kept.label())).collect()
    }

    /// The kept store of this image, if there is one, and the chunks found in it. `is_whole` says
    /// that the store is to hold all of it.
    pub fn of(&mut self, id: ImageId, header: &Header, is_whole: bool) -> Option<(Arc<Store>, Found)> {
        let fits = |(_, kept): &(String, Kept)| kept.label().id == id && kept.label().header == *header;
        let at = self.stores.iter().position(fits)?;
        let (name, kept) = self.stores.remove(at);
        if kept.is_in_large_pages() && !is_whole {
            self.refuse(&name, "a store that evicts chunks cannot give back parts of its large pages");
            return None;
        }
        let taken = Store::take_over(kept).inspect_err(|why| self.refuse(&name, &why.to_string())).ok()?;
        if let Some(disk) = &self.disk {
            taken.0.share_reads(disk.reads());
        }
        Some(taken)
    }

    /// Gives this store's memory to the keeper, if there is one. A file on a disk needs none.
    pub fn keep(&self, store: &Store) {
        if let Some(keeper) = self.keeper.as_ref().filter(|_| !store.is_on_disk()) {
            keeper.keep(&name_of(store.id()), store.file().as_fd());
        }
    }

    /// Drops all unclaimed stores, once all images have theirs.
    pub fn drop_rest(&mut self) {
        for (name, kept) in std::mem::take(&mut self.stores) {
            let label = kept.label();
            self.refuse(&name, &format!("{} ({}) is not joined any more", label.names, label.id.short()));
        }
    }

    fn refuse(&mut self, name: &str, why: &str) {
        let is_file = self.disk.is_some() && name.ends_with(disk::SUFFIX);
        let what = if is_file { "the kept file" } else { "the kept memory" };
        self.refused.push(format!("{what} {name} is not used: {why}"));
        if let Some(disk) = self.disk.as_ref().filter(|_| is_file) {
            return disk.remove(name);
        }
        if let Some(keeper) = &self.keeper {
            keeper.forget(name);
        }
    }
}

fn name_of(id: ImageId) -> String {
    format!("store-{}", id.short())
}
