//! Processor time of node keys, beside the hash of a chunk: `cargo run --release --package
//! vfield-trust --example signatures`.
//!
//! Prints the best of some rounds for each operation, since whatever else runs only adds to it.

use std::hint::black_box;
use std::time::{Duration, Instant};
use vfield_core::signing::Signatures as _;
use vfield_trust::NodeKey;

/// Length of a signed statement about oneself, about.
const STATEMENT: usize = 100;
const CHUNK: usize = 64 << 10;
const ROUNDS: usize = 20;
const ROUND: Duration = Duration::from_millis(50);

/// Microseconds that it takes, in the best round.
fn best_us(mut operation: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let (start, mut times) = (Instant::now(), 0);
        while start.elapsed() < ROUND {
            operation();
            times += 1;
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(times)
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn main() {
    let key = NodeKey::draw().expect("the system has random bytes");
    let statement = [7; STATEMENT];
    let (public, signature, chunk) = (key.key(), key.sign(&statement), vec![1; CHUNK]);
    let hash = best_us(|| {
        black_box(blake3::hash(black_box(&chunk)));
    });
    let row = |what: &str, us: f64| println!("{what:<28}{us:>8.1} us{:>8.2} chunks", us / hash);
    row("hash a chunk of 64 KiB", hash);
    let draw = best_us(|| {
        black_box(NodeKey::draw()).expect("the system has random bytes");
    });
    let sign = best_us(|| {
        black_box(key.sign(black_box(&statement)));
    });
    let verify = best_us(|| assert!(key.verify(&public, black_box(&statement), &signature)));
    row("draw a key", draw);
    row("sign a statement", sign);
    row("verify a statement", verify);
}
