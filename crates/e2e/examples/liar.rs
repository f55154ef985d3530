//! Stands before a node and falsifies every chunk that it sends: `liar FRONT BACK`, two addresses.
//!
//! `storm storm --readers 20 --fronted 2 --front target/release/examples/liar` has a tenth of all
//! nodes lie.

use std::net::SocketAddr;
use vfield_e2e::liar::{Twist, twist};

fn main() {
    let addrs: Vec<SocketAddr> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [front, back] = addrs[..] else {
        eprintln!("liar: two addresses, where to listen and where the node does");
        std::process::exit(2);
    };
    if let Err(error) = twist(front, back, Twist::Flip) {
        eprintln!("liar: {front}: {error}");
        std::process::exit(1);
    }
    loop {
        std::thread::park();
    }
}
