//! Nodes come one after the other and read everything in order: earlier ones serve later ones.

use crate::{ms, secs};
use std::time::Duration;
use vfield_sim::field::Field;
use vfield_sim::original::Original;

/// 100 Mbit/s, in bytes per second.
const RATE: u64 = 12_500_000;

/// One more node every `gap`, with a store for everything, that reads all at once. Returns how much
/// longer each took than its link needs, and how many images the origin sent.
fn stagger(seed: u64, count: usize, chunks: u64, gap: Duration) -> (Vec<f64>, f64) {
    let mut field = Field::new(seed, vec![Original::usual(1, chunks)]);
    field.config = vfield_core::config::Config { join_boost: 9, ..Default::default() };
    field.links.rate = RATE;
    field.origin(None, &[0]);
    let capacity = field.images[0].chunks();
    let start = |_| {
        let node = field.join(0, &[(0, capacity)]);
        let (reader, began) = (field.read(node, 0, 0..chunks), field.now());
        field.run(gap);
        (reader, began)
    };
    let began: Vec<_> = (0..count).map(start).collect();
    let readers: Vec<usize> = began.iter().map(|(reader, _)| *reader).collect();
    field.until_read(&readers, secs(100));
    let limit = (chunks * field.images[0].geometry.chunk_bytes()) as f64 / RATE as f64;
    // A reader that is done has waited for nothing since its end.
    let time = |(reader, began): &(usize, _)| (field.readers[*reader].since - *began).as_secs_f64() / limit;
    (began.iter().map(time).collect(), field.machines[0].sent_of(0) as f64 / chunks as f64)
}

/// The sum of the uplinks is enough for all. For that no node may take from one that another needs,
/// or be asked for a chunk that it has not come to yet. 1.0 is the limit; clocks are off by more
/// than the gaps.
#[test]
fn latecomers_are_served_by_those_ahead() {
    for (gap, longest) in [(secs(2), 1.05), (secs(1), 1.15), (ms(300), 1.1), (ms(50), 1.1)] {
        for seed in 1..=3 {
            let (times, origin) = stagger(seed, 20, 1024, gap);
            let most = times.iter().copied().fold(0.0, f64::max);
            assert!(most <= longest, "{gap:?}: {times:?} of what the link needs");
            assert!(origin <= 1.05, "{gap:?}: the origin sent {origin} images");
        }
    }
}
