//! Explanations of waits, of a chunk that a client names or of all that readers wait for.

use vfield_control::message::Reply;
use vfield_control::selection;
use vfield_node::Node;

/// The explanation of the chunk at an offset of an image; without an image, of all awaited ones.
pub(super) async fn explain(node: &Node, image: Option<&str>, offset: u64, follow: bool) -> Reply {
    let Some(wanted) = image else { return Reply::Explained { explained: node.explain_all(follow).await } };
    match selection::choose(wanted, &node.images()) {
        Ok(image) => match node.explain(image.id, offset, follow).await {
            Some(explained) => Reply::Explained { explained },
            None => {
                let fact = format!("image {wanted:?} has no byte {offset}");
                Reply::refused(fact, "choose an offset within the image")
            }
        },
        Err(undecided) => {
            let (fact, hint) = undecided.words(wanted, "this node");
            Reply::refused(fact, hint)
        }
    }
}
