//! `make install` and `make uninstall`, into a directory that stands for a machine's root.

use std::path::{Path, PathBuf};
use std::process::Command;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::need::{Need, have};

const PREFIX: &str = "/opt/field";

/// All files below a directory, without it.
fn files(root: &Path) -> Vec<String> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let (mut open, mut found) = (below(root), Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(below(&path));
        } else {
            let name = path.strip_prefix(root).expect("it is below");
            found.push(name.display().to_string());
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_installed_runs_and_what_is_uninstalled_is_gone() -> Outcome {
    if !have(&[Need::Tool("make"), Need::Tool("strip")]) {
        return Ok(());
    }
    let program = vfield().path().to_owned();
    let root = std::env::temp_dir().join(format!("vfield-install-{}", std::process::id()));
    let make = |goal: &str| {
        let mut make = Command::new("make");
        make.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).arg(goal);
        make.arg(format!("PREFIX={PREFIX}")).arg(format!("DESTDIR={}", root.display()));
        make.arg(format!("PROGRAM={}", program.display())).output()
    };
    let made = make("install")?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let installed = files(&root);
    for wanted in [
        "bin/vfield",
        "share/man/man1/vfield.1",
        "share/man/man1/vfield-join.1",
        "share/bash-completion/completions/vfield",
        "share/zsh/site-functions/_vfield",
        "share/fish/vendor_completions.d/vfield.fish",
    ] {
        assert!(installed.contains(&format!("{}/{wanted}", &PREFIX[1..])), "{wanted} of {installed:#?}");
    }
    let inside = root.join(&PREFIX[1..]);
    let ran = Command::new(inside.join("bin/vfield")).arg("--version").output()?;
    assert!(ran.status.success() && ran.stdout.starts_with(b"vfield "));
    let length = |path: &Path| std::fs::metadata(path).map(|file| file.len());
    assert!(length(&inside.join("bin/vfield"))? < length(&program)?, "it is stripped");

    let units: Vec<&String> = installed.iter().filter(|name| name.ends_with(".service")).collect();
    assert!(!units.is_empty(), "{installed:#?}");
    for unit in units {
        let text = std::fs::read_to_string(root.join(unit))?;
        let starts: Vec<&str> = text.lines().filter(|line| line.starts_with("ExecStart=")).collect();
        let ours = format!("ExecStart={PREFIX}/bin/vfield ");
        assert!(!starts.is_empty() && starts.iter().all(|line| line.starts_with(&ours)), "{unit}: {starts:?}");
    }

    // What others have put there stays.
    let foreign = inside.join("share/man/man1/other.1");
    std::fs::write(&foreign, "")?;
    let made = make("uninstall")?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(files(&root), [format!("{}/share/man/man1/other.1", &PREFIX[1..])]);
    std::fs::remove_dir_all(&root)?;
    Ok(())
}

#[test]
fn a_program_that_was_not_built_is_not_installed() -> Outcome {
    if !have(&[Need::Tool("make")]) {
        return Ok(());
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new("make").arg("-C").arg(workspace).args(["install", "PROGRAM=/nowhere/vfield"]).output()?;
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(!made.status.success() && said.contains("PROGRAM=/nowhere/vfield is not there"), "{said}");
    Ok(())
}
