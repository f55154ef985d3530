//! What a server offers: sources, each under all of its names, which may come and go while clients
//! are there.
//!
//! Invariant: no two sources share a name, and no client begins to use a removed source. A client
//! chooses from the exports at its arrival, without those removed meanwhile. Called by the server
//! and its connections.

use super::codec::{Offer, PAYLOAD_BYTES_MAX, STRING_BYTES_MAX};
use super::listener::BindError;
use super::session::device_bytes;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;
use vfield_block::device::GRANULE_BYTES;
use vfield_block::source::BlockSource;

/// The preferred read size if a source's is not one that the protocol can express.
const PREFERRED_BYTES: u32 = 64 << 10;

/// The exports of a server by name.
#[derive(Default)]
pub(super) struct Catalogue(RwLock<Exports>);

#[derive(Default)]
struct Exports {
    entries: Vec<Arc<Entry>>,
    /// Further names, each with a name of the source to which it leads now. A client resolves
    /// them when it comes, and stays with its source.
    leads: BTreeMap<String, String>,
}

/// A source that is offered.
pub(super) struct Entry {
    pub(super) source: Arc<dyn BlockSource>,
    /// True once it has gone. Each of its users listens, so it also knows how many there are.
    gone: watch::Sender<bool>,
}

/// What a client may choose from.
pub(super) struct Choice {
    pub(super) offers: Arc<[Offer]>,
    /// The source of each offer.
    entries: Vec<Arc<Entry>>,
}

impl Choice {
    /// The source of an offer for one more user, which learns of its removal; `None` if it is
    /// removed.
    pub(super) fn enter(&self, offer: usize) -> Option<(Arc<dyn BlockSource>, watch::Receiver<bool>)> {
        let entry = self.entries.get(offer)?;
        let gone = entry.gone.subscribe();
        let is_there = !*gone.borrow();
        is_there.then(|| (Arc::clone(&entry.source), gone))
    }
}

impl Catalogue {
    /// A catalogue of `sources`, in their order; the first one is also the export called "".
    pub(super) fn of(sources: Vec<Arc<dyn BlockSource>>) -> Result<Self, BindError> {
        let catalogue = Self::default();
        sources.into_iter().try_for_each(|source| catalogue.add(source))?;
        Ok(catalogue)
    }

    /// A catalogue of one source.
    pub(super) fn of_one(source: Arc<dyn BlockSource>) -> Self {
        let entries = vec![Arc::new(Entry { source, gone: watch::Sender::new(false) })];
        Self(RwLock::new(Exports { entries, leads: BTreeMap::new() }))
    }

    pub(super) fn add(&self, source: Arc<dyn BlockSource>) -> Result<(), BindError> {
        let entries = &mut self.0.write().unwrap_or_else(PoisonError::into_inner).entries;
        let mut names: HashSet<&str> = entries.iter().flat_map(|entry| entry.source.names()).collect();
        if let Some(taken) = source.names().into_iter().find(|name| !names.insert(name)) {
            return Err(BindError::SameName(taken.to_owned()));
        }
        drop(names);
        entries.push(Arc::new(Entry { source, gone: watch::Sender::new(false) }));
        Ok(())
    }

    /// How many use the source of this name.
    pub(super) fn users(&self, name: &str) -> usize {
        let entries = &self.0.read().unwrap_or_else(PoisonError::into_inner).entries;
        let entry = entries.iter().find(|entry| entry.source.names().contains(&name));
        entry.map_or(0, |entry| entry.gone.receiver_count())
    }

    /// Takes out the source of this name, if there is one, and tells its users.
    pub(super) fn remove(&self, name: &str) {
        let entries = &mut self.0.write().unwrap_or_else(PoisonError::into_inner).entries;
        if let Some(at) = entries.iter().position(|entry| entry.source.names().contains(&name)) {
            entries.remove(at).gone.send_replace(true);
        }
    }

    /// Has a further name lead to the source of a name from now on, for clients that come.
    pub(super) fn lead(&self, name: &str, to: &str) {
        let leads = &mut self.0.write().unwrap_or_else(PoisonError::into_inner).leads;
        leads.insert(name.to_owned(), to.to_owned());
    }

    /// The sources that are `allowed` by their names, or by further names that lead to them now.
    /// Sources of further names come first, so that the default export moves with them.
    pub(super) fn choice(&self, allowed: impl Fn(&[&str]) -> bool) -> Choice {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (mut offers, mut entries) = (Vec::new(), Vec::new());
        let mut add = |entry: &Arc<Entry>, name: &str| {
            offers.push(offer(&*entry.source, name));
            entries.push(Arc::clone(entry));
        };
        let is_taken = |name: &str| all.entries.iter().any(|entry| entry.source.names().contains(&name));
        let leads = || all.leads.iter().filter(|(name, _)| !is_taken(name));
        let is_allowed = |entry: &&Arc<Entry>| {
            let mut names = entry.source.names();
            let led = leads().filter(|(_, to)| names.contains(&to.as_str())).map(|(name, _)| name.as_str());
            let led: Vec<&str> = led.collect();
            names.extend(led);
            allowed(&names)
        };
        let allowed = || all.entries.iter().filter(is_allowed);
        for (name, to) in leads() {
            let entry = allowed().find(|entry| entry.source.names().contains(&to.as_str()));
            entry.into_iter().for_each(|entry| add(entry, name));
        }
        for entry in allowed() {
            entry.source.names().into_iter().for_each(|name| add(entry, name));
        }
        Choice { offers: offers.into(), entries }
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = &self.0.read().unwrap_or_else(PoisonError::into_inner).entries;
        f.debug_list().entries(entries.iter().map(|entry| entry.source.names())).finish()
    }
}

fn offer(source: &dyn BlockSource, name: &str) -> Offer {
    let chunk = source.chunk_bytes();
    // Section "Block size constraints": a power of two from 512 up to the largest payload.
    let possible = chunk.is_power_of_two() && (512..=PAYLOAD_BYTES_MAX).contains(&chunk);
    let mut description = source.description();
    while description.len() > STRING_BYTES_MAX {
        description.pop();
    }
    let writable = source.device().is_some();
    Offer {
        name: name.to_owned(),
        description,
        size_bytes: device_bytes(source.size_bytes()),
        // Who writes less than a granule makes the source read the rest of it.
        preferred_bytes: match writable {
            true => GRANULE_BYTES,
            false if possible => chunk,
            false => PREFERRED_BYTES,
        },
        writable,
    }
}
