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

#[test]
fn a_keeper_is_remembered_for_longer_and_through_an_insisting_asker() {
    let mut directory = Directory::default();
    assert_eq!(directory.instead(CHUNK, NodeId(1), at(0)), None);
    directory.kept_by(CHUNK, NodeId(2), at(1));
    // It had been sent to node 1.
    directory.sent_to(CHUNK, NodeId(3), at(2));
    assert_eq!(directory.instead(CHUNK, NodeId(4), at(60_000)), Some(NodeId(2)));
    // Node 2 has refused it.
    directory.sent_to(CHUNK, NodeId(4), at(60_001));
    assert_eq!(directory.instead(CHUNK, NodeId(5), at(60_002)), Some(NodeId(4)));
    directory.kept_by(CHUNK, NodeId(2), at(60_003));
    directory.forget(NodeId(2));
    assert_eq!(directory.instead(CHUNK, NodeId(5), at(60_004)), None);
}

#[test]
fn an_insisting_asker_is_sent_to_a_keeper_once() {
    let mut directory = Directory::default();
    assert_eq!(directory.instead(CHUNK, NodeId(1), at(0)), None);
    assert_eq!(directory.keeper(CHUNK, NodeId(3), at(1)), None, "nobody keeps it");
    directory.kept_by(CHUNK, NodeId(2), at(2));
    assert_eq!(directory.keeper(CHUNK, NodeId(2), at(3)), None, "it has lost it");
    assert_eq!(directory.keeper(CHUNK, NodeId(3), at(4)), Some(NodeId(2)));
    assert_eq!(directory.keeper(CHUNK, NodeId(4), at(5)), Some(NodeId(2)));
    assert_eq!(directory.keeper(CHUNK, NodeId(3), at(6)), None, "the keeper was of no help");
    assert_eq!(directory.keeper(CHUNK, NodeId(3), at(60_000)), Some(NodeId(2)));
    // It got the chunk from there, dropped it, and asks again.
    assert_eq!(directory.instead(CHUNK, NodeId(3), at(60_001)), Some(NodeId(2)));
    assert_eq!(directory.keeper(CHUNK, NodeId(3), at(60_002)), Some(NodeId(2)));
    assert_eq!(directory.keeper(CHUNK, NodeId(3), at(60_003)), None);
    directory.set_available(NodeId(2), false);
    assert_eq!(directory.keeper(CHUNK, NodeId(5), at(60_004)), None);
}
