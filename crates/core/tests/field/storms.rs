//! Everybody reads everything at once, on links that are the limit: how near the readers come to it.

use crate::support::field::Field;
use crate::support::original::Original;
use crate::{ms, secs};
use std::time::Duration;

/// 50 Mbit/s.
const RATE: u64 = 6_250_000;

/// A field with one image of `chunks` chunks, an origin, and `count` nodes that are switched on at once.
fn room(seed: u64, chunks: u64, count: usize, capacity: u64) -> (Field, Vec<usize>) {
    let mut field = Field::new(seed, vec![Original::usual(1, chunks)]);
    field.config = vfield_core::config::Config { join_boost: 9, ..Default::default() };
    field.rate = RATE;
    field.origin(None, &[0]);
    let start = |_| {
        field.run(ms(5));
        field.join(0, &[(0, capacity)])
    };
    let nodes = (0..count).map(start).collect();
    (field, nodes)
}

/// Reads all on all, and returns by how much it took longer than the link needs for one image, and how many
/// images the origin sent.
fn storm(field: &mut Field, nodes: &[usize]) -> (f64, f64) {
    let chunks = field.images[0].chunks();
    let bytes = chunks * field.images[0].geometry.chunk_bytes();
    let before = field.hosts[0].sent_of(0);
    let readers = field.read_all(nodes, 0);
    let took = field.until_read(&readers, secs(400));
    let limit = Duration::from_secs_f64(bytes as f64 / RATE as f64);
    let sent = field.hosts[0].sent_of(0) - before;
    (took.as_secs_f64() / limit.as_secs_f64(), sent as f64 / chunks as f64)
}

#[test]
fn explore1() {
    let (mut field, nodes) = room(1, 1024, 30, 1025);
    let readers = field.read_all(&nodes, 0);
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    let o = field.hosts[0].identity.node.0;
    order.sort_by_key(|&i| field.hosts[nodes[i]].identity.node.0.wrapping_sub(o));
    let mut before = vec![0; nodes.len()];
    println!("cats: chain relay origin likely | refused chain relay likely | redirected overdue");
    for _ in 0..30 {
        field.run(ms(200));
        let mut sum = [0u64; 10];
        for n in &nodes {
            for (a, b) in sum.iter_mut().zip(field.hosts[*n].node.cats) {
                *a += b;
            }
        }
        println!("{:?} {sum:?}", field.now);
        let line: Vec<String> = order
            .iter()
            .map(|&i| {
                let h = &field.hosts[nodes[i]];
                let r = &field.readers[readers[i]];
                let p = h.node.probe();
                let peers = p.split('|').nth(1).map_or(0, |x| x.matches(':').count());
                let d = h.requests - before[i];
                before[i] = h.requests;
                format!("{}/{}+{}", r.next, peers, d)
            })
            .collect();
        println!("{:?} {}", field.now, line.join(" "));
    }
}

#[test]
fn explore() {
    for (count, chunks, share) in [(10, 1024, 100), (30, 1024, 100), (30, 1024, 6), (30, 1024, 0), (50, 1536, 100)] {
        let (mut field, nodes) = room(1, chunks, count, chunks * share / 100 + share / 100);
        let start = std::time::Instant::now();
        let (time, origin) = storm(&mut field, &nodes);
        println!("N={count} store {share} %: time {time:.3} origin {origin:.3} {:?}", start.elapsed());
    }
}
