//! Inventories against sets: classes apart, bounds kept.

use proptest::prelude::*;
use std::collections::BTreeSet;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::image::{Geometry, Header};
use vfield_core::inventory::Inventory;

#[derive(Debug, Clone)]
enum Change {
    Insert(u64, bool),
    Touch(u64),
    Promote(u64),
    Demote(u64),
    Zero(u64, u64),
    Trim(BTreeSet<u64>),
}

fn change() -> impl Strategy<Value = Change> {
    let chunk = || 0u64..30;
    prop_oneof![
        4 => (chunk(), any::<bool>()).prop_map(|(chunk, keep)| Change::Insert(chunk, keep)),
        1 => chunk().prop_map(Change::Touch),
        1 => chunk().prop_map(Change::Promote),
        1 => chunk().prop_map(Change::Demote),
        1 => (0u64..700, 0u64..5).prop_map(|(start, length)| Change::Zero(start, length)),
        2 => prop::collection::btree_set(chunk(), 0..4).prop_map(Change::Trim),
    ]
}

fn geometry(chunks: u64) -> Geometry {
    let size = ChunkSize::MIN;
    Geometry::new(Header::new(chunks * size.bytes(), size, chunks / 2).expect("a header"))
}

proptest! {
    #[test]
    fn classes_are_apart_and_bounded(
        capacity in 0u64..12,
        transient_max in 0u64..6,
        changes in prop::collection::vec(change(), 0..120),
    ) {
        let mut inventory = Inventory::new(geometry(600), capacity, transient_max);
        // Stored, and transient with the least recently used first.
        let (mut stored, mut transient) = (BTreeSet::new(), Vec::<u64>::new());
        let mut zero = BTreeSet::new();
        for change in changes {
            match change {
                Change::Insert(chunk, keep) => {
                    inventory.insert(Chunk(chunk), keep);
                    if !stored.contains(&chunk) {
                        transient.retain(|other| *other != chunk);
                        if keep && (stored.len() as u64) < capacity { stored.insert(chunk); } else { transient.push(chunk); }
                    }
                }
                Change::Touch(chunk) => {
                    inventory.touch(Chunk(chunk));
                    if transient.contains(&chunk) {
                        transient.retain(|other| *other != chunk);
                        transient.push(chunk);
                    }
                }
                Change::Promote(chunk) => {
                    let fits = transient.contains(&chunk) && (stored.len() as u64) < capacity;
                    prop_assert_eq!(inventory.promote(Chunk(chunk)), fits || stored.contains(&chunk));
                    if fits {
                        transient.retain(|other| *other != chunk);
                        stored.insert(chunk);
                    }
                }
                Change::Demote(chunk) => {
                    inventory.demote(Chunk(chunk));
                    if stored.remove(&chunk) {
                        transient.push(chunk);
                    }
                }
                Change::Zero(start, length) => {
                    inventory.mark_zero(std::slice::from_ref(&(start..start + length)));
                    zero.extend((start..start + length).filter(|chunk| *chunk < 603));
                }
                Change::Trim(busy) => {
                    while let Some(victim) = inventory.overflow(|chunk| busy.contains(&chunk.0)) {
                        let expected = transient.iter().copied().find(|chunk| !busy.contains(chunk));
                        prop_assert_eq!(Some(victim.0), expected, "least recently used first");
                        transient.retain(|chunk| *chunk != victim.0);
                    }
                    let busy = transient.iter().filter(|chunk| busy.contains(chunk)).count() as u64;
                    prop_assert!(inventory.transient() <= transient_max.max(1) + busy);
                }
            }
            prop_assert!(inventory.stored() <= capacity);
            prop_assert_eq!(inventory.stored(), stored.len() as u64);
            prop_assert_eq!(inventory.transient(), transient.len() as u64);
            for chunk in 0..603 {
                let page = if chunk < 512 { 600 } else { 601 };
                let zeros = zero.contains(&chunk) || zero.contains(&602) || (chunk < 600 && zero.contains(&page));
                prop_assert_eq!(inventory.is_zero(Chunk(chunk)), zeros);
                let here = zeros || stored.contains(&chunk) || transient.contains(&chunk);
                prop_assert_eq!(inventory.is_here(Chunk(chunk)), here);
                prop_assert_eq!(inventory.is_stored(Chunk(chunk)), stored.contains(&chunk));
            }
        }
        prop_assert!(inventory.iter_stored().map(|chunk| chunk.0).eq(stored.iter().copied()));
    }
}

/// Below a zero page a walk goes to the page's last chunk at once, at every level.
#[test]
fn zero_pages_are_skipped_whole() {
    let geometry = geometry(2_000);
    let mut inventory = Inventory::new(geometry, 0, 4);
    let pages = geometry.pages(0);
    inventory.mark_zero(&[pages.start + 1..pages.start + 2, 3..5]);
    assert_eq!(inventory.zero_through(Chunk(2)), None);
    assert_eq!(inventory.zero_through(Chunk(3)), Some(Chunk(3)));
    assert_eq!(inventory.zero_through(Chunk(512)), Some(Chunk(1023)));
    assert_eq!(inventory.zero_through(Chunk(700)), Some(Chunk(1023)));
    assert_eq!(inventory.zero_through(Chunk(1024)), None);
    assert_eq!(inventory.zero_through(Chunk(pages.start + 1)), Some(Chunk(pages.start + 1)));
}
