//! Storms of unequal machines, by `cargo sim -- storm --links` and its likes.

use serde_json::Value;
use std::process::Command;
use vfield_sim::report::Spread;

/// The report of a storm, with an image of 4 MiB unless another one is asked for.
fn storm(args: &[&str]) -> Value {
    let image = if args.contains(&"--image") { &[][..] } else { &["--image", "4M"] };
    let done = Command::new(env!("CARGO_BIN_EXE_vfield-sim"))
        .args(["storm", "--json"])
        .args(image)
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

/// The middle one of so many runs, each with a seed of its own: some are unlucky.
fn usual(runs: usize, run: impl Fn(&str) -> f64) -> f64 {
    Spread::of((1..=runs).map(|seed| run(&seed.to_string()))).median
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

/// An image that fits into the buckets of both links.
#[test]
fn a_burst_passes_at_once() {
    let room = ["-n", "1", "--image", "2M", "--link", "1M", "--warm", "--store", "0"];
    let time = |burst| number(&storm(&[&room[..], &["--burst", burst]].concat()), "finish_over_limit");
    let (without, with) = (time("0"), time("4M"));
    assert!(without >= 1.0 && with < 0.5, "{without} of the link's time without a burst, {with} with one");
}

#[test]
fn a_busy_machine_takes_its_time() {
    let time = |busy| own_link(&storm(&["-n", "1", "--link", "1G", "--busy", busy]), 1);
    let (idle, busy) = (time("1@1"), time("100@1"));
    // A second and a half for each GB that comes, a hundred times, beside 8 s for each GB on the
    // link.
    assert!(idle < 2.0 && (12.0..35.0).contains(&busy), "{idle} and {busy} of its own link's time");
}

/// Sixteen blocks of 256 KiB.
#[test]
fn a_reader_that_thinks_takes_as_long_as_that() {
    let finish = |think| number(&storm(&["-n", "1", "--link", "1G", "--think", think]), "finish_s");
    let (quick, slow) = (finish("0@1"), finish("1s@1"));
    assert!(quick < 0.5 && (16.0..16.5).contains(&slow), "{quick} s and {slow} s");
}

/// One machine of ten has a tenth of the others' link. In the order of joining, all behind it in
/// the chain took ten times as long. If it is the first, no link behind it is busy.
#[test]
fn a_slow_machine_slows_no_other_down() {
    for place in ["100M,10M@1", "100M,10M@2", "100M,10M@5"] {
        let report = storm(&["-n", "10", "--image", "32M", "--links", place, "--stagger", "10ms"]);
        let times: Vec<f64> = (1..=10).map(|machine| own_link(&report, machine)).collect();
        assert!(times.iter().all(|time| *time < 1.5), "{place}: {times:?} of their own links' times");
        assert!(number(&report, "origin_copies") < 1.3, "{place}: the origin sent {}", report["origin_copies"]);
    }
}

/// Half of a room has old cables, and each network card tells its own. Without that the first
/// seconds go by before the speeds are known: then some take two to six times as long.
#[test]
fn cards_tell_of_bad_cables_before_anything_is_measured() {
    for (nodes, links, most) in [("20", "100M,20M@1..20/2", 1.4), ("30", "100M,25M@15", 1.3)] {
        let report = storm(&["-n", nodes, "--image", "64M", "--store", "6%", "--links", links, "--cards", "true"]);
        let times: Vec<f64> = (1..=nodes.parse().unwrap()).map(|machine| own_link(&report, machine)).collect();
        assert!(times.iter().all(|time| *time < most), "{links}: {times:?}");
    }
}

/// The same room without cards on the next morning: each machine remembers what it measured.
#[test]
fn machines_remember_what_they_measured() {
    let links = "100M,20M@1..20/2";
    let report = storm(&[
        "-n",
        "20",
        "--image",
        "64M",
        "--store",
        "6%",
        "--links",
        links,
        "--remembered",
        "true",
        "--seed",
        "3",
    ]);
    let times: Vec<f64> = (1..=20).map(|machine| own_link(&report, machine)).collect();
    assert!(times.iter().all(|time| *time < 1.5), "{times:?}");
}

/// A card knows its own cable only. Where the network behind it is slow, its word does no harm.
#[test]
fn cards_that_promise_too_much_do_no_harm() {
    let report = storm(&["-n", "10", "--image", "64M", "--links", "100M,10M@5", "--cards", "same"]);
    let times: Vec<f64> = (1..=10).map(|machine| own_link(&report, machine)).collect();
    assert!(times.iter().all(|time| *time < 1.5), "{times:?}");
}

/// Operators let half of a room send a tenth of what it takes in. In the order of what each passes
/// on, such machines took from each other, at a tenth: eight times what all ways out allow. Beside
/// ten of them the next of the chain had an eleventh of each link: 1.6 to 2.3 times.
#[test]
fn machines_that_may_send_little_still_take_in_much() {
    let links = "100M,100M/10M@1..20/2";
    for warm in [&[][..], &["--warm"]] {
        let room = ["-n", "20", "--image", "64M", "--store", "6%", "--links", links, "--limited"];
        let last = usual(5, |seed| number(&storm(&[&room, warm, &["--seed", seed]].concat()), "finish_over_bound"));
        assert!(last < 1.6, "{last} times what all ways out allow, {warm:?}");
    }
}

/// A machine between slow ones sees their rate only. With this seed the one behind the slow machine
/// took itself for slow, and was: ten times its own time.
#[test]
fn a_machine_behind_a_slow_one_finds_out_that_it_is_fast() {
    for (slow, seed) in [(3, "2"), (6, "2")] {
        let links = format!("100M,10M@{slow}");
        let report = storm(&["-n", "10", "--image", "64M", "--links", &links, "--seed", seed]);
        let times: Vec<f64> = (1..=10).map(|machine| own_link(&report, machine)).collect();
        assert!(times.iter().all(|time| *time < 1.4), "{slow}, {seed}: {times:?}");
    }
}

/// A slow machine among filled stores, each chunk in three of them: nobody takes chunks from it.
#[test]
fn a_slow_holder_slows_no_other_down() {
    let others = || (1..=10).filter(|machine| *machine != 3);
    let slowest = |links| {
        // One in five takes half as long again.
        usual(9, |seed| {
            let room = ["-n", "10", "--image", "32M", "--store", "30%", "--links", links, "--warm", "--seed", seed];
            let report = storm(&room);
            others().map(|machine| own_link(&report, machine)).fold(0.0, f64::max)
        })
    };
    let (equal, worst) = (slowest("100M"), slowest("100M,10M@3"));
    assert!(worst < equal * 1.4, "{worst} of the link's time, {equal} if all are equal");
}
