//! Following tags: what the core decides for a tag that moves, carried out in the node and the
//! exports.
//!
//! One task for each tag. It never changes what a reader has open: the new version is another image
//! beside the old one, and the tag's name leads to it once its store has filled. If a step fails,
//! the node goes on as it is, and the task says why and tries again.

use crate::images::Images;
use crate::tags;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use vfield_console::failure::plain;
use vfield_control::message::FollowingStatus;
use vfield_core::follow::{Situation, Step, next};
use vfield_core::image::ImageId;
use vfield_core::tag::{TagName, Version};
use vfield_node::Node;
use vfield_node::event::Event;

/// How often a step that failed is tried again: a holder of the image may have come, of which no
/// event tells.
const AGAIN: Duration = Duration::from_secs(5);

/// The tags that a daemon follows.
#[derive(Debug, Default)]
pub struct Follow {
    status: Mutex<Vec<FollowingStatus>>,
}

impl Follow {
    /// What it follows, and how far that is.
    pub fn status(&self) -> Vec<FollowingStatus> {
        self.lock().clone()
    }

    /// Begins to follow tags. The first version of each is exported under the tag's name when this
    /// returns, if the node has begun with it. The rest goes on in `tasks`.
    pub async fn begin(
        self: &Arc<Self>,
        tags: &[TagName],
        node: &Arc<Node>,
        images: &Arc<Images>,
        tasks: &mut JoinSet<()>,
    ) {
        for (at, name) in tags.iter().enumerate() {
            self.lock().push(FollowingStatus {
                tag: name.to_string(),
                state: "waiting".to_owned(),
                ..FollowingStatus::default()
            });
            let (node, images, of) = (Arc::clone(node), Arc::clone(images), Arc::clone(self));
            let before = tags::followed(name).await;
            let mut follower = Follower { name: name.clone(), at, of, node, images, current: None, before };
            follower.work().await;
            tasks.spawn(follower.run());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<FollowingStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The follower of one tag.
struct Follower {
    name: TagName,
    /// Its place in the status.
    at: usize,
    of: Arc<Follow>,
    node: Arc<Node>,
    images: Arc<Images>,
    current: Option<ImageId>,
    /// The version to which the tag led in an earlier process.
    before: Option<Version>,
}

impl Follower {
    /// Follows until it is aborted.
    async fn run(mut self) {
        let (mut tagged, mut changes) = (self.node.tagged(), self.node.changes());
        loop {
            let settled = self.work().await;
            let waits = async {
                tokio::select! {
                    _ = tagged.changed() => {}
                    // Fills end, and members come and go.
                    _ = changes.changed(), if !settled => {}
                }
            };
            // A step that failed is tried again.
            let _ = tokio::time::timeout(AGAIN, waits).await;
        }
    }

    /// Takes all steps that are possible now; true if all is as the tag says.
    async fn work(&mut self) -> bool {
        loop {
            let known = self.node.followed(&self.name);
            let target = known.clone().and_then(|known| self.node.target(&known.tag));
            let here: Vec<ImageId> = self.node.images().iter().map(|held| held.id).collect();
            let situation = Situation {
                tag: known.as_ref().ok().map(|known| &known.tag),
                target: target.as_ref().ok().copied(),
                here: &here,
                current: self.current,
                before: self.before.map(|before| before.image),
                filled: target.as_ref().is_ok_and(|target| self.node.is_filled(target.image)),
            };
            match (next(&situation), target) {
                (Step::Switch(image), target) => {
                    let version = [target.ok(), self.before].into_iter().flatten().find(|known| known.image == image);
                    let Some(version) = version else { return false };
                    // It may be about to come, or dropped meanwhile.
                    if !self.switch(version).await {
                        return self.wait(format!("the image of serial {} is not attached", version.serial));
                    }
                }
                (_, Err(why)) => return self.wait(why.to_string()),
                (Step::Await, Ok(_)) => return false,
                (Step::Rest, Ok(target)) => return self.rest(target),
                (Step::Fill(_), Ok(target)) => return self.fills(target),
                (Step::Join(_), Ok(target)) => {
                    if let Err(why) = self.images.add_tagged(&self.name, target).await {
                        return self.wait(why);
                    }
                }
            }
        }
    }

    /// Has the tag's name lead to a version; false if that is not among the exports now.
    async fn switch(&mut self, version: Version) -> bool {
        let Version { serial, image } = version;
        let Some(name) = self.images.lead(&self.name, image).await else { return false };
        self.current = Some(image);
        if let Err(error) = tags::keep_followed(&self.name, version).await {
            tracing::warn!("after a crash the tag {} begins anew: {}", self.name, plain(&error));
        }
        self.set(|status| {
            (status.serial, status.image, status.id) = (serial, name.clone(), image.to_string());
            (status.state, status.why) = ("ready".to_owned(), String::new());
        });
        self.node.event(Event::TagReady { tag: self.name.to_string(), serial, image: name, id: image.to_string() });
        true
    }

    fn rest(&self, target: Version) -> bool {
        self.set(|status| {
            (status.serial, status.state, status.why) = (target.serial, "ready".to_owned(), String::new());
        });
        true
    }

    fn fills(&self, target: Version) -> bool {
        let why = format!("the store fills with serial {}", target.serial);
        self.set(|status| (status.state, status.why) = ("filling".to_owned(), why));
        false
    }

    /// Says once why no step is possible; the node goes on as it is.
    fn wait(&self, why: String) -> bool {
        let mut said = false;
        self.set(|status| {
            said = status.state == "waiting" && status.why == why;
            (status.state, status.why) = ("waiting".to_owned(), why.clone());
        });
        if !said {
            self.node.event(Event::TagWaits { tag: self.name.to_string(), why });
        }
        false
    }

    fn set(&self, change: impl FnOnce(&mut FollowingStatus)) {
        if let Some(status) = self.of.lock().get_mut(self.at) {
            change(status);
        }
    }
}
