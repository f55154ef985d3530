//! Standing orders: what people told a daemon since its start, for the process that goes on in its
//! place after an upgrade or a crash.
//!
//! Settings say how a daemon starts. Since then images may have been added and dropped, pinned and
//! limited, and the node drained. The guard keeps that as a memory file, which is written anew at
//! each order, so a daemon may be killed at any moment. It is JSON, as the next program may be of
//! another version: fields that it does not know are skipped, and missing ones are empty.
//!
//! Invariant: an order that cannot be followed any more keeps no daemon from starting. Whoever
//! starts the guard itself again goes by the settings alone.

pub mod left_file;

use crate::estate::{Estate, ORDERS};
use crate::images::Images;
use crate::leaving;
use crate::memory_file;
use crate::plan::Plan;
use crate::values::image::ImageName;
use crate::values::store::Store;
use left_file::{LeftFile, ToLeave};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vfield_console::failure::plain;
use vfield_core::image::{IdDigits, ImageId};
use vfield_node::Node;
use vfield_node::config::{AddedImage, ImageSelector};
use vfield_node::keeper::Keeper as _;
use vfield_node::node::NodeImage;

/// A longer file holds no orders: 256 images with the longest names and limits take a megabyte.
const BYTES_MAX: u64 = 16 << 20;

/// The standing orders of a daemon.
#[derive(Debug)]
pub struct StandingOrders {
    estate: Arc<Estate>,
    all: Mutex<All>,
}

/// The orders themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct All {
    /// The image that was the field's only one when a daemon joined without naming any.
    only: Option<Image>,
    added: Vec<Added>,
    /// Images of the settings that are not to come back.
    dropped: Vec<Image>,
    files: Vec<AddedFile>,
    /// The ids of images.
    pinned: Vec<String>,
    limits: Vec<Limited>,
    drained: bool,
}

/// An image, and its names on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Image {
    id: String,
    names: Vec<String>,
}

/// An image that was added, with the `--store` of that order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Added {
    image: Image,
    store: Option<String>,
}

/// A file that was added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct AddedFile {
    #[serde(flatten)]
    image: Image,
    /// `None` if only the process to which it was added can serve it.
    left: Option<LeftFile>,
}

/// Limits of an image, or of the node; a direction that nobody has changed is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Limited {
    image: Option<String>,
    up: Option<String>,
    down: Option<String>,
}

impl StandingOrders {
    /// Takes those of the daemon before out of its estate, and completes the plan with them.
    pub fn take(estate: &Arc<Estate>, plan: &mut Plan) -> Arc<Self> {
        let mut all = All::default();
        if let Some(file) = estate.pick(ORDERS) {
            match memory_file::read(&file, BYTES_MAX).and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                Some(found) => all = found,
                None => tracing::warn!("the orders of the daemon before cannot be read, and are not followed"),
            }
        }
        let before = all.clone();
        all.apply(plan, estate);
        let orders = Self { estate: Arc::clone(estate), all: Mutex::default() };
        // A file that is lost is said to be so once.
        if all != before {
            orders.keep(&all);
        }
        *orders.all() = all;
        Arc::new(orders)
    }

    /// Follows those that need a node. A drained one takes no new clients: after a crash those that
    /// come are mostly old ones, and cannot be told from new ones.
    pub async fn follow(&self, node: &Node, images: &Images, crashed: bool) {
        let (pinned, drained) = {
            let all = self.all();
            (all.pinned.clone(), all.drained)
        };
        for id in pinned.iter().filter_map(|id| id.parse().ok()) {
            node.pin(id, true);
        }
        if drained && crashed {
            node.drain(true);
        } else if drained {
            leaving::drain(node, images, true).await;
        }
    }

    /// True if there can be a next process, which knows of them.
    pub fn outlive_this_process(&self) -> bool {
        self.estate.keeps_sockets()
    }

    /// The names of a file that was added and that only this process can serve, if there is one.
    pub fn file_that_stays(&self, node: &Node) -> Option<String> {
        let all = self.all();
        let goes = |file: &&AddedFile| file.left.is_some() && file.image.id.parse().is_ok_and(|id| node.may_leave(id));
        all.files.iter().find(|file| !goes(file)).map(|file| file.image.names.join(", "))
    }

    /// This image was the field's only one when the daemon joined without naming any.
    pub fn began_with(&self, image: &NodeImage) {
        self.change(|all| all.only = Some(Image::of(image)));
    }

    /// An image was added, with this `--store`.
    pub fn added(&self, image: &NodeImage, store: Option<String>) {
        self.change(|all| all.added.push(Added { image: Image::of(image), store }));
    }

    /// A file was added, and is left to the next process, or cannot be.
    pub fn added_as_file(&self, image: &NodeImage, left: Option<ToLeave>) {
        let image = Image::of(image);
        let left = left.map(|left| left.leave(&self.estate, &image.id));
        self.change(|all| {
            if left.is_none() {
                all.let_back(&image);
            }
            all.files.push(AddedFile { image, left });
        });
    }

    /// An image was dropped. `asked` says that somebody had asked for it: those that came for a tag
    /// go by the tag.
    pub fn dropped(&self, image: &NodeImage, asked: bool) {
        let image = Image::of(image);
        let id = image.id.clone();
        self.change(|all| {
            let before = all.added.len() + all.files.len();
            all.added.retain(|added| added.image.id != image.id);
            all.files.retain(|file| file.image.id != image.id);
            all.pinned.retain(|id| *id != image.id);
            let was_added = all.added.len() + all.files.len() < before;
            if asked && !was_added && !all.dropped.iter().any(|dropped| dropped.id == image.id) {
                all.dropped.push(image);
            }
        });
        if self.outlive_this_process() {
            left_file::forget(&self.estate, &id);
        }
    }

    /// An image was pinned, or released.
    pub fn pinned(&self, id: ImageId, pinned: bool) {
        let id = id.to_string();
        self.change(|all| {
            all.pinned.retain(|other| *other != id);
            all.pinned.extend(pinned.then_some(id));
        });
    }

    /// Limits of the node, or of an image, were changed: those that are given.
    pub fn limited(&self, image: Option<&str>, [up, down]: [Option<String>; 2]) {
        self.change(|all| {
            let at = all.limits.iter().position(|limited| limited.image.as_deref() == image).unwrap_or_else(|| {
                all.limits.push(Limited { image: image.map(str::to_owned), ..Limited::default() });
                all.limits.len() - 1
            });
            let limited = &mut all.limits[at];
            limited.up = up.or(limited.up.take());
            limited.down = down.or(limited.down.take());
        });
    }

    /// The node was drained, or is not any more.
    pub fn drained(&self, drained: bool) {
        self.change(|all| all.drained = drained);
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut All)) {
        let mut all = self.all();
        let before = all.clone();
        change(&mut all);
        if *all != before {
            self.keep(&all);
        }
    }

    /// Leaves them to the next process, if there can be one.
    fn keep(&self, all: &All) {
        if !self.outlive_this_process() {
            return;
        }
        let bytes = serde_json::to_vec(all).expect("lists of texts");
        match memory_file::write("vfield-orders", &bytes) {
            Ok(file) => self.estate.keep_with_guard(ORDERS, file.as_fd()),
            Err(error) => tracing::warn!("the next process will not know of this order: {}", plain(&error)),
        }
    }
}

impl All {
    /// Completes a plan. The orders come from an earlier process, which may have been anybody's, so
    /// those that make no sense are skipped.
    fn apply(&mut self, plan: &mut Plan, estate: &Estate) {
        let lost = self.take_files(plan, estate);
        let node = &mut plan.node;
        if node.serve.is_empty() && node.join.is_empty() && node.follow.is_empty() {
            node.join.extend(self.only.as_ref().and_then(Image::selector));
        }
        node.added = self.added.iter().filter_map(Added::image).collect();
        let dropped = |is: &dyn Fn(&Image) -> bool| self.dropped.iter().any(is);
        let (mut join, mut serve) = (node.join.clone(), node.serve.clone());
        join.retain(|selector| !dropped(&|image| image.is_meant_by(selector)));
        serve.retain(|file| !dropped(&|image| image.names.contains(&file.image_name())));
        // A daemon has an image at least.
        let others = !(node.follow.is_empty() && node.added.is_empty() && node.added_files.is_empty());
        if others || !(join.is_empty() && serve.is_empty()) {
            (node.join, node.serve) = (join, serve);
        }
        for Image { names, .. } in lost {
            if !node.serve.iter().any(|served| names.contains(&served.image_name())) {
                let names = names.join(", ");
                plan.warnings.push(format!("{names} is not served any more: only `vfield add FILE` brings it back"));
            }
        }
        for Limited { image, up, down } in &self.limits {
            let both = match image {
                Some(name) => plan.limits.of_image(name),
                None => &mut plan.limits.node,
            };
            let parse = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
            both.up = parse(up).unwrap_or_else(|| both.up.clone());
            both.down = parse(down).unwrap_or_else(|| both.down.clone());
        }
    }

    /// Has the plan serve the files that were left; those that it cannot.
    fn take_files(&mut self, plan: &mut Plan, estate: &Estate) -> Vec<Image> {
        let mut lost = Vec::new();
        for file in std::mem::take(&mut self.files) {
            let AddedFile { image: Image { id, names }, left } = &file;
            let taken = left.as_ref().zip(names.first()).and_then(|(left, name)| left.take(estate, id, name));
            if let Some(taken) = taken {
                plan.node.added_files.push(taken);
                self.files.push(file);
            } else {
                left_file::forget(estate, id);
                self.let_back(&file.image);
                lost.push(file.image);
            }
        }
        lost
    }

    /// What the settings have under the names of this image may come back again.
    fn let_back(&mut self, image: &Image) {
        self.dropped.retain(|dropped| !dropped.names.iter().any(|name| image.names.contains(name)));
    }
}

impl Image {
    fn of(image: &NodeImage) -> Self {
        let names = image.source.names().into_iter().map(str::to_owned).collect();
        Self { id: image.id.to_string(), names }
    }

    /// Selects it again. One of several names goes by its id, and has the names of the field.
    fn selector(&self) -> Option<ImageSelector> {
        let id: ImageId = self.id.parse().ok()?;
        match &self.names[..] {
            [name] => {
                let ImageName(name) = name.parse().ok()?;
                Some(ImageSelector::Pinned { name, id: IdDigits::new(&self.id)? })
            }
            _ => Some(ImageSelector::Id(id)),
        }
    }

    fn is_meant_by(&self, selector: &ImageSelector) -> bool {
        let has_name = |name: &str| self.names.iter().any(|own| own == name);
        self.id.parse().is_ok_and(|id| selector.means(&id, has_name))
    }
}

impl Added {
    fn image(&self) -> Option<AddedImage> {
        let store = self.store.as_ref().and_then(|store| store.parse().ok()).map(|Store(size)| size);
        Some(AddedImage { selector: self.image.selector()?, store })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(digit: &str, names: &[&str]) -> Image {
        Image { id: digit.repeat(64), names: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn an_image_is_selected_as_it_was_called() {
        let text = |image: Image| image.selector().map(|selector| selector.to_string());
        assert_eq!(text(image("a", &["root"])), Some(format!("root={}", "a".repeat(64))));
        assert_eq!(text(image("a", &["root", "boot"])), Some("a".repeat(64)));
        assert_eq!(text(image("g", &["root"])), None);
        assert_eq!(text(image("a", &["../root"])), None);
    }

    #[test]
    fn an_order_of_another_version_is_read_as_far_as_it_goes() {
        let read = |text: &str| serde_json::from_str::<All>(text).ok();
        let known = All { drained: true, added: vec![Added::default()], ..All::default() };
        assert_eq!(read(r#"{"drained": true, "added": [{"later": 7}], "later": []}"#), Some(known.clone()));
        assert_eq!(read(&serde_json::to_string(&known).unwrap()), Some(known));
        assert_eq!(read("{}"), Some(All::default()));
        let file = AddedFile { image: image("a", &["root"]), left: Some(LeftFile::default()) };
        let with_file = All { files: vec![file], ..All::default() };
        assert_eq!(read(&serde_json::to_string(&with_file).unwrap()), Some(with_file));
        // As it was when no file was left.
        let all = read(r#"{"files": [{"id": "a", "names": ["root"]}]}"#).unwrap();
        assert_eq!((&all.files[0].image.names[..], &all.files[0].left), (&["root".to_owned()][..], &None));
        for text in ["", "[1]", r#"{"drained": "yes"}"#, r#"{"added": {}}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_order_about_a_thing_counts() {
        let orders = StandingOrders { estate: Arc::default(), all: Mutex::default() };
        let text = |text: &str| Some(text.to_owned());
        orders.limited(None, [text("5M"), None]);
        orders.limited(Some("root"), [None, text("1M")]);
        orders.limited(None, [None, text("none")]);
        orders.limited(None, [text("6M"), None]);
        let (one, other) = (ImageId([1; 32]), ImageId([2; 32]));
        orders.pinned(one, true);
        orders.pinned(other, true);
        orders.pinned(other, true);
        orders.pinned(one, false);
        let all = orders.all.lock().unwrap().clone();
        let of_node = Limited { image: None, up: text("6M"), down: text("none") };
        assert_eq!(all.limits, [of_node, Limited { image: text("root"), up: None, down: text("1M") }]);
        assert_eq!(all.pinned, [other.to_string()]);
    }
}
