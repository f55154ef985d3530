//! Sets of chunk numbers against a `BTreeSet`.

use proptest::prelude::*;
use std::collections::BTreeSet;
use vfield_core::bits::Bits;
use vfield_core::chunk::Chunk;

#[derive(Debug, Clone)]
enum Change {
    Insert(u64),
    InsertRange(u64, u64),
    Remove(u64),
}

fn number() -> impl Strategy<Value = u64> {
    // Small ones meet each other, and the others lie about the edges of pages and at the far end.
    prop_oneof![0u64..200, 32_700u64..32_800, (1u64 << 40) - 3..(1 << 40) + 3, u64::MAX - 4..=u64::MAX]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        number().prop_map(Change::Insert),
        (0u64..33_000, 0u64..300).prop_map(|(start, length)| Change::InsertRange(start, length)),
        number().prop_map(Change::Remove),
    ]
}

proptest! {
    #[test]
    fn bits_are_a_set(changes in prop::collection::vec(change(), 0..60), probes in prop::collection::vec(number(), 20)) {
        let (mut bits, mut set) = (Bits::default(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Insert(number) => prop_assert_eq!(bits.insert(Chunk(number)), set.insert(Chunk(number))),
                Change::Remove(number) => prop_assert_eq!(bits.remove(Chunk(number)), set.remove(&Chunk(number))),
                Change::InsertRange(start, length) => {
                    bits.insert_range(start..start + length);
                    set.extend((start..start + length).map(Chunk));
                }
            }
            prop_assert_eq!(bits.count(), set.len() as u64);
        }
        prop_assert!(bits.iter().eq(set.iter().copied()));
        for probe in probes {
            prop_assert_eq!(bits.contains(Chunk(probe)), set.contains(&Chunk(probe)));
        }
    }
}
