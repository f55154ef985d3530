//! The directory of an origin: the first asker gets the chunk, later ones are redirected to it.

use super::at;
use vfield_core::chunk::Chunk;
use vfield_core::directory::Directory;
use vfield_core::identity::NodeId;

const CHUNK: Chunk = Chunk(7);

#[test]
fn later_askers_are_sent_to_the_first() {
    let mut directory = Directory::default();
    assert_eq!(directory.instead(CHUNK, NodeId(1), at(0)), None);
    assert_eq!(directory.instead(CHUNK, NodeId(2), at(1)), Some(NodeId(1)));
    assert_eq!(directory.instead(CHUNK, NodeId(1), at(2)), None, "it asks again because it has lost it");
    assert_eq!(directory.instead(Chunk(8), NodeId(2), at(3)), None);
}

#[test]
fn an_insisting_asker_gets_the_chunk_and_is_remembered() {
    let mut directory = Directory::default();
    assert_eq!(directory.instead(CHUNK, NodeId(1), at(0)), None);
    directory.sent_to(CHUNK, NodeId(2), at(1));
    assert_eq!(directory.instead(CHUNK, NodeId(3), at(2)), Some(NodeId(2)));
}

#[test]
fn the_gone_and_the_old_are_forgotten() {
    let mut directory = Directory::default();
    assert_eq!(directory.instead(CHUNK, NodeId(1), at(0)), None);
    directory.forget(NodeId(1));
    assert_eq!(directory.instead(CHUNK, NodeId(2), at(1)), None);
    assert_eq!(directory.instead(CHUNK, NodeId(3), at(60_000)), None);
}
