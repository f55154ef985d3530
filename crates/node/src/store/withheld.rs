//! Chunks on a disk that have to be waited for, and those that it does not deliver.
//!
//! Bytes that are in no memory are read into it first, on threads that may wait
//! ([`crate::disk_reads`]). A chunk for which a reader waited too long is withheld. It is not
//! resident, so readers get it from others, but the store keeps its place. Once its read has ended
//! and the disk moves, it is released.
//!
//! Invariant: a withheld chunk is released, or spoiled if its place turned out to be bad. After
//! each change the core is told of the state that holds then, so it knows the last one.

use super::Store;
use crate::disk_reads::{BadPlace, DiskRead, DiskReads, Unread};
use crate::source::Away;
use std::ops::Range;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_core::chunk::Chunk;
use vfield_core::wire::Priority;

/// A reader or a peer that waits for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiter {
    /// A reader on this machine, who may get the bytes of others.
    Reader,
    /// Another node, which asks others by itself if it takes long.
    Peer(Priority),
}

/// The conditions under which a withheld chunk is released.
#[derive(Debug)]
pub(super) struct Wait {
    /// These go on.
    reads: Arc<DiskReads>,
    /// A read of the chunk itself has ended.
    is_read: bool,
}

impl Store {
    /// True if the disk does not deliver a chunk now.
    pub fn is_withheld(&self, chunk: Chunk) -> bool {
        self.withheld.has(chunk)
    }

    /// The number of chunks that it does not deliver.
    pub fn withheld_chunks(&self) -> u64 {
        self.withheld.number()
    }

    /// True if a part of an extent is here and has to be read from a disk first.
    pub fn waits_for_disk(self: &Arc<Self>, extent: Extent) -> bool {
        self.is_on_disk() && self.disk_runs(extent).iter().any(|(place, pin)| pin.store().is_to_be_read(*place))
    }

    /// Has the disk read what of an extent is here, up to the first chunk that is not. A reader
    /// waits for [`crate::source::PATIENCE`], and a peer as long as the disk moves. Chunks that
    /// are not read by then are withheld. Needs a Tokio runtime.
    ///
    /// # Errors
    /// If something is withheld.
    pub async fn bring(self: &Arc<Self>, extent: Extent, waiter: Waiter) -> Result<(), Away> {
        if !self.is_on_disk() {
            return Ok(());
        }
        for (place, pin) in self.disk_runs(extent) {
            let holder = Arc::clone(pin.store());
            let Some(disk) = holder.disk.as_ref().filter(|_| holder.is_to_be_read(place)) else { continue };
            let (chunks, reads, file) = (pin.chunks(), disk.reads(), disk.file().fd());
            if reads.still().is_some() {
                self.withhold(chunks, reads, None);
                return Err(Away::Failing);
            }
            let whole = holder.geometry().whole(place);
            let read = match waiter {
                Waiter::Reader => reads.read_soon(&file, whole).await,
                Waiter::Peer(priority) => reads.read(&file, whole, priority).await,
            };
            match read {
                Ok(()) => {}
                Err(Unread::Failed(place)) => {
                    self.lose(&holder, place);
                    // The chunks behind it are brought for the next read.
                    break;
                }
                Err(Unread::Still(rest)) => {
                    self.withhold(chunks, reads, Some((rest, &holder)));
                    return Err(Away::Failing);
                }
            }
        }
        Ok(())
    }

    /// Releases the chunks whose reads have ended, if their disk moves.
    pub fn release(&self) {
        let released: Vec<Chunk> = self.withheld.change(|chunks| {
            let is_over = |wait: &Wait| wait.is_read && wait.reads.still().is_none();
            let over: Vec<Chunk> = chunks.iter().filter(|(_, wait)| is_over(wait)).map(|(chunk, _)| *chunk).collect();
            chunks.retain(|_, wait| !is_over(wait));
            over
        });
        for chunk in &released {
            // The bytes that passed through meanwhile are not needed any more.
            if self.slots.load(*chunk).is_readable() {
                self.transients.evict(*chunk);
            }
        }
        if !released.is_empty() {
            self.tell_turned(released);
        }
    }

    /// True if a place in this store's file is in no memory of this process or the kernel. If so,
    /// the kernel may begin to read it.
    fn is_to_be_read(&self, place: Extent) -> bool {
        let Some(disk) = &self.disk else { return false };
        !disk.has(self.geometry(), place) && !disk.is_in_memory(self.geometry().whole(place))
    }

    /// The chunks are not resident until they are released; `rest` is their read, if one was begun,
    /// and the store in whose file they lie.
    fn withhold(self: &Arc<Self>, chunks: Range<u64>, reads: &Arc<DiskReads>, rest: Option<(DiskRead, &Arc<Self>)>) {
        let wait = || Wait { reads: Arc::clone(reads), is_read: rest.is_none() };
        self.withheld.change(|table| table.extend(chunks.clone().map(|number| (Chunk(number), wait()))));
        self.tell_turned(chunks.clone().map(Chunk));
        let Some((rest, holder)) = rest else { return };
        let (store, holder) = (Arc::downgrade(self), Arc::downgrade(holder));
        tokio::spawn(async move {
            let read = rest.await;
            let Some(store) = store.upgrade() else { return };
            if let (Err(place), Some(holder)) = (read, holder.upgrade()) {
                store.lose(&holder, place);
            }
            store.withheld.change(|table| {
                chunks.for_each(|number| {
                    if let Some(wait) = table.get_mut(&Chunk(number)) {
                        wait.is_read = true;
                    }
                });
            });
            store.release();
        });
    }

    /// A chunk whose place in the file of `holder` is bad is spoiled.
    fn lose(&self, holder: &Self, BadPlace { at, errno }: BadPlace) {
        let chunk = Chunk(at / holder.geometry().chunk_bytes());
        tracing::debug!(%chunk, %errno, "reading a chunk of a store");
        holder.spoil(chunk);
        self.drop_spoiled_loan(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;
    use std::fs::File;
    use vfield_core::chunk::ChunkSize;
    use vfield_core::hash_tree::{TreeBuilder, hash_chunk};

    const SIZE: u64 = ChunkSize::DEFAULT.bytes();

    /// A store on a disk with both chunks of an image that is filled with sevens.
    fn store() -> Arc<Store> {
        let mut builder = TreeBuilder::new(2 * SIZE, ChunkSize::DEFAULT).expect("a builder");
        (0..2).for_each(|number| builder.add(Chunk(number), hash_chunk(&[7; SIZE as usize])));
        let (_, id, tree) = builder.finish();
        let dir = tempfile::tempdir().expect("a directory");
        let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("store"));
        let top = tree.geometry().top();
        let page = tree.page(top).expect("it is not zero");
        let store = Store::on_disk(id, tree.geometry(), file.expect("a file").into()).expect("a store");
        store.insert(top, page).expect("room");
        for chunk in [Chunk(0), Chunk(1)] {
            store.insert(chunk, &[7; SIZE as usize]).expect("room");
        }
        store
    }

    #[tokio::test]
    async fn a_withheld_chunk_is_read_as_it_passes_until_it_is_released() {
        let (store, buffers) = (store(), Arc::new(Buffers::default()));
        let reads = Arc::default();
        store.withhold(0..1, &reads, None);
        assert_eq!(store.trouble().await.turned, [Chunk(0)]);
        assert!(!store.is_resident(Chunk(0)) && store.is_resident(Chunk(1)));
        store.pass(Chunk(0), buffers.copy(&[7; SIZE as usize]));
        assert!(store.is_resident(Chunk(0)));
        // What passed through is evicted; the place on the disk stays.
        assert!(store.evict(Chunk(0)) && !store.is_resident(Chunk(0)));
        store.release();
        assert_eq!((store.trouble().await.turned, store.withheld_chunks()), (vec![Chunk(0)], 0));
        assert!(store.is_resident(Chunk(0)) && store.disk_bytes() == 2 * SIZE);
        // Nobody wants it any more: then it is gone.
        store.withhold(1..2, &reads, None);
        assert!(store.evict(Chunk(1)));
        assert_eq!((store.withheld_chunks(), store.disk_bytes()), (0, SIZE));
    }

    #[tokio::test]
    async fn a_late_read_releases_its_chunks_and_a_bad_place_is_spoiled() {
        let store = store();
        let (ends, ended) = tokio::sync::oneshot::channel();
        let rest = Box::pin(async { ended.await.expect("it ends") });
        store.withhold(0..2, &Arc::default(), Some((rest, &store)));
        store.release();
        assert_eq!((store.trouble().await.turned, store.withheld_chunks()), (vec![Chunk(0), Chunk(1)], 2));
        ends.send(Err(BadPlace { at: SIZE, errno: rustix::io::Errno::IO })).expect("it is awaited");
        let (mut spoiled, mut turned) = (Vec::new(), Vec::new());
        while turned.is_empty() {
            let trouble = store.trouble().await;
            spoiled.extend(trouble.spoiled);
            turned.extend(trouble.turned);
        }
        assert_eq!((spoiled, turned, store.withheld_chunks()), (vec![Chunk(1)], vec![Chunk(0), Chunk(1)], 0));
        assert!(store.is_resident(Chunk(0)) && !store.is_resident(Chunk(1)));
    }
}
