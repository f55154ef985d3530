//! The program under test: named by `VFIELD_BIN`, or built as the tests were.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use vfield_lab::Vfield;

/// The program, built at first use unless `VFIELD_BIN` names one.
///
/// # Panics
/// If there is none.
pub fn vfield() -> Vfield {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Vfield::at(PROGRAM.get_or_init(|| match std::env::var_os("VFIELD_BIN") {
        Some(path) => std::fs::canonicalize(&path).unwrap_or_else(|error| panic!("VFIELD_BIN {path:?}: {error}")),
        None => build(),
    }))
}

/// An example of this crate, built at each use.
///
/// # Panics
/// If it cannot be built.
pub fn example(name: &str) -> PathBuf {
    cargo_builds(&["--example", name]).join("examples").join(name)
}

/// Has cargo bring the program up to date.
fn build() -> PathBuf {
    cargo_builds(&["--bin", "vfield"]).join("vfield")
}

/// Has cargo build something in the profile of this test; the directory of that profile.
fn cargo_builds(what: &[&str]) -> PathBuf {
    // <target>/<profile>/deps/<test>
    let test = std::env::current_exe().expect("a running program has a path");
    let dir = test.ancestors().nth(2).expect("cargo puts tests into deps/").to_owned();
    let profile = match dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => panic!("{} is not in a profile's directory", test.display()),
    };
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo has told this test of its own package. Build scripts that read it would run anew,
    // now and with the next cargo, and so would the build of all that stands on their crates.
    let is_told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_told)) {
        cargo.env_remove(name);
    }
    // With --package, cargo would choose other features of the crates below, and build all anew.
    let status = cargo
        .args(["build", "--quiet", "--workspace", "--profile", profile])
        .args(what)
        .arg("--target-dir")
        .arg(dir.parent().expect("a profile lies in the target directory"))
        .current_dir(workspace)
        .status()
        .expect("cargo ran this test");
    assert!(status.success(), "{what:?} cannot be built");
    dir
}
