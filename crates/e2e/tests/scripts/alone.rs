//! The project's scripts far from home: in a path with spaces, without git, without tools, without
//! a network. Nothing here builds or installs anything.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vfield_e2e::Outcome;
use vfield_lab::need::{Need, have};

/// Programs that a script may take for granted.
const EVERYWHERE: [&str; 18] = [
    "bash", "sh", "env", "make", "cat", "cut", "dirname", "echo", "grep", "head", "mkdir", "mktemp", "realpath", "rm",
    "sed", "sort", "uname", "python3",
];
/// Targets that need no tool.
const NEED_NOTHING: [&str; 3] = ["help", "figures", "clean"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Copies a folder, but for what git and cargo keep there.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if entry.file_name() == ".git" || entry.file_name() == "target" {
            continue;
        } else if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A checkout as an archive unpacks it, below a path with spaces.
struct Unpacked {
    scratch: tempfile::TempDir,
    root: PathBuf,
}

impl Unpacked {
    fn new() -> std::io::Result<Self> {
        let scratch = tempfile::Builder::new().prefix("vfield scripts ").tempdir()?;
        let root = scratch.path().join("a field");
        copy(&workspace(), &root)?;
        Ok(Self { scratch, root })
    }

    /// A command in it, that builds, if it does, in another place with spaces.
    fn command(&self, words: &str) -> Command {
        let mut words = words.split(' ');
        let mut command = Command::new("env");
        command.args(words.by_ref()).current_dir(&self.root);
        command.env("CARGO_TARGET_DIR", self.scratch.path().join("a target")).env("CARGO_NET_OFFLINE", "true");
        // Of the cargo that runs this test: the scripts are to find their own.
        command.env_remove("CARGO").env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        command
    }

    /// An empty folder in it.
    fn folder(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.scratch.path().join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }
}

/// Lines of stderr that are not make's own.
fn said(done: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&done.stderr);
    text.lines().filter(|line| !line.starts_with("make: ")).map(str::to_owned).collect()
}

#[test]
fn scripts_work_in_a_path_with_spaces_and_without_git() -> Outcome {
    if !have(&[Need::Tool("make"), Need::Tool("python3"), Need::File("/usr/bin/python3")]) {
        return Ok(());
    }
    let unpacked = Unpacked::new()?;
    for words in [
        "make help",
        "scripts/book --check",
        "scripts/figures --check",
        "scripts/words --check",
        "scripts/licences",
        "scripts/faults --list",
        "scripts/scale --list",
        "scripts/storm-table --help",
        "scripts/bench-attach --help",
        "scripts/bench-boot --help",
        "scripts/cast --help",
    ] {
        let done = unpacked.command(words).output()?;
        let [said, errors] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(done.status.success(), "{words}: {errors}{said}");
    }
    assert!(!unpacked.scratch.path().join("a target").exists(), "nothing was built");
    Ok(())
}

#[test]
fn licences_follow_the_rules() -> Outcome {
    if !have(&[Need::Tool("python3")]) {
        return Ok(());
    }
    let unpacked = Unpacked::new()?;
    let rules = unpacked.root.join("deny.toml");
    let text = std::fs::read_to_string(&rules)?;
    for (from, to, wrong) in [
        ("    \"Unicode-3.0\",\n", "", "unicode-ident 1"),
        ("\"bincode\"", "\"blake3\"", "blake3 1"),
        ("\"syn@2\"", "\"syn@1\"", "syn: "),
    ] {
        assert!(text.contains(from), "deny.toml has {from}");
        std::fs::write(&rules, text.replace(from, to))?;
        let done = unpacked.command("scripts/licences").output()?;
        let lines = said(&done);
        assert!(!done.status.success() && lines.len() == 1 && lines[0].starts_with(wrong), "{wrong}: {lines:?}");
    }
    Ok(())
}

#[test]
fn each_target_says_in_one_line_what_is_missing() -> Outcome {
    if !have(&[Need::Tool("make"), Need::Tool("python3")]) {
        return Ok(());
    }
    let unpacked = Unpacked::new()?;
    let (bin, home) = (unpacked.folder("bin")?, unpacked.folder("home")?);
    for tool in EVERYWHERE {
        let found = ["/usr/bin", "/bin"].into_iter().map(|dir| Path::new(dir).join(tool)).find(|path| path.is_file());
        std::os::unix::fs::symlink(found.unwrap_or_else(|| panic!("{tool} is missing")), bin.join(tool))?;
    }
    let makefile = std::fs::read_to_string(unpacked.root.join("Makefile"))?;
    let targets = makefile.lines().find_map(|line| line.strip_prefix(".PHONY: ")).expect("Makefile names its targets");
    let before = std::fs::read_dir(&unpacked.root)?.count();
    for target in targets.split(' ').filter(|target| !NEED_NOTHING.contains(target)) {
        let mut command = unpacked.command(&format!("make {target}"));
        command.env("PATH", &bin).env("HOME", &home).env("CARGO_HOME", &home).env("RUSTUP_HOME", &home);
        command.env("PREFIX", &home).env_remove("DESTDIR").env_remove("PROGRAM");
        let done = command.output()?;
        let lines = said(&done);
        if target == "uninstall" {
            assert!(done.status.success(), "{target}: {lines:?}");
        } else {
            assert!(!done.status.success() && lines.len() == 1, "{target}: {lines:#?}");
            assert!(lines[0].contains("missing"), "{target}: {}", lines[0]);
        }
    }
    assert_eq!(std::fs::read_dir(&unpacked.root)?.count(), before, "no target left anything");
    assert!(!unpacked.scratch.path().join("a target").exists(), "nothing was built");
    assert_eq!(std::fs::read_dir(&home)?.count(), 0, "nothing was installed");
    Ok(())
}

#[test]
fn without_a_network_crates_are_missing_in_one_line() -> Outcome {
    if !have(&[Need::Tool("make"), Need::Tool("cargo"), Need::Tool("python3")]) {
        return Ok(());
    }
    let unpacked = Unpacked::new()?;
    let home = unpacked.folder("home")?;
    for words in ["make static", "make dist", "make msrv", "make demo", "scripts/licences"] {
        let done = unpacked.command(words).env("CARGO_HOME", &home).output()?;
        let lines = said(&done);
        assert!(!done.status.success() && lines.len() == 1, "{words}: {lines:#?}");
        assert!(lines[0].contains("cargo fetch --locked"), "{words}: {}", lines[0]);
    }
    Ok(())
}
