//! Whole fields of cores with a virtual clock: their promises to each other and to readers.
//!
//! Every event of every test also passes the checks of [`vfield_sim::checks`].

mod admitting;
mod apart;
mod explaining;
mod faults;
mod idle;
mod joining;
mod leaving;
mod placement;
mod reading;
mod rubbish;
mod scattered;
mod slices;
mod stagger;
mod storms;
mod tagging;
mod versions;
mod waiting;
mod zones;

use std::time::Duration;
use vfield_sim::field::Field;
use vfield_sim::original::Original;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A field of one image of 603 chunks (600 of data, two hash pages and the top page), with an
/// origin.
fn one_image(seed: u64) -> Field {
    let mut field = Field::new(seed, vec![Original::dense(1, 600)]);
    field.origin(None, &[0]);
    field
}

/// An origin and `count` nodes that hold `capacity` chunks each, started one after the other, as by
/// a person or a script; returns the numbers of the nodes.
fn field_of(seed: u64, count: usize, capacity: u64) -> (Field, Vec<usize>) {
    let mut field = one_image(seed);
    let start = |_| {
        field.run(ms(20));
        field.join(0, &[(0, capacity)])
    };
    let nodes = (0..count).map(start).collect();
    (field, nodes)
}

/// The same, when all stores are full and all know it.
fn filled_field(seed: u64, count: usize, capacity: u64) -> (Field, Vec<usize>) {
    let (mut field, nodes) = field_of(seed, count, capacity);
    field.until("stores filled", secs(20), |field| field.filled(&nodes));
    field.run(secs(3));
    (field, nodes)
}
