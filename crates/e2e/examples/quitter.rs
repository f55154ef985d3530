//! Takes the place of a daemon and ends: `vfield upgrade --program target/debug/examples/quitter`.
//!
//! It speaks as much of the line between a guard and its daemon as a successor has to.

use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::stdin;

fn main() {
    for word in ["!alive", "!ready"] {
        send(stdin(), word.as_bytes(), SendFlags::empty()).expect("a guard has started it");
    }
    let mut text = [0; 256];
    // Files come before; they are closed unseen.
    while recv(stdin(), &mut text[..], RecvFlags::empty())
        .is_ok_and(|(bytes, _)| bytes > 0 && !text.starts_with(b"!go"))
    {}
    std::process::exit(1);
}
