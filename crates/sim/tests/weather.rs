//! Faults of one machine during a storm, and their cost to the others, by `cargo sim -- storm
//! --event`.

use serde_json::Value;
use std::process::Command;

/// When the last of the others ends, as a multiple of the link's time for the image; 1.05 without a
/// fault, for headers.
fn last_of_the_others(dead: u64, seed: u64) -> f64 {
    let (event, seed) = (format!("4s:kill:{dead}"), seed.to_string());
    let done = Command::new(env!("CARGO_BIN_EXE_vfield-sim"))
        .args([
            "storm", "--nodes", "10", "--image", "64M", "--link", "50M", "--json", "--event", &event, "--seed", &seed,
        ])
        .output()
        .expect("the simulator runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: Value = serde_json::from_slice(&done.stdout).expect("one object");
    let nodes = said["nodes_over_limit"].as_array().expect("a list");
    let others = nodes.iter().filter(|node| node[0] != dead);
    others.map(|node| node[1].as_f64().expect("a number")).fold(0.0, f64::max)
}

/// The downstream of the dead machine asks the one before it for everything, which is more than
/// that has room for. It must not bypass it: the two would share one link's chunks, and the one
/// that fell behind would stay behind, with all that follow.
#[test]
fn no_node_falls_behind_when_its_upstream_dies() {
    for (dead, seed) in [(6, 3), (5, 1), (8, 3), (3, 2)] {
        let time = last_of_the_others(dead, seed);
        assert!(time <= 1.15, "{time} of what a link needs, without machine {dead}, seed {seed}");
    }
}
