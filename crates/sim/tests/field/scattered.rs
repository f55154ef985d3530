//! All read single random chunks, several at a time, from small full stores.

use crate::{ms, secs};
use std::collections::VecDeque;
use std::time::Duration;
use vfield_core::placement::map::mix;
use vfield_sim::field::Field;
use vfield_sim::original::Original;

/// 100 Mbit/s, in bytes per second.
const RATE: u64 = 12_500_000;
/// Reads in flight on each machine.
const DEPTH: usize = 8;
/// Interval at which a reader checks for chunks: a chunk takes ten times as long on its link.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// Reads `count` chunks on each of `nodes`, [`DEPTH`] at a time, and starts another one when the
/// oldest is done, like clients that answer in order. Returns the slowest node's rate, in shares of
/// the link.
fn scatter(field: &mut Field, nodes: &[usize], count: u64) -> f64 {
    let chunks = field.images[0].geometry.data_chunks();
    let (start, mut number) = (field.now(), 0);
    let mut queues = vec![(count, VecDeque::new()); nodes.len()];
    while queues.iter().any(|(left, open)| *left > 0 || !open.is_empty()) {
        for (at, (left, open)) in queues.iter_mut().enumerate() {
            while open.front().is_some_and(|reader: &usize| field.readers[*reader].is_done()) {
                open.pop_front();
            }
            while *left > 0 && open.len() < DEPTH {
                number += 1;
                let chunk = mix(number) % chunks;
                open.push_back(field.read(nodes[at], 0, chunk..chunk + 1));
                *left -= 1;
                while open.front().is_some_and(|reader: &usize| field.readers[*reader].is_done()) {
                    open.pop_front();
                }
            }
        }
        field.run(LOOK_EVERY);
        assert!(field.now() - start < secs(100), "the readers do not come to an end\n{}", field.describe());
    }
    let bytes = count * field.images[0].geometry.chunk_bytes();
    bytes as f64 / (field.now() - start).as_secs_f64() / RATE as f64
}

/// Three tenths of the image are in each store. If each node asks the least loaded of a chunk's
/// three holders, ideal queues and eight reads at a time give the slowest 1.5 times the link's
/// rate.
#[test]
fn scattered_reads_fill_the_links() {
    for seed in 1..4 {
        let mut field = Field::new(seed, vec![Original::usual(1, 1024)]);
        field.config = vfield_core::config::Config { join_boost: 9, ..Default::default() };
        field.links.rate = RATE;
        field.origin(None, &[0]);
        let start = |_| {
            field.run(ms(5));
            field.join(0, &[(0, 308)])
        };
        let nodes: Vec<usize> = (0..10).map(start).collect();
        field.until("filled", secs(60), |field| field.filled(&nodes) && field.covered(&nodes));
        field.run(secs(5));
        let before = field.machines[0].sent_of(0);
        let rate = scatter(&mut field, &nodes, 500);
        assert!(rate >= 1.35, "{rate} times the link's rate");
        assert_eq!(field.machines[0].sent_of(0), before, "the origin is not needed");
    }
}
