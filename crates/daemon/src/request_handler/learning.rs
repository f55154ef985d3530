//! What machines read first of an image.

use vfield_control::message::Reply;
use vfield_node::Node;
use vfield_node::node::NodeImage;

/// What this node knows of it.
pub(super) fn learned(node: &Node, image: &NodeImage) -> Reply {
    let (machines, list) = node.learned(image.id);
    let (chunk_bytes, image_bytes) = (u64::from(image.source.chunk_bytes()), image.source.size_bytes());
    let run = |run: &std::ops::Range<u64>| {
        let start = run.start * chunk_bytes;
        (start, (run.end * chunk_bytes).min(image_bytes).saturating_sub(start))
    };
    let runs = list.runs().iter().map(run).collect();
    Reply::Learned { image: image.source.name().to_owned(), image_bytes, machines: machines as u64, runs }
}
