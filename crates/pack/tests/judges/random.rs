//! Trees and changes that nobody has thought of.

use super::support::{Desk, assert_same, can_run, noise};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// One step in the making of a tree. Numbers choose among the files that exist.
#[derive(Debug, Clone)]
enum Step {
    Directory(usize, Vec<u8>),
    File(usize, Vec<u8>, usize),
    Symlink(usize, Vec<u8>, usize),
    HardLink(usize, Vec<u8>, usize),
    Xattr(usize, usize),
    Rewrite(usize, usize),
    Remove(usize),
    Rename(usize, usize, Vec<u8>),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_map(|byte| if matches!(byte, 0 | b'/' | b'.') { b'a' } else { byte });
    let short = proptest::collection::vec(byte.clone(), 1..12);
    prop_oneof![6 => short, 1 => proptest::collection::vec(byte, 250..=255)]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        3 => 0..2000_usize,
        3 => 2000..40_000_usize,
        1 => 40_000..300_000_usize,
        1 => Just(0),
        1 => Just(4096),
        1 => Just(65536),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    prop_oneof![
        3 => (any(), name()).prop_map(|(at, name)| Step::Directory(at, name)),
        8 => (any(), name(), length()).prop_map(|(at, name, length)| Step::File(at, name, length)),
        1 => (any(), name(), 1..4095_usize).prop_map(|(at, name, length)| Step::Symlink(at, name, length)),
        1 => (any(), name(), any()).prop_map(|(at, name, to)| Step::HardLink(at, name, to)),
        1 => (any(), 0..4000_usize).prop_map(|(at, length)| Step::Xattr(at, length)),
        2 => (any(), length()).prop_map(|(at, length)| Step::Rewrite(at, length)),
        2 => any().prop_map(Step::Remove),
        1 => (any(), any(), name()).prop_map(|(from, to, name)| Step::Rename(from, to, name)),
    ]
}

/// All paths below a directory that are directories, or that are not.
fn below(root: &Path, directories: bool) -> Vec<PathBuf> {
    let (mut found, mut ahead) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = ahead.pop() {
        let mut entries: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                ahead.push(path);
            } else if !directories {
                found.push(path);
            }
        }
        if directories {
            found.push(directory);
        }
    }
    found
}

/// Takes one step; a step that cannot be taken here is none.
fn take(root: &Path, step: &Step, seed: u64) {
    let pick = |found: Vec<PathBuf>, at: usize| (!found.is_empty()).then(|| found[at % found.len()].clone());
    let place = |at: usize, name: &[u8]| pick(below(root, true), at).unwrap().join(OsStr::from_bytes(name));
    let file = |at: usize| pick(below(root, false), at);
    match step {
        Step::Directory(at, name) => drop(fs::create_dir(place(*at, name))),
        Step::File(at, name, length) => drop(fs::write(place(*at, name), noise(seed, *length))),
        Step::Symlink(at, name, length) => drop(symlink("x".repeat(*length), place(*at, name))),
        Step::HardLink(at, name, to) => drop(file(*to).map(|to| fs::hard_link(to, place(*at, name)))),
        Step::Xattr(at, length) => {
            // A file system may have less room than an image.
            let flags = rustix::fs::XattrFlags::empty();
            let path = file(*at).unwrap_or_else(|| root.to_owned());
            let _ = rustix::fs::lsetxattr(path, "trusted.random", &noise(seed, *length), flags);
        }
        Step::Rewrite(at, length) => {
            if let Some(path) = file(*at).filter(|path| fs::symlink_metadata(path).unwrap().is_file()) {
                fs::write(path, noise(seed, *length)).unwrap();
            }
        }
        Step::Remove(at) => match file(*at) {
            Some(path) if at % 4 > 0 => fs::remove_file(path).unwrap(),
            _ => {
                let path = pick(below(root, true), *at).unwrap();
                if path != root {
                    fs::remove_dir_all(path).unwrap();
                }
            }
        },
        Step::Rename(from, to, name) => drop(file(*from).map(|from| fs::rename(from, place(*to, name)))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_trees_and_their_next_versions_come_back(
        versions in proptest::collection::vec(proptest::collection::vec(step(), 0..40), 1..4),
    ) {
        if !can_run(&["fsck.erofs"]) {
            return Ok(());
        }
        let desk = Desk::new();
        let source = desk.directory("source");
        let mut seed = 0;
        let mut last: Option<String> = None;
        for (version, steps) in versions.iter().enumerate() {
            for step in steps {
                seed += 1;
                take(&source, step, seed);
            }
            let name = version.to_string();
            desk.pack(&source, &name, last.as_deref());
            assert_same(&source, desk.mount(&name).path());
            last = Some(name);
        }
    }
}
