//! Rubbish of a daemon: tells the node what readers have open, and takes away what the node finds
//! to be of no use any more.
//!
//! The node decides ([`vfield_core::rubbish`]). Invariant: an image goes only while nobody on this
//! machine has it open and no tag's name leads to it.

use crate::images::Images;
use std::sync::Arc;
use std::time::Duration;
use vfield_console::text::clean;
use vfield_control::message::{Freed, Reply};
use vfield_core::image::ImageId;
use vfield_core::node::Rubbish;
use vfield_core::rubbish::{SETTLE, Stays};
use vfield_node::Node;
use vfield_node::node::NodeImage;

/// Interval of looks at the users of images that may be rubbish: exports do not tell of them.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long `vfield gc` waits for rubbish to go, beyond the time in which members hear of it.
const COLLECT_MARGIN: Duration = Duration::from_secs(10);
/// How often it looks meanwhile.
const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// Takes rubbish away when its grace is over; does not end by itself.
pub async fn keep_away(node: Arc<Node>, images: Arc<Images>) {
    let mut due = node.due();
    loop {
        look(&node, &images).await;
        // Whichever comes first.
        let _ = tokio::time::timeout(LOOK_EVERY, due.changed()).await;
    }
}

/// Tells the node which images are open, and takes away those that may go.
async fn look(node: &Node, images: &Images) {
    for id in node.unwished() {
        if let Some(open) = images.is_open(id).await {
            node.note_open(id, open);
        }
    }
    for (id, _) in node.rubbish().into_iter().filter(|(_, rubbish)| rubbish.stays.is_none()) {
        images.discard(id).await;
    }
}

/// Takes the present rubbish away, without its grace: `vfield gc`.
pub async fn collect(node: &Node, images: &Images) -> Reply {
    look(node, images).await;
    let rubbish: Vec<ImageId> = node.rubbish().into_iter().map(|(id, _)| id).collect();
    let held = node.status().images;
    node.collect();
    let goes = |rubbish: &Rubbish| matches!(rubbish.stays, None | Some(Stays::Settling(_)));
    let gone = async {
        loop {
            look(node, images).await;
            if !node.rubbish().iter().any(|(id, left)| rubbish.contains(id) && goes(left)) {
                break;
            }
            tokio::time::sleep(COLLECT_EVERY).await;
        }
    };
    // What stays has its reason in the status.
    let _ = tokio::time::timeout(SETTLE + COLLECT_MARGIN, gone).await;
    let left: Vec<String> = node.images().iter().map(|NodeImage { id, .. }| id.to_string()).collect();
    let freed = |image: &vfield_node::status::ImageStatus| {
        let went = rubbish.iter().any(|id| id.to_string() == image.id) && !left.contains(&image.id);
        let bytes = image.held_bytes.saturating_sub(image.shared_bytes);
        went.then(|| Freed { image: clean(&image.name), id: image.id.clone(), bytes })
    };
    Reply::Collected { freed: held.iter().filter_map(freed).collect() }
}
