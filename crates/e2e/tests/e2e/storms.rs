//! Everybody reads everything at once, over thin links: whatever befalls some, the others get every
//! byte, soon, and the origin sends little more than one image.

use vfield_e2e::{Outcome, program};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_measure::storm::{Event, Plan, Programs, Sample, play_role, run};

/// A freeze, by far more than the second that is promised: the machine that tests may be busy with
/// other things. With six storms at once on two processors the longest gap was 1.2 s.
const FREEZE_S: f64 = 4.0;
/// Wake-ups for a chunk over one hop: its holder, the node that wants it, the reader, and the node
/// for the next request. Each may be as late as a thread that only sleeps. Beside 40 to 65 runnable
/// processes that was 1.2 and 1.8 s, with gaps of 5.1 and 6.4 s.
const WAKE_UPS: f64 = 4.0;
/// Storms of which one has to spare the origin. On a machine with much other work holders answer
/// late, and then nodes rightly ask the origin. Beside another run of all tests and two builds,
/// readers took eight times as long as their links did, and the origin sent 1.74 images.
const STORMS: usize = 4;

/// Not a test: what the processes of the hosts run, this program being their program as well.
#[test]
#[ignore = "run by other tests"]
fn process_of_a_host() {
    play_role();
}

fn storm(plan: &Plan) -> Result<Sample, vfield_lab::LabError> {
    let words = ["--exact", "storms::process_of_a_host", "--ignored", "--nocapture"].map(str::to_owned);
    let this = std::env::current_exe().expect("a running program has a path");
    let vfield = program::vfield().path().to_owned();
    run(plan, &Programs { helper: (this, words.to_vec()), vfield, front: None })
}

fn all_but(sample: &Sample, spared: usize) {
    assert!(sample.errors.is_empty(), "{:?} {}", sample.errors, sample.line());
    assert_eq!(sample.ok + spared, sample.nodes.len(), "{}", sample.line());
    let untouched = sample.nodes.iter().filter(|node| node.fate.is_none());
    let longest = untouched.map(|node| node.longest_gap_s).fold(0.0, f64::max);
    let bound_s = FREEZE_S + WAKE_UPS * sample.latest_pulse_s;
    assert!(longest < bound_s, "{longest} s without a byte, not {bound_s} s: {}", sample.line());
}

#[test]
fn bad_weather_in_a_storm_stops_nobody_else() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    for (events, spared) in
        [(vec!["0.8s:kill:2", "1.1s:leave:4"], 2), (vec!["0.9s:stop:3"], 1), (vec!["1.0s:join:2"], 0)]
    {
        let events: Vec<Event> = events.iter().map(|event| event.parse().expect("an event")).collect();
        let sample = storm(&Plan { readers: 6, size_bytes: 24 * MIB, events, limit_s: 90.0, ..Plan::default() })?;
        all_but(&sample, spared);
        assert!(sample.origin_copies < 2.0, "{}", sample.line());
    }
    Ok(())
}

/// Stores that hold a third of the image together, and none at all: the origin sends it about once
/// all the same.
#[test]
fn a_storm_on_little_memory_loads_the_origin_about_once() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    for store in ["4%", "0"] {
        let plan = Plan { readers: 8, size_bytes: 24 * MIB, store: store.to_owned(), limit_s: 90.0, ..Plan::default() };
        let mut lines = Vec::new();
        while lines.len() < STORMS {
            let sample = storm(&plan)?;
            all_but(&sample, 0);
            if sample.origin_copies < 1.6 {
                break;
            }
            lines.push(sample.line());
        }
        assert!(lines.len() < STORMS, "store {store}: {}", lines.join("\n"));
    }
    Ok(())
}
