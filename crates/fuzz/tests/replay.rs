//! Every target gets what it is to be fed in every test run: its seeds, and what a fuzzer has found
//! worth keeping.

use std::path::{Path, PathBuf};
use vfield_fuzz::{TARGETS, Target};

/// Longer files do not belong into the repository.
const FILE_BYTES_MAX: u64 = 2048;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The files of a target, in order.
fn files(target: &Target) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(corpus().join(target.name)).expect("each target has a corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

#[test]
fn every_target_keeps_its_promises() {
    for target in &TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| target.run(seed));
        target.run(b"");
        for path in files(target) {
            let bytes = std::fs::read(&path).expect("a file");
            // Told before, because a panic says nothing of it.
            eprintln!("{}", path.display());
            target.run(&bytes);
        }
    }
}

#[test]
fn the_corpora_are_those_of_the_targets_and_small() {
    let mut folders: Vec<_> = std::fs::read_dir(corpus())
        .expect("there are corpora")
        .map(|entry| entry.expect("a folder").file_name())
        .collect();
    folders.sort();
    assert_eq!(folders, TARGETS.map(|target| target.name));
    for path in TARGETS.iter().flat_map(files) {
        let length = path.metadata().expect("a file").len();
        assert!(length <= FILE_BYTES_MAX, "{}: {length} bytes", path.display());
    }
}

#[test]
fn each_target_has_its_row_among_the_benchmarks() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/fuzz.md");
    let page = std::fs::read_to_string(page).expect("the page of the fuzzer");
    let mut rows: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    rows.sort_unstable();
    assert_eq!(rows, TARGETS.map(|target| target.name));
}
