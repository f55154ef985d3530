//! The images that a node holds: how each is added, at start or later, and dropped.
//!
//! Invariant: an image is here once, and no two have a name in common, since exports tell them
//! apart by name.

use super::publishing::{Published, publish_one};
use super::{Node, NodeImage, StartError, lock};
use crate::apart;
use crate::changed;
use crate::config::{AddedImage, ImageSelector, ServeConfig, StoreSize};
use crate::driver::Driver;
use crate::entry::Patience;
use crate::event::Event;
use crate::image::LocalImage;
use crate::keeper::KeptStores;
use crate::learned;
use crate::mending;
use crate::naming::{Chosen, Known, Search};
use crate::object_origin::entrusting;
use crate::origin::{Origin, kept_tree};
use crate::proofs;
use crate::reader::ImageReader;
use crate::source::Source;
use crate::store::found::Found;
use crate::store::{Store, StoreError};
use crate::survey;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::names::Names;
use vfield_core::node::{ImageConfig, Node as Core};
use vfield_core::rubbish::Uses;

/// Interval of progress reports of a fill.
const FILL_REPORTS: Duration = Duration::from_millis(250);

/// An image of this node, with its tasks.
pub(super) struct Held {
    pub image: NodeImage,
    /// Most bytes that its store may take.
    committed_bytes: u64,
    pub(super) uses: Uses,
    tasks: Vec<AbortHandle>,
}

impl Node {
    /// The images it serves or has joined, in the order in which they came.
    pub fn images(&self) -> Vec<NodeImage> {
        lock(&self.held).iter().map(|held| held.image.clone()).collect()
    }

    /// Joins one more image of the field, found as at start; holds as much of it as `store` says,
    /// or as the settings of the start say.
    ///
    /// # Errors
    /// If no member has it, or if it or its name is here already.
    pub async fn add_image(&self, wanted: ImageSelector, store: Option<StoreSize>) -> Result<NodeImage, StartError> {
        let _one_at_a_time = self.adding.lock().await;
        if let Some(held) =
            self.images().into_iter().find(|held| wanted.means(&held.id, |name| held.source.names().contains(&name)))
        {
            return Err(has_it(&held));
        }
        let wanted = [wanted];
        let found = self.search(&wanted, &[]).find(false, Patience::of(Some(Duration::ZERO))).await?;
        let Some(chosen) = found.into_iter().next() else {
            return Err(StartError::UnknownImage { wanted: wanted[0].to_string(), known: Vec::new() });
        };
        let id = chosen.known.id;
        self.check_new(id, &chosen.here)?;
        self.join(chosen, store.unwrap_or(self.config.store), &mut self.none_kept()).await?;
        self.spawn(report_fills(Arc::clone(&self.driver)));
        self.held(id)
    }

    /// Joins the images that were added to an earlier process of this node. A store that it left
    /// vouches for its image, unless signatures are needed: that process had found it, and each
    /// chunk is verified again. An image that nobody has any more is missed, and nothing else.
    pub(super) async fn join_added(&self, alone: bool, held: &[Known], kept: &mut KeptStores) {
        for AddedImage { selector, store } in &self.config.added {
            let search = self.search(std::slice::from_ref(selector), held);
            let left = if self.config.trusted.is_none() { search.held_here().ok() } else { None };
            let found = match left {
                Some(left) => Ok(left),
                None => search.find(alone, Patience::of(Some(Duration::ZERO))).await,
            };
            let joined = match found {
                Ok(found) => self.join_again(found, store.unwrap_or(self.config.store), kept).await,
                Err(error) => Err(error),
            };
            if let Err(error) = joined {
                self.driver.warn(format!("{selector}, which was added, does not come back: {error}"));
            }
        }
    }

    async fn join_again(&self, found: Vec<Chosen>, store: StoreSize, kept: &mut KeptStores) -> Result<(), StartError> {
        for chosen in found {
            // The settings may name it by now.
            if self.held(chosen.known.id).is_err() {
                self.check_new(chosen.known.id, &chosen.here)?;
                self.join(chosen, store, kept).await?;
            }
        }
        Ok(())
    }

    /// Serves one more file.
    ///
    /// # Errors
    /// If it cannot be published, or the image is here, or its name is, here or in the field.
    pub async fn add_file(&self, serve: ServeConfig) -> Result<NodeImage, StartError> {
        let _one_at_a_time = self.adding.lock().await;
        let driver = Arc::clone(&self.driver);
        let events: crate::event::EventSink = Arc::new(move |event| driver.event(event));
        let published = publish_one(serve, self.config.hash_threads, &events, |_| {}).await?;
        let id = published.origin.id();
        self.check_new(id, &published.names)?;
        self.serve(published, &self.search(&[], &[])).await?;
        self.held(id)
    }

    /// Serves the files that were added to an earlier process of this node. If a file cannot be
    /// served it is missed, and nothing else.
    pub(super) async fn serve_added(&self) {
        for serve in &self.config.added_files {
            if let Err(error) = self.add_file(serve.clone()).await {
                self.driver.warn(format!("{}, which was added, does not come back: {error}", serve.image_name()));
            }
        }
    }

    /// Writes the hashes of an image that this node serves, for
    /// [`KeptTree::left`](crate::origin::kept_tree::KeptTree::left). False if that would not take
    /// them, as [`Node::may_leave`] says. Blocks.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write_tree(&self, id: ImageId, to: &mut impl Write) -> io::Result<bool> {
        let of_origin = self.with_origin(id, |origin| origin.is_untouched().then(|| kept_tree::write(origin, to)));
        of_origin.flatten().transpose().map(|written| written.is_some())
    }

    /// True if another process can serve the file of this image with the hashes of this one: it can
    /// be seen that nothing has written to the file since.
    pub fn may_leave(&self, id: ImageId) -> bool {
        self.with_origin(id, Origin::is_untouched).unwrap_or(false)
    }

    /// Looks at the file of an image, if this node serves it from one.
    fn with_origin<T>(&self, id: ImageId, look: impl FnOnce(&Origin) -> T) -> Option<T> {
        match self.driver.image(id)?.source() {
            Some(Source::File(origin)) => Some(look(origin)),
            Some(Source::Object(_)) | None => None,
        }
    }

    /// Leaves an image: others stop asking for it, its readers get errors, and its memory is freed
    /// when the last of them has let go. False if it is not here.
    pub fn drop_image(&self, id: ImageId) -> bool {
        let held = {
            let mut all = lock(&self.held);
            let Some(at) = all.iter().position(|held| held.image.id == id) else { return false };
            all.remove(at)
        };
        held.tasks.iter().for_each(AbortHandle::abort);
        let dropped = self.driver.image(id);
        self.driver.drop_image(id);
        if let Some(dropped) = dropped {
            drop(self.spawn(end(Arc::clone(&self.driver), dropped)));
        }
        self.none_kept().forget(id);
        true
    }

    pub(super) fn held(&self, id: ImageId) -> Result<NodeImage, StartError> {
        let image = self.images().into_iter().find(|image| image.id == id);
        image.ok_or_else(|| StartError::UnknownImage { wanted: id.to_string(), known: Vec::new() })
    }

    /// Refuses an image that is here, or one of a name that is, or one too many.
    pub(super) fn check_new(&self, id: ImageId, names: &Names) -> Result<(), StartError> {
        let images = self.images();
        if let Some(held) = images.iter().find(|held| held.id == id) {
            return Err(has_it(held));
        }
        if let Some(held) = images.iter().find(|held| held.source.names().iter().any(|name| names.contains(name))) {
            return Err(StartError::NameIsHere { names: names.to_string(), id, held: text(held) });
        }
        if !self.driver.look(|core| core.may_add(id)) {
            return Err(StartError::TooManyImages);
        }
        Ok(())
    }

    /// Hands out signatures of an image that it serves, as far as they are such.
    fn prove(&self, Published { names, origin, proofs }: &Published) {
        let known = Known { id: origin.id(), names: names.clone(), header: *origin.header() };
        for proof in proofs {
            if proofs::is_about(proof, &known) && proof.fits() {
                self.driver.proofs.keep(known.id, proof.clone(), None);
            } else {
                self.driver.warn(format!("{names}: its signature is one of another image or name"));
            }
        }
    }

    /// Serves an image, unless the field has another one of its name.
    pub(super) async fn serve(&self, published: Published, search: &Search<'_>) -> Result<(), StartError> {
        self.prove(&published);
        let Published { names, origin, .. } = published;
        let (id, header) = (origin.id(), *origin.header());
        for name in names.iter() {
            if let Some(other) = search.namesake(name, id).await {
                return Err(StartError::NameOfAnother { name: name.to_owned(), id, other });
            }
        }
        let image = Arc::new(LocalImage::origin(names.clone(), self.store(id, header)?, origin));
        let watching = self.spawn(changed::watch(Arc::clone(&self.driver), Arc::clone(&image)));
        if self.driver.learns {
            let collecting = self.spawn(learned::collect(Arc::clone(&self.driver), Arc::clone(&image)));
            self.ends_with(id, collecting);
        }
        let entrusting = self.spawn(entrusting::run(Arc::clone(&self.driver), Arc::clone(&image)));
        self.hold(image, ImageConfig { id, names, header, origin: true, capacity_bytes: 0, kept: None }, 0);
        self.ends_with(id, watching);
        self.ends_with(id, entrusting);
        Ok(())
    }

    /// Takes part in an image of the field, and holds as much of it as `wanted`.
    pub(super) async fn join(
        &self,
        chosen: Chosen,
        wanted: StoreSize,
        kept: &mut KeptStores,
    ) -> Result<(), StartError> {
        let Chosen { known: Known { id, names, header }, here, proof } = chosen;
        let geometry = Geometry::new(header);
        let all = geometry.chunks() * geometry.chunk_bytes();
        let capacity_bytes = match wanted {
            StoreSize::All => all,
            StoreSize::Percent(share) => (all as f64 * share.clamp(0.0, 100.0) / 100.0).ceil() as u64,
            StoreSize::Bytes(bytes) => bytes.min(all),
        };
        let is_whole = wanted == StoreSize::All;
        let found = kept.of(id, &header, is_whole && self.compressed_room.is_none());
        let asked = capacity_bytes;
        let room = match &self.disk {
            Some(disk) => Some(disk.max_bytes()),
            None => self.config.stores_max_bytes.filter(|_| found.is_none()),
        };
        let capacity_bytes = room.map_or(asked, |most| most.saturating_sub(self.committed_bytes()).min(asked));
        let whole_bytes = geometry.stored_max() * geometry.chunk_bytes();
        let [needed, default_bytes] = [capacity_bytes, asked].map(|bytes| bytes.min(whole_bytes));
        let memory_bytes = self.config.memory_max_bytes;
        // Nobody knows yet how much a compressed one takes.
        if needed > memory_bytes && self.disk.is_none() && self.compressed_room.is_none() {
            return Err(StartError::StoreTooLarge { wanted_bytes: needed, memory_bytes });
        }
        let (store, found) = match found {
            Some((store, found)) => (store, Some(found)),
            None => {
                let store = self.joined_store(id, header, is_whole).await?;
                kept.keep(&store);
                (store, None)
            }
        };
        if let Some(room) = self.compressed_room.as_ref().filter(|_| !store.is_on_disk()) {
            room.add(store.file_bytes_now());
            store.compress(room);
        }
        // Memory takes nothing in a disk's place: it may be much smaller.
        let (capacity_bytes, needed) = match self.disk.is_some() && !store.is_on_disk() && found.is_none() {
            true => (0, 0),
            false => (capacity_bytes, needed),
        };
        if self.config.trusted.is_none() {
            let known = Known { id, names: names.clone(), header };
            self.spawn(proofs::pass_on(Arc::clone(&self.driver), known, self.config.bootstrap.clone()));
        }
        let name = here.to_string();
        let image = Arc::new(LocalImage::joined(here, store, proof));
        let relatives = self.relatives(&image);
        let like = relatives.iter().find_map(|relative| self.driver.look(|core| core.commitment(relative.id())));
        let left = found.is_some();
        let (mut runs, kept) = match found {
            Some(Found { runs, commitment }) => (runs, Some(commitment)),
            None => (Vec::new(), like),
        };
        let of_image = ImageConfig { id, names, header, origin: false, capacity_bytes, kept };
        self.hold(Arc::clone(&image), of_image, needed);
        if self.driver.learns {
            let learning = self.spawn(learned::run(Arc::clone(&self.driver), Arc::clone(&image)));
            self.ends_with(id, learning);
        }
        if image.store().may_be_full() {
            let disk = self.disk.as_ref().map(|disk| disk.path().to_owned());
            let watching = self.spawn(mending::watch(Arc::clone(&self.driver), Arc::clone(&image), disk));
            self.ends_with(id, watching);
            let working = self.spawn(Arc::clone(image.store()).work_behind());
            self.ends_with(id, working);
        }
        runs.extend(relatives.iter().flat_map(|relative| self.relate(&image, relative)));
        if let Some(commitment) = kept {
            runs.sort_unstable_by_key(|run| run.start);
            let looking = self.spawn(survey::run(Arc::clone(&self.driver), image, runs, commitment.from, left));
            self.ends_with(id, looking);
        }
        let size_bytes = header.length_bytes();
        self.driver.event(Event::Joined {
            image: name.clone(),
            id: id.to_string(),
            size_bytes,
            capacity_bytes: needed,
            whole: needed == whole_bytes,
        });
        if needed < default_bytes {
            self.driver.event(Event::Capped { image: name, capacity_bytes: needed, default_bytes });
        }
        Ok(())
    }

    /// The joined images of the length and chunk size of this one: mostly versions of it.
    fn relatives(&self, image: &LocalImage) -> Vec<Arc<LocalImage>> {
        let joined = self.driver.images().into_iter().filter(|other| other.source().is_none());
        joined.filter(|other| image.store().is_relative(other.store())).collect()
    }

    /// Lets two versions of an image use each other's chunks. Returns what `image` may take of the
    /// other one's for its store.
    fn relate(&self, image: &LocalImage, other: &LocalImage) -> Vec<Range<u64>> {
        other.store().relate(image.store(), |_| false);
        self.driver.look(|core| image.store().relate(other.store(), |chunk| core.stores(image.id(), chunk)))
    }

    fn hold(&self, image: Arc<LocalImage>, config: ImageConfig, committed_bytes: u64) {
        let id = config.id;
        self.driver.add_image(Arc::clone(&image), config);
        let image = NodeImage { id, source: Arc::new(ImageReader::new(Arc::clone(&self.driver), image)) };
        lock(&self.held).push(Held { image, committed_bytes, uses: Uses::default(), tasks: Vec::new() });
    }

    /// A task that is about an image, and is of no use without it.
    fn ends_with(&self, id: ImageId, task: AbortHandle) {
        if let Some(held) = lock(&self.held).iter_mut().find(|held| held.image.id == id) {
            held.tasks.push(task);
        }
    }

    /// Most bytes that the stores of joined images may take.
    fn committed_bytes(&self) -> u64 {
        lock(&self.held).iter().map(|held| held.committed_bytes).sum()
    }

    /// The stores of an earlier process, when they were all used or given up.
    pub(super) fn none_kept(&self) -> KeptStores {
        KeptStores::of_none(self.config.keeper.clone(), self.disk.clone())
    }

    /// An empty store, on the disk if there is one. If that has no room for a file, the image is
    /// read without a store.
    async fn joined_store(&self, id: ImageId, header: Header, is_whole: bool) -> Result<Arc<Store>, StartError> {
        let geometry = Geometry::new(header);
        let Some(disk) = &self.disk else {
            let in_large_pages = self.config.large_pages && is_whole;
            let store = if in_large_pages { Store::in_large_pages } else { Store::new };
            return store(id, &geometry).map_err(|error| no_store(&error));
        };
        disk.create(id, &geometry).await.or_else(|error| {
            self.driver.warn(format!("no store in {}: {error}; reads go on without it", disk.path().display()));
            self.store(id, header)
        })
    }

    fn store(&self, id: ImageId, header: Header) -> Result<Arc<Store>, StartError> {
        Store::new(id, &Geometry::new(header)).map_err(|error| no_store(&error))
    }
}

/// Ends the store of a dropped image. What it has lent becomes the borrowers' own, since nobody
/// keeps its memory for a later process.
async fn end(driver: Arc<Driver>, dropped: Arc<LocalImage>) {
    let end = move || {
        dropped.store().evict_all();
        for image in driver.images() {
            driver.come_home(&image, dropped.id());
        }
    };
    apart::run(end).await;
}

fn text(held: &NodeImage) -> String {
    format!("{} (id {})", held.source.names().join(", "), held.id.short())
}

fn has_it(held: &NodeImage) -> StartError {
    StartError::IsHere { image: text(held) }
}

/// Says how far fills have come, until all are done.
pub(super) async fn report_fills(driver: Arc<Driver>) {
    while !driver.look(Core::is_filled) {
        tokio::time::sleep(FILL_REPORTS).await;
        for view in driver.look(Core::images).into_iter().filter(|view| !view.filled) {
            let Some(image) = driver.image(view.id) else { continue };
            let goal = view.capacity.min(image.geometry().stored_max());
            let [held_bytes, goal_bytes] = [view.stored, goal].map(|chunks| chunks * image.geometry().chunk_bytes());
            driver.event(Event::Filling { image: view.name, held_bytes, goal_bytes });
        }
    }
}

fn no_store(error: &StoreError) -> StartError {
    StartError::System { what: "making a store", source: std::io::Error::other(error.to_string()) }
}
