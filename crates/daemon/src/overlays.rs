//! The overlays of a daemon: one for each image, laid under its exports, saved and reset on order.
//!
//! Owns the order of steps. The directory is taken and saved files are checked before the node
//! contacts the field. Overlays are laid when the images are known and before a client can attach
//! them. Changes in a directory are on the disk when the daemon has ended.

mod explain;

use crate::onlooker::Onlooker;
use crate::plan::overlay::OverlayPlan;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use vfield_block::device::{BlockDevice, GRANULE_BYTES};
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_console::values::size::human;
use vfield_control::message::{OverlayStatus, Reply};
use vfield_control::selection::{self, Named};
use vfield_core::image::ImageId;
use vfield_node::node::NodeImage;
use vfield_overlay::{Folder, Overlay};

/// A loop device lets go of its file a moment after `umount` has returned.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked whether it has: nobody says so.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The directory and the saved files, checked before the images are known.
#[derive(Debug)]
pub struct Prepared {
    plan: OverlayPlan,
    folder: Option<Arc<Folder>>,
    /// Saved overlays, and the images that they are of.
    saved: Vec<(ImageId, PathBuf)>,
}

/// The overlays of a running daemon, in the order of its images; none if there are to be none.
#[derive(Debug, Default)]
pub struct Overlays {
    all: Vec<Arc<Overlay>>,
    place: String,
    carries_root: bool,
    /// Once they are attached.
    attached: OnceLock<Attached>,
}

/// Takes the directory, and looks at the saved overlays that are to be restored.
pub fn prepare(plan: Option<OverlayPlan>) -> Result<Option<Prepared>, Failure> {
    let Some(plan) = plan else { return Ok(None) };
    let mut saved: Vec<(ImageId, PathBuf)> = Vec::new();
    for path in &plan.from {
        let image = vfield_overlay::check(path).map_err(|error| explain::restore(&error))?.image;
        if let Some((_, other)) = saved.iter().find(|(other, _)| *other == image) {
            let fact = format!("{} and {} were saved over the same image", other.display(), path.display());
            return Err(Failure::usage(fact).hint("give --overlay-from once for each image"));
        }
        saved.push((image, path.clone()));
    }
    let folder = plan.dir().map(|dir| Folder::open(dir).map(Arc::new)).transpose();
    let folder = folder.map_err(|error| explain::open(&error))?;
    Ok(Some(Prepared { plan, folder, saved }))
}

/// Block devices that the daemon has made, by their images, and who opens them.
#[derive(Debug)]
struct Attached {
    devices: Vec<(String, PathBuf)>,
    onlooker: Arc<Onlooker>,
}

impl Attached {
    /// How many devices of an image somebody has claimed.
    fn claimed(&self, name: &str) -> usize {
        let claimed = |(image, path): &&(String, PathBuf)| image == name && self.onlooker.is_claimed(path);
        self.devices.iter().filter(claimed).count()
    }
}

impl Prepared {
    /// Lays an overlay over each of `images` and restores saved changes. Blocks.
    pub fn lay(self, images: Vec<(ImageId, Arc<dyn BlockSource>)>) -> Result<Overlays, Failure> {
        if let Some((id, path)) = self.saved.iter().find(|(id, _)| images.iter().all(|(image, _)| image != id)) {
            let names: Vec<String> =
                images.iter().map(|(id, image)| format!("{} {}", image.name(), id.short())).collect();
            let fact = format!("{} was saved over image {}, which this node does not have", path.display(), id.short());
            return Err(Failure::failed(fact).hint(format!("this node has: {}", names.join(", "))));
        }
        let mut all = Vec::new();
        for (id, image) in images {
            let max_bytes =
                self.plan.max_bytes.unwrap_or_else(|| image.size_bytes().next_multiple_of(GRANULE_BYTES.into()));
            let overlay = match &self.folder {
                None => Overlay::in_memory(image, id, max_bytes),
                Some(folder) => Overlay::in_folder(image, id, folder, max_bytes),
            };
            let overlay = overlay.map_err(|error| explain::open(&error))?;
            let goes_on = self.plan.carries_root && overlay.usage().is_used();
            if let Some((_, path)) = self.saved.iter().find(|(saved, _)| *saved == id && !goes_on) {
                overlay.restore(path).map_err(|error| match &self.folder {
                    Some(folder) => explain::restore_into(&error, folder.path(), overlay.name()),
                    None => explain::restore(&error),
                })?;
            }
            all.push(Arc::new(overlay));
        }
        let (place, carries_root) = (self.plan.place.to_string(), self.plan.carries_root);
        Ok(Overlays { all, place, carries_root, attached: OnceLock::new() })
    }
}

/// An overlay that a person may mean.
struct Candidate<'a>(&'a Arc<Overlay>);

impl Named for Candidate<'_> {
    fn has_name(&self, name: &str) -> bool {
        BlockSource::names(&**self.0).contains(&name)
    }

    fn id(&self) -> String {
        self.0.image().to_string()
    }

    fn names(&self) -> String {
        BlockSource::names(&**self.0).join(", ")
    }
}

impl Overlays {
    /// What exports offer instead of `images`.
    pub fn sources(&self, images: Vec<NodeImage>) -> Vec<Arc<dyn BlockSource>> {
        if self.all.is_empty() {
            images.into_iter().map(|image| image.source).collect()
        } else {
            self.all.iter().map(|overlay| overlay.clone() as Arc<dyn BlockSource>).collect()
        }
    }

    /// True if the images are read-only.
    pub fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// For people and programs.
    pub fn status(&self) -> Vec<OverlayStatus> {
        let status = |overlay: &Arc<Overlay>| {
            let usage = overlay.usage();
            OverlayStatus {
                image: overlay.name().to_owned(),
                id: overlay.image().to_string(),
                place: self.place.clone(),
                held_bytes: usage.held_bytes,
                zero_bytes: usage.zero_bytes,
                max_bytes: usage.max_bytes,
                refused_bytes: usage.refused_bytes,
            }
        };
        self.all.iter().map(status).collect()
    }

    /// The overlay of the image that a person means by `wanted`: its name, its id, or the beginning
    /// of its id; without a wish the only one.
    fn choose(&self, wanted: Option<&str>) -> Result<&Arc<Overlay>, Reply> {
        let names = || self.all.iter().map(|overlay| overlay.name()).collect::<Vec<_>>().join(", ");
        if self.all.is_empty() {
            return Err(Reply::refused("this daemon has no overlay", "start it with --overlay ram or --overlay DIR"));
        }
        let Some(wanted) = wanted else {
            return match &self.all[..] {
                [one] => Ok(one),
                _ => {
                    Err(Reply::refused("this daemon has several overlays", format!("choose with --image: {}", names())))
                }
            };
        };
        let candidates: Vec<_> = self.all.iter().map(Candidate).collect();
        selection::choose(wanted, &candidates).map(|chosen| chosen.0).map_err(|undecided| {
            let (fact, hint) = undecided.words(wanted, "this daemon");
            Reply::refused(fact, hint)
        })
    }

    /// Saves one in a file that a client has opened; answers when it is done.
    pub async fn save(&self, image: Option<&str>, file: File) -> Reply {
        let overlay = match self.choose(image) {
            Ok(overlay) => overlay.clone(),
            Err(refusal) => return refusal,
        };
        on_a_thread(move || match file.metadata() {
            Ok(metadata) if metadata.is_file() && metadata.len() == 0 => {
                overlay.save(&file).map_or_else(|error| explain::save(&error), |bytes| Reply::Saved { bytes })
            }
            _ => Reply::refused("an overlay is saved to a new, empty file", "use `vfield overlay save FILE`"),
        })
        .await
    }

    /// Takes note of the block devices that the daemon has made, once.
    pub fn attached_as(&self, devices: Vec<(String, PathBuf)>, onlooker: Arc<Onlooker>) {
        // A second call has the same devices.
        let _ = self.attached.set(Attached { devices, onlooker });
    }

    /// How many have the image of an overlay open on this machine.
    fn users(&self, overlay: &Overlay) -> u64 {
        let claimed = self.attached.get().map_or(0, |attached| attached.claimed(overlay.name()));
        overlay.users().count() + claimed as u64
    }

    /// Drops the changes of one; answers when it is done. Not those that somebody uses, unless by
    /// force: a file system would go on with what it has in its cache. And never those that a
    /// running system stands on.
    pub async fn reset(&self, image: Option<&str>, force: bool) -> Reply {
        if self.carries_root {
            let hint = "restart the machine to drop its changes; remove a saved file before";
            return Reply::refused("this machine's root is the image with these changes", hint);
        }
        let overlay = match self.choose(image) {
            Ok(overlay) => overlay.clone(),
            Err(refusal) => return refusal,
        };
        let deadline = Instant::now() + LET_GO_WITHIN;
        while !force && self.users(&overlay) > 0 {
            if Instant::now() >= deadline {
                let fact = format!("{} is in use on this machine: files or connections open: ", overlay.name());
                let hint =
                    "unmount and detach it first (see `findmnt` and `losetup`), or drop the changes under it: --force";
                return Reply::refused(format!("{fact}{}", self.users(&overlay)), hint);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        on_a_thread(move || overlay.reset().map_or_else(|error| explain::save(&error), |()| Reply::Done)).await
    }

    /// Puts everything on the disk, or says what ends here.
    pub async fn close(&self, console: &Console) {
        for overlay in &self.all {
            let usage = overlay.usage();
            if overlay.is_volatile() && usage.is_used() {
                let changed = human(usage.held_bytes + usage.zero_bytes);
                console.say(&format!("{changed} of changes to {} end with this daemon", overlay.name()));
            } else if let Err(error) = overlay.flush().await
                && usage.refused_bytes == 0
            {
                console.warn(&format!("changes to {} could not be written to disk: {error}", overlay.name()));
            }
        }
    }
}

async fn on_a_thread(work: impl FnOnce() -> Reply + Send + 'static) -> Reply {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Reply::refused(format!("the daemon failed: {error}"), "see its log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_ground_is_not_pulled_from_under_a_system() {
        let overlays = Overlays { carries_root: true, ..Overlays::default() };
        let Reply::Refused { fact, hint } = overlays.reset(None, true).await else { panic!("it was reset") };
        assert_eq!(fact, "this machine's root is the image with these changes");
        assert!(hint.contains("restart the machine"), "{hint}");
    }
}
