//! Invalid options, scenario files and traces: each error is one line with an exit code of its own.

use std::path::PathBuf;
use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vfield-sim")).args(args).output().expect("the simulator runs")
}

/// The one line with the error.
#[track_caller]
fn refused(args: &[&str], code: i32) -> String {
    let output = sim(args);
    let line = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{args:?}: {line}");
    assert!(output.stdout.is_empty(), "{args:?} prints {:?}", String::from_utf8_lossy(&output.stdout));
    assert!(line.lines().count() == 1 && line.starts_with("sim: "), "{args:?}: {line:?}");
    line
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

#[test]
fn options_out_of_range_are_refused() {
    for (args, what) in [
        (&["storm", "--nodes", "0"][..], "--nodes"),
        (&["storm", "--nodes", "many"], "--nodes"),
        (&["storm", "--nodes", "9999999"], "--nodes"),
        (&["storm", "--image", "0"], "--image"),
        (&["storm", "--link", "9T"], "--link"),
        (&["storm", "--links", "100M,fast@3"], "is no rate"),
        (&["storm", "--links", "100M,10M@9..5"], "after @"),
        (&["storm", "--links", "100M,10M@3,5M@2..4"], "machine 3 has two links"),
        (&["storm", "--links", "100M,10M"], "both for all"),
        (&["storm", "--links", "10M@6", "-n", "5"], "the last one is 5"),
        (&["boot", "--links", "10M@6", "-n", "5"], "the last one is 5"),
        (&["storm", "--links", "/no/such/file"], "nor a file"),
        (&["storm", "--links", ""], "--links"),
        (&["storm", "--burst", "some"], "--burst"),
        (&["storm", "--busy", "0@1"], "--busy"),
        (&["storm", "--busy", "20@6", "-n", "5"], "the last one is 5"),
        (&["storm", "--think", "fast@1"], "--think"),
        (&["storm", "--think", "1s@6", "-n", "5"], "the last one is 5"),
        (&["storm", "--chunk", "3K"], "--chunk"),
        (&["storm", "--store", "101%"], "--store"),
        (&["storm", "--zone-size", "0"], "--zone-size"),
        (&["storm", "--depth", "0"], "--depth"),
        (&["storm", "--event", "3s:dance:1"], "--event"),
        (&["storm", "--event", "3s:kill:99", "-n", "5"], "no such machine"),
        (&["boot", "--percent", "0"], "--percent"),
        (&["idle", "--for", "0s"], "--for"),
        (&["chaos", "--seeds", "5..5"], "--seeds"),
        (&["chaos", "--seeds", "7"], "--seeds"),
        (&["storm", "--no-such-option"], "--no-such-option"),
        (&["tempest"], "tempest"),
        (&["--hours=-1"], "--hours"),
        (&["--hours", "0"], "--hours"),
        (&["--hours", "1", "storm"], "--hours"),
    ] {
        let line = refused(args, 2);
        assert!(line.contains(what), "{args:?}: {line}");
    }
}

#[test]
fn runs_above_the_memory_bound_are_refused_or_stopped() {
    let small = &["storm", "-n", "40", "--image", "4M", "--memory", "1M"];
    let line = refused(small, 2);
    assert!(line.contains("would take") && line.contains("--force"), "{line}");
    let line = refused(&[&small[..], &["--force"]].concat(), 2);
    assert!(line.contains("stopped") && line.contains("--memory"), "{line}");
}

#[test]
fn contradictions_are_refused() {
    for (args, what) in [
        (&["storm", "--origin-gone"][..], "--warm"),
        (&["storm", "--zone-uplink", "1G"], "--zone-size"),
        (&["storm", "--event", "3s:kill:1", "--event", "4s:slow:1:10"], "gone by then"),
        (&["storm", "--event", "2h:kill:1"], "--limit"),
        (&["storm", "--stagger", "1h"], "--limit"),
        (&["storm", "--warm", "--origin-gone", "--event", "3s:kill:0"], "gone already"),
        (&["storm", "--nodes", "100000", "--image", "1T"], "--force"),
    ] {
        let line = refused(args, 2);
        assert!(line.contains(what), "{args:?}: {line}");
    }
}

#[test]
fn scenario_files_say_where_they_are_wrong() {
    let at = |path: &PathBuf| format!("@{}", path.display());
    let line = refused(&["storm", &at(&file("words.txt", "# a storm\n--nodes 5\nnodes 6\n"))], 2);
    assert!(line.contains("line 3"), "{line}");
    let line = refused(&["storm", &at(&file("twice.txt", "--nodes 5\n--nodes 6\n"))], 2);
    assert!(line.contains("--nodes") && line.contains("multiple times"), "{line}");
    let line = refused(&["storm", &at(&file("gone.txt", "--origin-gone # but cold\n"))], 2);
    assert!(line.contains("--warm"), "{line}");
    let line = refused(&["storm", "@/no/such/file"], 2);
    assert!(line.contains("/no/such/file"), "{line}");

    let small = file("small.txt", "# as typed\n--nodes 3\n--image 2M\n");
    let output = sim(&["storm", &at(&small), "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn traces_of_another_version_are_told_apart_from_what_is_no_trace() {
    let old = r#"{"vfield_sim_trace":{"format":0,"version":"0.0.1","protocol":1,"seed":1,"violation":"","steps":1,"hash":""}}"#;
    let old = file("old.json", old);
    let line = refused(&["replay", &old.display().to_string()], 7);
    assert!(line.contains("another version"), "{line}");
    for text in ["", "{}", "[1, 2]", "no trace\n"] {
        let line = refused(&["replay", &file("none.json", text).display().to_string()], 2);
        assert!(line.contains("is no trace"), "{line}");
    }
    refused(&["replay", "/no/such/trace"], 2);
}

/// The JSON objects have at least these members.
#[test]
fn objects_for_scripts_have_what_they_promise() {
    let storm = sim(&["storm", "-n", "5", "--image", "2M", "--zone-size", "3", "--json"]);
    let chaos = sim(&["chaos", "--seeds", "0..2", "--json"]);
    for (output, members) in [
        (storm, &["finish_over_limit", "origin_copies", "zone_copies", "control_share", "seed"][..]),
        (chaos, &["runs", "violations"]),
    ] {
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert!(members.iter().all(|member| object[member].is_number()), "{object}");
    }
}
