//! Storms of unequal machines, by `cargo sim -- storm --links` and its likes.

use serde_json::Value;
use std::process::Command;

/// The report of a storm of a cold room with an image of 4 MiB.
fn storm(args: &[&str]) -> Value {
    let done = Command::new(env!("CARGO_BIN_EXE_vfield-sim"))
        .args(["storm", "--image", "4M", "--json"])
        .args(args)
        .output()
        .expect("the simulator runs");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("one object")
}

/// A reader's time, as a multiple of what its own downlink needs.
fn own_link(report: &Value, machine: u64) -> f64 {
    let nodes = report["nodes_own_link"].as_array().expect("a list");
    let node = nodes.iter().find(|node| node[0] == machine).expect("the machine has read");
    node[1].as_f64().expect("a number")
}

fn number(report: &Value, member: &str) -> f64 {
    report[member].as_f64().unwrap_or_else(|| panic!("no {member} in {report}"))
}

#[test]
fn equal_links_are_the_link() {
    let (link, links) = (storm(&["-n", "6", "--link", "100M"]), storm(&["-n", "6", "--links", "100M"]));
    assert_eq!(link["trace"], links["trace"]);
    assert_eq!(number(&link, "finish_over_limit"), number(&links, "finish_over_limit"));
    for report in [link, links] {
        assert_eq!(report["own_link"], report["own_over_limit"]);
        assert_eq!(number(&report, "link_bytes_per_s"), 12_500_000.0);
        // 4 MiB at 100 Mbit/s: the downlink's time, as the uplinks together have one more.
        assert!((number(&report, "bound_s") - 0.3355).abs() < 0.001);
    }
}

#[test]
fn a_slow_downlink_bounds_the_time_of_its_machine() {
    let report = storm(&["-n", "3", "--links", "100M,10M/100M@3"]);
    let slow = own_link(&report, 3);
    assert!((1.0..1.2).contains(&slow), "{slow} of its own link's time");
    assert!((number(&report, "bound_s") - 3.355).abs() < 0.01);
}

#[test]
fn a_slow_uplink_of_the_origin_bounds_the_room() {
    let report = storm(&["-n", "3", "--links", "100M,100M/10M@0"]);
    let first = number(&report, "first_over_limit");
    assert!(first >= 10.0, "one has ended after {first} link times");
    let last = number(&report, "finish_over_bound");
    assert!((1.0..1.3).contains(&last), "{last} of the time of the origin's uplink");
}

#[test]
fn drawn_links_come_from_the_seed() {
    let drawn = |seed| storm(&["-n", "3", "--links", "1G:8", "--seed", seed])["bound_s"].clone();
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
}

/// A machine's own link becomes slower, and has its own rate again.
#[test]
fn events_divide_a_machines_own_rate() {
    let slow = storm(&["-n", "1", "--links", "100M,10M@1", "--event", "0s:slow:1:2"]);
    let time = own_link(&slow, 1);
    assert!((2.0..2.4).contains(&time), "{time} of its own link's time at half of its rate");
    let back = storm(&["-n", "1", "--links", "100M,10M@1", "--event", "0s:slow:1:2", "--event", "1s:back:1"]);
    let time = own_link(&back, 1);
    assert!((1.1..1.4).contains(&time), "{time} of its own link's time, a second of 3.4 at half of its rate");
}
