//! Images that come and go while the daemon runs: in the node and in all exports, or in none of
//! them.
//!
//! Owns the exports from their start to their end. Invariant: an added image can be read before it
//! is exported; a dropped image has no users, unless forced, before the node gives it up.

mod files;

use super::exports::Exports;
use super::leaving::{SHOWN_WITHIN, is_alone};
use super::looks::{Look, Looks};
use super::overlays::Overlays;
use super::start_error;
use crate::rollback;
use crate::standing_orders::StandingOrders;
use crate::values::image::Wanted;
use crate::values::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vfield_block::source::BlockSource;
use vfield_console::failure::{BadValue, Failure};
use vfield_console::log::{Console, EVENTS};
use vfield_control::message::Reply;
use vfield_control::offer::ExportStatus;
use vfield_control::selection;
use vfield_control::server::Lent;
use vfield_control::shares::sole_text;
use vfield_core::image::ImageId;
use vfield_core::tag::{TagName, Version};
use vfield_export::nbd::Handed;
use vfield_node::Node;
use vfield_node::node::{NodeImage, StartError, no_image};

/// Loop devices let go of a file, and the kernel says that it was closed, a moment after its last
/// user is gone.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);
/// The kernel forgets a file as soon as reads of it have ended, which the node sees to.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked whether they have: nobody says so.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The images of a daemon with their exports and overlays.
pub struct Images {
    node: Arc<Node>,
    /// Nothing once the daemon leaves. Held while an image comes or goes, but not while one is
    /// looked for, and not while the kernel reads its block device.
    exports: tokio::sync::Mutex<Option<Exports>>,
    /// The images that are in the exports. Changed only while `exports` is locked.
    attached: Mutex<BTreeSet<ImageId>>,
    /// Begun before `exports` is locked, by whoever looks at devices or takes them away.
    looks: Looks,
    /// The image to which each tag's name leads. Changed only while `exports` is locked.
    led: Mutex<BTreeMap<TagName, ImageId>>,
    /// A token for each image that clients of the control socket read; each of them has a copy.
    lent: Mutex<BTreeMap<ImageId, Arc<()>>>,
    /// Where they are.
    places: Mutex<Vec<ExportStatus>>,
    /// Takes note of images that come and go by order.
    orders: Arc<StandingOrders>,
    overlays: Arc<Overlays>,
    allow_rollback: bool,
    console: Console,
}

impl Images {
    /// Of a daemon that runs.
    pub fn new(
        node: Arc<Node>,
        exports: Exports,
        overlays: Arc<Overlays>,
        looks: Looks,
        orders: Arc<StandingOrders>,
        allow_rollback: bool,
        console: Console,
    ) -> Self {
        let (places, exports) = (Mutex::new(exports.places()), tokio::sync::Mutex::new(Some(exports)));
        let attached = node.images().into_iter().map(|image| image.id).collect();
        Self {
            node,
            exports,
            attached: Mutex::new(attached),
            looks,
            led: Mutex::default(),
            lent: Mutex::default(),
            places,
            orders,
            overlays,
            allow_rollback,
            console,
        }
    }

    /// Where the images can be attached.
    pub fn places(&self) -> Vec<ExportStatus> {
        lock(&self.places).clone()
    }

    /// The refusal to tell if another process could not go on with all of it.
    pub async fn may_be_handed_over(&self) -> Result<(), Reply> {
        let hint = "end it with `vfield leave`, and start the new program";
        if !self.overlays.are_none() {
            return Err(Reply::refused("changes in an overlay cannot be handed over", hint));
        }
        if let Some(file) = self.orders.file_that_stays(&self.node) {
            let why = "it was written to, or that could go unnoticed";
            let fact = format!("{file} was added as a file that cannot be handed over: {why}");
            return Err(Reply::refused(fact, "drop it with `vfield drop`, or serve it from the start"));
        }
        match &*self.exports.lock().await {
            None => Err(leaving()),
            Some(exports) => exports.are_bound().map_or(Ok(()), |why| Err(Reply::refused(why, hint))),
        }
    }

    /// Goes on with the clients of each NBD server of the process before.
    pub async fn resume(&self, clients: Vec<Vec<Handed>>) {
        if let Some(exports) = &*self.exports.lock().await {
            exports.resume(clients);
        }
    }

    /// The exports, for whoever ends them; nothing comes or goes after that.
    pub async fn close(&self) -> Option<Exports> {
        let _nobody_looks = self.looks.begin().await;
        self.exports.lock().await.take()
    }

    /// Joins one more image.
    pub async fn add_image(self: &Arc<Self>, image: String, store: Option<String>) -> Reply {
        let bad = |bad: BadValue| Reply::refused(bad.fact, bad.hint);
        let wanted: Wanted = match image.parse() {
            Ok(wanted) => wanted,
            Err(error) => return bad(error),
        };
        let size: Option<Store> = match store.as_ref().map(|store| store.parse()).transpose() {
            Ok(size) => size,
            Err(error) => return bad(error),
        };
        if let Err(refusal) = self.may_add().await {
            return refusal;
        }
        let added = self.node.add_image(wanted.0, size.map(|size| size.0)).await;
        let images = Arc::clone(self);
        to_its_end(async move { images.export(added, |orders, image| orders.added(image, store)).await }).await
    }

    /// Joins the image that a tag names; the answer has its name here.
    ///
    /// # Errors
    /// If it cannot be joined or exported, in words.
    pub async fn add_tagged(self: &Arc<Self>, tag: &TagName, version: Version) -> Result<String, String> {
        let Version { image, serial } = version;
        if let Err(Reply::Refused { .. }) = self.may_add().await {
            return Err(format!("serial {serial} is attached at the daemon's next start: it has overlays"));
        }
        let was_here = lock(&self.attached).contains(&image);
        let added = self.node.add_tagged(tag, image).await;
        let added = added.map_err(|error| no_image(serial, image, &error))?;
        let name = added.source.name().to_owned();
        if was_here {
            return Ok(name);
        }
        let images = Arc::clone(self);
        match to_its_end(async move { images.export(Ok(added), |_, _| {}).await }).await {
            Reply::Added { .. } => Ok(name),
            Reply::Refused { fact, .. } => Err(fact),
            _ => Err("the daemon failed".to_owned()),
        }
    }

    /// Has the exports take no new clients, or take them again.
    pub async fn shut(&self, is_shut: bool) {
        if let Some(exports) = &*self.exports.lock().await {
            exports.shut(is_shut);
        }
    }

    /// Who uses the images on this machine: `viver.squash: 1 NBD client`.
    pub async fn clients(&self) -> Vec<String> {
        let names: Vec<String> = self.node.images().iter().map(|image| image.source.name().to_owned()).collect();
        let exports = self.exports.lock().await;
        let users = |name: &String| {
            let users = exports.as_ref()?.users(name);
            (!users.is_empty()).then(|| format!("{name}: {users}"))
        };
        names.iter().filter_map(users).collect()
    }

    /// Has a tag's name lead to an image, for readers that come from now on. The image's name here;
    /// `None` if it is not here.
    pub async fn lead(&self, tag: &TagName, id: ImageId) -> Option<String> {
        let exports = self.exports.lock().await;
        let name = self.node.images().into_iter().find(|held| held.id == id)?.source.name().to_owned();
        if !lock(&self.attached).contains(&id) {
            return None;
        }
        exports.as_ref()?.lead(tag.as_str(), &name);
        let before = lock(&self.led).insert(tag.clone(), id);
        for id in before.into_iter().chain([id]) {
            if let Some(open) = self.is_open_in(exports.as_ref()?, id) {
                self.node.note_open(id, open);
            }
        }
        Some(name)
    }

    /// True if a reader of this machine has an image open, or a tag's name leads to it. `None` if
    /// it is not here, or the daemon leaves.
    pub async fn is_open(&self, id: ImageId) -> Option<bool> {
        let is_read = self.is_device_open(id, self.looks.begin().await.as_ref()).await;
        Some(self.is_open_in(self.exports.lock().await.as_ref()?, id)? || is_read)
    }

    /// True if anybody has a block device of the image open. The device is read for that, so the
    /// caller does not hold the exports.
    async fn is_device_open(&self, id: ImageId, look: Option<&Look<'_>>) -> bool {
        let Some(image) = self.node.images().into_iter().find(|held| held.id == id) else { return false };
        let devices = match &*self.exports.lock().await {
            Some(exports) => exports.devices_of(image.source.name()),
            None => Vec::new(),
        };
        match look {
            _ if devices.is_empty() => false,
            Some(look) => look.is_any_open(devices).await,
            None => true,
        }
    }

    fn is_open_in(&self, exports: &Exports, id: ImageId) -> Option<bool> {
        let held = self.node.images().into_iter().find(|held| held.id == id)?;
        Some(self.is_in_use(exports, id, held.source.name()))
    }

    /// Lends an image to a client of the control socket.
    pub fn lend(&self, image: &NodeImage) -> Lent {
        let mut lent = lock(&self.lent);
        lent.retain(|_, token| Arc::strong_count(token) > 1);
        let token = Arc::clone(lent.entry(image.id).or_default());
        Lent { source: Arc::clone(&image.source) as Arc<dyn BlockSource>, until: Box::new(token) }
    }

    fn is_in_use(&self, exports: &Exports, id: ImageId, name: &str) -> bool {
        let is_led = lock(&self.led).values().any(|led| *led == id);
        // Changes in an overlay are of no use without their image.
        let lent = lock(&self.lent);
        let is_lent = lent.get(&id).is_some_and(|token| Arc::strong_count(token) > 1);
        is_led || is_lent || !self.overlays.are_none() || !exports.users(name).is_empty()
    }

    /// Gives up an image that nobody needs, unless a reader has come.
    pub async fn discard(&self, id: ImageId) {
        let look = self.looks.begin().await;
        if self.is_device_open(id, look.as_ref()).await {
            return self.node.note_open(id, true);
        }
        let mut exports = self.exports.lock().await;
        let Some(exports) = &mut *exports else { return };
        let Some(image) = self.node.images().into_iter().find(|held| held.id == id) else { return };
        // All of it at once: nobody can open it in between.
        if self.is_in_use(exports, id, image.source.name()) {
            return self.node.note_open(id, true);
        }
        if self.node.may_discard(id) {
            self.remove(exports, &image, "rubbish").await;
        }
    }

    /// Overlays are made before a daemon gives up the right to do so.
    async fn may_add(&self) -> Result<(), Reply> {
        let hint =
            "start the daemon again with this image too, or another daemon beside it with a --control of its own";
        if !self.overlays.are_none() {
            return Err(Reply::refused("a daemon with overlays cannot add images", hint));
        }
        match &*self.exports.lock().await {
            None => Err(leaving()),
            Some(_) => Ok(()),
        }
    }

    /// Exports an image that the node has taken up, or has the node give it up again. `note` takes
    /// note of the order.
    async fn export(
        &self,
        added: Result<NodeImage, StartError>,
        note: impl FnOnce(&StandingOrders, &NodeImage),
    ) -> Reply {
        let image = match added {
            Ok(image) => image,
            Err(error) => return refusal(&explain(error)),
        };
        let id = image.id.to_string();
        let status = self.node.status().images.into_iter().find(|status| status.id == id);
        let exported = match rollback::check(status.into_iter().collect(), self.allow_rollback).await {
            Ok(()) => self.attach(&image).await,
            refused => refused,
        };
        if let Err(failure) = exported {
            self.node.drop_image(image.id);
            return refusal(&failure);
        }
        note(&self.orders, &image);
        let names: Vec<String> = image.source.names().into_iter().map(str::to_owned).collect();
        tracing::info!(target: EVENTS, event = "added", image = ?names, id, "an image was added");
        self.console.say(&format!("added {} (id {})", names.join(", "), image.id.short()));
        Reply::Added { names, id }
    }

    /// Has the exports have an image of the node.
    async fn attach(&self, image: &NodeImage) -> Result<(), Failure> {
        let gone = || Failure::failed("the daemon is leaving, or the image was dropped meanwhile");
        let preparing = self.exports.lock().await.as_ref().map(|exports| exports.prepare(&image.source, &self.console));
        let prepared = preparing.ok_or_else(gone)?.await?;
        let mut exports = self.exports.lock().await;
        let is_here = self.node.images().iter().any(|held| held.id == image.id);
        let Some(exports) = exports.as_mut().filter(|_| is_here) else {
            prepared.stop(&self.console).await;
            return Err(gone());
        };
        exports.add(&image.source, prepared, &self.console).await?;
        lock(&self.attached).insert(image.id);
        *lock(&self.places) = exports.places();
        Ok(())
    }

    /// Gives an image up.
    pub async fn drop_image(self: &Arc<Self>, wanted: String, force: bool) -> Reply {
        let images = Arc::clone(self);
        to_its_end(async move { images.give_up(&wanted, force).await }).await
    }

    async fn give_up(&self, wanted: &str, force: bool) -> Reply {
        let images = self.node.images();
        let image = match selection::choose(wanted, &images) {
            Ok(image) => image,
            Err(undecided) => {
                let (fact, hint) = undecided.words(wanted, "this node");
                return Reply::refused(fact, hint);
            }
        };
        let name = image.source.name();
        if images.len() == 1 {
            let hint = "add another one first, or end the daemon with `vfield leave`";
            return Reply::refused(format!("{name} is the only image of this node"), hint);
        }
        if !self.overlays.are_none() {
            let hint = "end the daemon with `vfield leave`, and start it again without the image";
            return Reply::refused("a daemon with overlays cannot drop images", hint);
        }
        if !force && let Err(refusal) = self.is_free(image).await {
            return refusal;
        }
        let _nobody_looks = self.looks.begin().await;
        let mut exports = self.exports.lock().await;
        let Some(exports) = &mut *exports else { return leaving() };
        self.orders.dropped(image, !self.node.unwished().contains(&image.id));
        self.remove(exports, image, "dropped").await;
        Reply::Done
    }

    /// Takes an image out of the exports and the node; `why` is the word for the log.
    async fn remove(&self, exports: &mut Exports, image: &NodeImage, why: &str) {
        let name = image.source.name();
        lock(&self.attached).remove(&image.id);
        let file = exports.remove(name, &self.console).await;
        *lock(&self.places) = exports.places();
        self.node.drop_image(image.id);
        if let Some(file) = file {
            // Another image may come under this name next. A kernel that takes longer forgets it
            // later.
            drop(tokio::time::timeout(FORGOTTEN_WITHIN, tokio::task::spawn_blocking(|| file.tell())).await);
        }
        let id = image.id.short();
        tracing::info!(target: EVENTS, event = "dropped", image = name, id, why, "an image was dropped");
        self.console.say(&match why {
            "rubbish" => format!("dropped {name} (id {id}): nobody needs it"),
            _ => format!("dropped {name} (id {id})"),
        });
    }

    /// Refuses what somebody uses, here or elsewhere.
    async fn is_free(&self, image: &NodeImage) -> Result<(), Reply> {
        let (name, deadline) = (image.source.name(), Instant::now() + LET_GO_WITHIN);
        loop {
            let users = self.exports.lock().await.as_ref().map(|exports| exports.users(name)).ok_or_else(leaving)?;
            let users = match users.is_empty() && self.is_device_open(image.id, self.looks.begin().await.as_ref()).await
            {
                true => "its block device is open".to_owned(),
                false => users,
            };
            if users.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                let hint =
                    "unmount and detach it first (see `findmnt` and `losetup`), or disconnect its users: --force";
                return Err(Reply::refused(format!("{name} is in use on this machine: {users}"), hint));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        // Nobody else is there who could miss anything.
        if is_alone(&self.node) {
            return Ok(());
        }
        let sole: Vec<_> =
            self.node.verified_sole(SHOWN_WITHIN).await.into_iter().filter(|sole| sole.image == name).collect();
        if sole.is_empty() {
            return Ok(());
        }
        let hint = "no other node holds these chunks: serve the file elsewhere, or enlarge other stores; \
                    `vfield drop --force` drops the image anyway";
        Err(Reply::refused(format!("{} would be lost with it", sole_text(&sole)), hint))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs to its end even if the client is gone: half of it would leave an image in the node but in
/// no export, or the reverse.
async fn to_its_end(work: impl Future<Output = Reply> + Send + 'static) -> Reply {
    let work: Pin<Box<dyn Future<Output = Reply> + Send>> = Box::pin(work);
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Reply::refused(format!("the daemon failed: {error}"), "see its log"))
}

fn leaving() -> Reply {
    Reply::refused("the daemon is leaving", "ask another node of the field")
}

fn refusal(failure: &Failure) -> Reply {
    Reply::refused(failure.fact(), failure.hint_text().unwrap_or_default())
}

/// Where the hint of a start does not fit.
fn explain(error: StartError) -> Failure {
    let fact = error.to_string();
    match error {
        StartError::UnknownImage { .. } => {
            Failure::failed(fact).hint("choose one of these; to serve a file, write its path with a slash: ./FILE")
        }
        StartError::Ambiguous { pins, .. } => Failure::failed(fact)
            .hint(format!("find out which image is right, then choose it: vfield add {}", pins.join(" or "))),
        StartError::ManyNames { .. } => Failure::failed(fact).hint("ask for one of the names"),
        StartError::IsHere { .. } => {
            Failure::failed(fact).hint("see `vfield status`; to add another image of that name, give NEW-NAME=ID")
        }
        other => start_error::explain(other),
    }
}
