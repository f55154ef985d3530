//! `make install` and `make uninstall`, into a directory that stands for a machine's root.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::need::{Need, have};

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

/// `make GOAL` in the checkout. It speaks as if a person had typed it, although this test may be
/// part of `make test`.
fn make_of(goal: &str) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).arg(goal);
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    make
}

/// `make GOAL PREFIX=... DESTDIR=... PROGRAM=...` in the checkout.
fn make(goal: &str, prefix: &str, root: &Path, program: &Path) -> std::io::Result<Output> {
    let mut make = make_of(goal);
    make.arg(format!("PREFIX={prefix}")).arg(format!("DESTDIR={}", root.display()));
    make.arg(format!("PROGRAM={}", program.display())).output()
}

/// Fails with its errors, unless it went well.
fn well(made: &Output) {
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Fails unless it failed with one line of its own and make's that says `why`.
fn refused(made: &Output, why: &str) {
    let said = String::from_utf8_lossy(&made.stderr);
    let own: Vec<&str> = said.lines().filter(|line| !line.starts_with("make: ")).collect();
    assert!(!made.status.success() && own.len() == 1 && own[0].contains(why), "{said}");
}

/// A folder for one test, with a space in its name, that goes with it.
fn scratch() -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("vfield install ").tempdir()
}

#[test]
fn what_is_installed_runs_and_what_is_uninstalled_is_gone() -> Outcome {
    if !have(&[Need::Tool("make"), Need::Tool("strip")]) {
        return Ok(());
    }
    let program = vfield().path().to_owned();
    let scratch = scratch()?;
    let root = scratch.path().join("root");
    for prefix in ["/opt/field", "/opt/my field"] {
        well(&make("install", prefix, &root, &program)?);
        let installed = files(&root);
        for wanted in [
            "bin/vfield",
            "share/man/man1/vfield.1",
            "share/man/man1/vfield-join.1",
            "share/bash-completion/completions/vfield",
            "share/zsh/site-functions/_vfield",
            "share/fish/vendor_completions.d/vfield.fish",
            "lib/firewalld/services/vfield.xml",
            "lib/firewalld/services/vfield-netboot.xml",
        ] {
            assert!(installed.contains(&format!("{}/{wanted}", &prefix[1..])), "{wanted} of {installed:#?}");
        }
        let inside = root.join(&prefix[1..]);
        let ran = Command::new(inside.join("bin/vfield")).arg("--version").output()?;
        assert!(ran.status.success() && ran.stdout.starts_with(b"vfield "));
        let length = |path: &Path| std::fs::metadata(path).map(|file| file.len());
        assert!(length(&inside.join("bin/vfield"))? < length(&program)?, "it is stripped");

        let units: Vec<&String> = installed.iter().filter(|name| name.ends_with(".service")).collect();
        assert!(!units.is_empty(), "{installed:#?}");
        for unit in units {
            let text = std::fs::read_to_string(root.join(unit))?;
            let starts: Vec<&str> = text.lines().filter(|line| line.starts_with("ExecStart=")).collect();
            let quote = if prefix.contains(' ') { "\"" } else { "" };
            let ours = format!("ExecStart={quote}{prefix}/bin/vfield{quote} ");
            assert!(!starts.is_empty() && starts.iter().all(|line| line.starts_with(&ours)), "{unit}: {starts:?}");
        }

        let bytes = |names: &[String]| -> Vec<Vec<u8>> {
            names.iter().map(|name| std::fs::read(root.join(name)).expect("it is installed")).collect()
        };
        let before = bytes(&installed);
        well(&make("install", prefix, &root, &program)?);
        assert_eq!(files(&root), installed, "a second installation adds and removes nothing");
        assert!(bytes(&installed) == before, "a second installation changes nothing");

        // What others have put there stays.
        let foreign = inside.join("share/man/man1/other.1");
        std::fs::write(&foreign, "")?;
        well(&make("uninstall", prefix, &root, &program)?);
        assert_eq!(files(&root), [format!("{}/share/man/man1/other.1", &prefix[1..])]);
        // Without it no folder is left either, and there may be nothing to remove.
        std::fs::remove_file(&foreign)?;
        for _ in 0..2 {
            well(&make("uninstall", prefix, &root, &program)?);
            let left: Vec<_> = std::fs::read_dir(&inside)?.flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }
        std::fs::remove_dir(&inside)?;
    }
    Ok(())
}

#[test]
fn places_that_cannot_be_are_refused_before_anything_is_written() -> Outcome {
    if !have(&[Need::Tool("make"), Need::Tool("strip")]) {
        return Ok(());
    }
    let program = vfield().path().to_owned();
    let scratch = scratch()?;
    let file = scratch.path().join("file");
    std::fs::write(&file, "")?;
    for goal in ["install", "uninstall"] {
        refused(&make(goal, "relative", Path::new(""), &program)?, "PREFIX=relative is not a path from the root");
        refused(&make(goal, "/opt/50%", scratch.path(), &program)?, "characters that a systemd unit cannot name");
        refused(&make(goal, "/opt", &file, &program)?, "cannot be written to");
    }
    // A program that cannot tell its manual.
    refused(&make("install", "/opt", scratch.path(), &file)?, "is not there");
    assert_eq!(files(scratch.path()), ["file"]);
    Ok(())
}

#[test]
fn a_program_that_was_not_built_is_not_installed() -> Outcome {
    if !have(&[Need::Tool("make")]) {
        return Ok(());
    }
    let made = make_of("install").arg("PROGRAM=/nowhere/vfield").output()?;
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(!made.status.success() && said.contains("PROGRAM=/nowhere/vfield is not there"), "{said}");
    Ok(())
}

/// A checkout that has what `make install` looks at. Its `scripts/static` says that it ran, and
/// takes this program as it is.
fn checkout(of: &Path) -> std::io::Result<()> {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for folder in ["scripts", "crates", "dist/systemd", "dist/firewalld"] {
        std::fs::create_dir_all(of.join(folder))?;
    }
    for file in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "crates/source.rs", "dist/firewalld/one.xml"] {
        std::fs::write(of.join(file), "")?;
    }
    std::fs::copy(real.join("scripts/install"), of.join("scripts/install"))?;
    let built =
        format!("#!/bin/sh\necho built\nmkdir -p \"${{1%/*}}\"\nexec cp '{}' \"$1\"\n", vfield().path().display());
    std::fs::write(of.join("scripts/static"), built)?;
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(of.join("scripts/static"), all)
}

#[test]
fn a_program_older_than_its_sources_is_built_anew() -> Outcome {
    if !have(&[Need::Tool("strip")]) {
        return Ok(());
    }
    let scratch = scratch()?;
    let checkout_of = scratch.path().join("check out");
    checkout(&checkout_of)?;
    let builds = || -> std::io::Result<bool> {
        let mut install = Command::new("sh");
        install.current_dir(&checkout_of).env_remove("CARGO_TARGET_DIR").env_remove("PROGRAM").env("PREFIX", "/usr");
        let made = install.env("DESTDIR", scratch.path().join("root")).args(["scripts/install", "install"]).output()?;
        well(&made);
        Ok(String::from_utf8_lossy(&made.stdout).lines().any(|line| line == "built"))
    };
    let built_at = || std::fs::metadata(checkout_of.join("target/static/vfield")).and_then(|file| file.modified());
    assert!(builds()?, "there was none");
    assert!(!builds()?, "it is as new as its sources");
    for file in ["crates/source.rs", "Cargo.lock"] {
        let pulled = built_at()? + std::time::Duration::from_secs(1);
        std::fs::File::options().append(true).open(checkout_of.join(file))?.set_modified(pulled)?;
        assert!(builds()?, "{file} is newer");
        // As new as a file that was written just now.
        std::fs::File::options().append(true).open(checkout_of.join(file))?.set_modified(built_at()?)?;
        assert!(!builds()?, "it was built of this {file}");
    }
    Ok(())
}

/// `integration/install WORD...` in the checkout.
fn integration(words: &[&Path]) -> std::io::Result<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration/install");
    Command::new("sh").arg(script).args(words).output()
}

#[test]
fn beside_an_installation_an_initramfs_gets_no_file_of_it() -> Outcome {
    if !have(&[Need::Tool("make"), Need::Tool("strip")]) {
        return Ok(());
    }
    let program = vfield().path().to_owned();
    let scratch = scratch()?;
    let (whole, small) = (scratch.path().join("whole"), scratch.path().join("small"));
    well(&make("install", "/usr", &whole, &program)?);
    well(&integration(&[Path::new("--initramfs"), &program, &small])?);
    let (theirs, ours) = (files(&whole), files(&small));
    let both: Vec<&String> = ours.iter().filter(|name| theirs.contains(name)).collect();
    assert!(both.is_empty(), "two packages would have {both:?}");
    let own = "usr/lib/vfield/initramfs/vfield";
    assert!(ours.iter().any(|name| name == own), "{ours:#?}");

    // An installation of all of it leaves none that the next initramfs would have instead.
    well(&integration(&[&program, &small])?);
    let all = files(&small);
    assert!(!all.iter().any(|name| name == own) && all.iter().any(|name| name == "usr/bin/vfield"), "{all:#?}");
    let lost: Vec<&String> = ours.iter().filter(|name| *name != own && !all.contains(name)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    Ok(())
}

#[test]
fn an_initramfs_is_not_installed_by_wrong_words() -> Outcome {
    let scratch = scratch()?;
    let program = Path::new("/bin/sh");
    let root = scratch.path();
    let (option, nothing) = (Path::new("--initramfs"), root.join("nothing"));
    let wrong: [&[&Path]; 5] = [&[], &[option], &[program, option], &[Path::new("-x"), root], &[program, root, root]];
    for words in wrong {
        let done = integration(words)?;
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.starts_with("usage: "), "{words:?}: {said}");
    }
    for words in [vec![nothing.as_path(), root], vec![option, &nothing, root]] {
        refused(&integration(&words)?, "is not a program");
    }
    assert!(files(root).is_empty());
    Ok(())
}
