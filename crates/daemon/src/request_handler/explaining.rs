//! Explanations of waits, of a chunk that a client names or of all that readers wait for.

use super::Running;
use vfield_control::message::Reply;

/// The explanation of the chunk at an offset of an image; without both, of all awaited ones.
pub(super) async fn explain(running: &Running, image: Option<&str>, offset: Option<u64>, follow: bool) -> Reply {
    if image.is_none() && offset.is_none() {
        return Reply::Explained { explained: running.node.explain_all(follow).await };
    }
    let offset = offset.unwrap_or(0);
    match running.choose(image) {
        Ok(chosen) => match running.node.explain(chosen.id, offset, follow).await {
            Some(explained) => Reply::Explained { explained },
            None => {
                let fact = format!("image {:?} has no byte {offset}", image.unwrap_or(chosen.source.name()));
                Reply::refused(fact, "choose an offset within the image")
            }
        },
        Err(refusal) => refusal,
    }
}
