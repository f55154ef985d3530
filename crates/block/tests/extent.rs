//! Extents against sets of byte numbers.

use proptest::prelude::*;
use std::collections::BTreeSet;
use vfield_block::extent::Extent;

fn extent() -> impl Strategy<Value = Extent> {
    (0u64..40, 0u64..40).prop_map(|(offset, length)| Extent::new(offset, length).expect("small"))
}

fn set(extent: Extent) -> BTreeSet<u64> {
    (extent.start()..extent.end()).collect()
}

proptest! {
    #[test]
    fn clip_is_the_intersection(a in extent(), b in extent()) {
        prop_assert_eq!(set(a.clip(b)), &set(a) & &set(b));
        prop_assert!(a.clip(b).start() >= a.start() && a.clip(b).end() <= a.end().max(a.start()));
    }

    #[test]
    fn take_and_skip_part_it(extent in extent(), bytes in 0u64..90) {
        let (head, tail) = (extent.take(bytes), extent.skip(bytes));
        prop_assert_eq!(head.len(), bytes.min(extent.len()));
        prop_assert_eq!(head.len() + tail.len(), extent.len());
        prop_assert_eq!((head.start(), head.end(), tail.end()), (extent.start(), tail.start(), extent.end()));
    }

    #[test]
    fn arithmetic_never_overflows(offset: u64, length: u64, bytes: u64, other in (any::<u64>(), any::<u64>())) {
        match Extent::new(offset, length) {
            None => prop_assert!(offset.checked_add(length).is_none()),
            Some(extent) => {
                prop_assert_eq!(extent.len(), length);
                prop_assert!(extent.take(bytes).len() <= length && extent.skip(bytes).len() <= length);
                prop_assert!(extent.clip(Extent::from(other.0..other.1)).len() <= length);
            }
        }
    }
}

#[test]
fn inverted_range_is_empty_at_its_start() {
    let extent = Extent::from(std::ops::Range { start: 9, end: 3 });
    assert_eq!((extent.start(), extent.len()), (9, 0));
    assert!(extent.is_empty());
}
