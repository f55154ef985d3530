//! The programs of this crate, called as the benchmarks' pages print them.

use std::process::Command;

#[test]
fn the_measured_program_is_looked_for_beside_the_measuring_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let storm = dir.path().join("storm");
    std::fs::copy(env!("CARGO_BIN_EXE_storm"), &storm).expect("a copy");
    let done = Command::new(&storm).arg("storm").env_remove("VFIELD_BIN").output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    let wanted = format!("no program {}", dir.path().join("vfield").display());
    assert!(!done.status.success() && said.contains(&wanted), "{said}");
}
