//! The program `cycles`: the bare processes come to their end, and what they took is told.

use std::process::Command;

#[test]
fn bare_processes_move_an_image_in_each_row() {
    let dir = tempfile::tempdir().expect("a directory");
    let told = dir.path().join("runs.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cycles"));
    // No multiple of a chunk.
    command.args(["--size", "1000001", "--rounds", "2", "--way", "bare", "--way", "fresh", "--json"]).arg(&told);
    let done = command.output().expect("the program runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(&told).expect("it tells of its runs");
    let runs: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object on each line")).collect();
    let ways: Vec<_> = runs.iter().map(|run| (run["row"].as_str(), run["way"].as_str())).collect();
    let both = |row| [(row, "bare"), (row, "fresh"), (row, "bare"), (row, "fresh")];
    let wanted = [&both("fill")[..], &both("pair"), &[("read", "bare"), ("read", "bare")]].concat();
    assert_eq!(ways, wanted.iter().map(|(row, way)| (Some(*row), Some(*way))).collect::<Vec<_>>());
    assert!(runs.iter().all(|run| run["seconds"].as_f64() > Some(0.0) && run["size_bytes"] == 1_000_001));
}

#[test]
fn it_says_what_it_cannot_measure() {
    let refused = |words: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_cycles")).args(words).output().expect("the program runs");
        assert_eq!(done.status.code(), Some(2));
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert!(refused(&["fill", "--vfield", "/nowhere"]).contains("no program /nowhere"));
    assert!(refused(&["fill", "--way", "bare", "--rounds", "0"]).contains("at least one round"));
}
