//! The exports of a daemon together: checked early, started late, ended in order.
//!
//! Owns the running exports and the table of their kinds. Invariant: an image is in all exports or
//! in none. Each kind is one file below: it refuses places, takes them, and implements [`Export`].
//! It knows nothing of nodes.

pub mod access;
mod devices;
mod explain;
mod mount;
mod server;

use crate::estate::Estate;
use crate::onlooker::Onlooker;
use crate::plan::Places;
use std::fmt::Debug;
use std::future::{Future, ready};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::offer::ExportStatus;
use vfield_export::fuse::Removed;
use vfield_export::nbd::Handed;
use vfield_export::nbd::access::Rule;

/// A kind of export.
struct Kind {
    /// Refuses places that cannot be had, without taking them: the images cannot be read yet. What
    /// an earlier daemon has left is had already.
    check: fn(&Places, &Estate) -> Result<(), Failure>,
    /// Takes the places and serves the images; `None` if no place was asked for. Within a runtime.
    start: for<'a> fn(Offer<'a>) -> Starting<'a>,
}

/// A start under way.
type Starting<'a> = Job<'a, Result<Option<Box<dyn Export>>, Failure>>;

/// All kinds in the order of their start. They end in the opposite order: devices and mounts have
/// the readers that are most likely to be in the way.
const KINDS: [Kind; 3] = [
    // --nbd
    server::KIND,
    // --mount: FUSE
    mount::KIND,
    // --ublk, --device
    devices::KIND,
];

/// What an export starts with.
struct Offer<'a> {
    places: &'a Places,
    access: &'a [Rule],
    sources: Vec<Arc<dyn BlockSource>>,
    estate: &'a Arc<Estate>,
    onlooker: &'a Arc<Onlooker>,
    console: &'a Console,
}

type Job<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A running export of all images.
trait Export: Debug + Send + Sync {
    /// Addresses at which the images can be attached.
    fn places(&self) -> Vec<ExportStatus>;

    /// Makes what may take long for one more image, while the export serves the others.
    fn make(&self, _source: Arc<dyn BlockSource>) -> Job<'static, Result<Made, Failure>> {
        Box::pin(ready(Ok(Made::default())))
    }

    /// Exports one more image, with the devices that were made for it.
    fn add(&mut self, source: Arc<dyn BlockSource>, made: Made) -> Result<(), Failure>;

    /// Removes an image; its readers get errors.
    fn remove<'a>(&'a mut self, name: &'a str, console: &'a Console) -> Job<'a, Option<Removed>>;

    /// Takes back an image that was just added and has no users yet.
    fn take_back(&mut self, name: &str);

    /// Users of an image on this machine, in words.
    fn users(&self, name: &str) -> Vec<String>;

    /// Takes no new clients, or takes them again. Block devices cannot refuse any.
    fn shut(&self, _is_shut: bool) {}

    /// Has a tag's name lead to the image of this name, for readers that come from now on.
    fn lead(&self, _tag: &str, _image: &str) {}

    /// Block devices with the names of their images.
    fn devices(&self) -> Vec<(String, PathBuf)> {
        Vec::new()
    }

    /// Why another process could not go on with it, if that is so.
    fn is_bound(&self) -> Option<String> {
        None
    }

    /// Stops, for another process to go on; nothing is cleared away. Returns the clients of each of
    /// its servers.
    fn hand_over(self: Box<Self>) -> Job<'static, Vec<Vec<Handed>>>;

    /// Takes the clients that another process had from `clients`, those of each of its servers, and
    /// goes on with them.
    fn resume(&self, _clients: &mut dyn Iterator<Item = Vec<Handed>>) {}

    /// Ends the export.
    fn stop<'a>(self: Box<Self>, console: &'a Console) -> Job<'a, ()>;
}

/// The block devices of an image that is not exported yet.
#[derive(Debug, Default)]
struct Made(Vec<devices::Device>);

/// The block devices that each export has made for an image, in the order of the exports.
#[derive(Debug)]
pub struct Prepared(Vec<Made>);

impl Prepared {
    /// Ends it, if its image is not to be exported after all.
    pub async fn stop(self, console: &Console) {
        for device in self.0.into_iter().flat_map(|made| made.0) {
            device.stop(console).await;
        }
    }
}

/// The running exports.
#[derive(Debug)]
pub struct Exports {
    running: Vec<Box<dyn Export>>,
    access: Vec<Rule>,
}

/// Refuses places that cannot be had, without taking them: the images cannot be read yet.
pub fn check(places: &Places, estate: &Estate) -> Result<(), Failure> {
    KINDS.iter().try_for_each(|kind| (kind.check)(places, estate))
}

impl Exports {
    /// Takes all places and serves `sources` there, over TCP as `access` allows. Within a runtime.
    ///
    /// # Errors
    /// If one place cannot be had; then none is kept.
    pub async fn start(
        places: &Places,
        access: Vec<Rule>,
        sources: Vec<Arc<dyn BlockSource>>,
        estate: &Arc<Estate>,
        onlooker: &Arc<Onlooker>,
        console: &Console,
    ) -> Result<Self, Failure> {
        let mut exports = Self { running: Vec::new(), access };
        for kind in &KINDS {
            let (access, sources) = (exports.access.as_slice(), sources.clone());
            let offer = Offer { places, access, sources, estate, onlooker, console };
            match (kind.start)(offer).await {
                Ok(started) => exports.running.extend(started),
                Err(failure) => {
                    exports.stop(console).await;
                    return Err(failure);
                }
            }
        }
        Ok(exports)
    }

    /// Makes what may take long for one more image: the kernel reads a block device before it is
    /// there. Others need not wait for that, so the result borrows nothing.
    pub fn prepare(&self, source: &Arc<dyn BlockSource>, console: &Console) -> Job<'static, Result<Prepared, Failure>> {
        let jobs: Vec<_> = self.running.iter().map(|export| export.make(Arc::clone(source))).collect();
        let console = console.clone();
        Box::pin(async move {
            let mut prepared = Prepared(Vec::new());
            for job in jobs {
                match job.await {
                    Ok(made) => prepared.0.push(made),
                    Err(failure) => {
                        prepared.stop(&console).await;
                        return Err(failure);
                    }
                }
            }
            Ok(prepared)
        })
    }

    /// Exports one more image; all of the exports have it, or none.
    pub async fn add(
        &mut self,
        source: &Arc<dyn BlockSource>,
        prepared: Prepared,
        console: &Console,
    ) -> Result<(), Failure> {
        let mut made = prepared.0.into_iter();
        for at in 0..self.running.len() {
            if let Err(failure) = self.running[at].add(Arc::clone(source), made.next().unwrap_or_default()) {
                self.running[..at].iter_mut().for_each(|export| export.take_back(source.name()));
                Prepared(made.collect()).stop(console).await;
                return Err(failure);
            }
        }
        let is_tcp = self.running.iter().flat_map(|export| export.places()).any(|place| place.is_tcp());
        if is_tcp {
            access::warn_closed(&self.access, std::iter::once(source.name()), console);
        }
        Ok(())
    }

    /// Has a tag's name lead to the image of this name, for readers that come from now on.
    pub fn lead(&self, tag: &str, image: &str) {
        self.running.iter().for_each(|export| export.lead(tag, image));
    }

    /// Takes no new clients, or takes them again; clients that are there stay.
    pub fn shut(&self, is_shut: bool) {
        self.running.iter().for_each(|export| export.shut(is_shut));
    }

    /// Users of the image of this name on this machine, in words; empty if it has none.
    pub fn users(&self, name: &str) -> String {
        self.running.iter().flat_map(|export| export.users(name)).collect::<Vec<_>>().join(", ")
    }

    /// Removes the image of this name from all exports; its readers get errors. The kernel has to
    /// be told of its file once no read of it waits.
    pub async fn remove(&mut self, name: &str, console: &Console) -> Option<Removed> {
        let mut removed = None;
        for export in self.running.iter_mut().rev() {
            removed = export.remove(name, console).await.or(removed);
        }
        removed
    }

    /// Addresses at which the images can be attached.
    pub fn places(&self) -> Vec<ExportStatus> {
        self.running.iter().flat_map(|export| export.places()).collect()
    }

    /// The block devices of the image of this name.
    pub fn devices_of(&self, name: &str) -> Vec<PathBuf> {
        self.devices().into_iter().filter(|(image, _)| image == name).map(|(_, path)| path).collect()
    }

    /// The block devices, with the names of their images.
    pub fn devices(&self) -> Vec<(String, PathBuf)> {
        self.running.iter().flat_map(|export| export.devices()).collect()
    }

    /// Why another process could not go on with one of them, if that is so.
    pub fn are_bound(&self) -> Option<String> {
        self.running.iter().find_map(|export| export.is_bound())
    }

    /// Stops all of them, for another process to go on; the clients of each NBD server.
    pub async fn hand_over(self) -> Vec<Vec<Handed>> {
        let mut clients = Vec::new();
        for export in self.running {
            clients.extend(export.hand_over().await);
        }
        clients
    }

    /// Goes on with the clients of another process, in the order of [`Exports::hand_over`].
    pub fn resume(&self, clients: Vec<Vec<Handed>>) {
        let mut clients = clients.into_iter();
        self.running.iter().for_each(|export| export.resume(&mut clients));
    }

    /// Ends all of them.
    pub async fn stop(self, console: &Console) {
        for export in self.running.into_iter().rev() {
            export.stop(console).await;
        }
    }
}

/// `1 NBD client`, `2 NBD clients`; nothing for none.
fn counted(count: usize, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    }
}
