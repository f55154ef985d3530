//! The kernel's users of image files: loop devices, and file systems on them.

use crate::support::{Field, Form, Image, Loop, MountedTree, can_run, noise, run};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A tree of files to make file systems of: small, large and empty ones.
fn tree() -> TempDir {
    let directory = TempDir::new().unwrap();
    let bytes = noise(5 << 20);
    fs::create_dir_all(directory.path().join("deep/er")).unwrap();
    for index in 0..40 {
        fs::write(directory.path().join(format!("deep/{index}")), &bytes[index..index * 977]).unwrap();
    }
    fs::write(directory.path().join("deep/er/large"), &bytes).unwrap();
    fs::write(directory.path().join("zeros"), vec![0; 1 << 20]).unwrap();
    fs::write(directory.path().join("empty"), "").unwrap();
    directory
}

/// Fails unless all files of `expected` are in `found` with the same bytes.
#[track_caller]
fn assert_same(expected: &Path, found: &Path) {
    for entry in fs::read_dir(expected).unwrap() {
        let name = entry.unwrap().file_name();
        let (expected, found) = (expected.join(&name), found.join(&name));
        if expected.is_dir() {
            assert_same(&expected, &found);
        } else {
            assert!(fs::read(&expected).unwrap() == fs::read(&found).unwrap(), "{} differs", found.display());
        }
    }
}

/// Exports a file as an image called `image`.
fn export(file: &Path) -> Field {
    Field::mount(&[&Image::new("image", fs::read(file).unwrap(), Form::File)])
}

#[test]
fn squashfs_on_a_loop_device() {
    if !can_run(&["mksquashfs", "losetup", "mount"]) {
        return;
    }
    let (tree, scratch) = (tree(), TempDir::new().unwrap());
    let file = scratch.path().join("image");
    run("mksquashfs", [tree.path().as_os_str(), file.as_os_str(), OsStr::new("-quiet"), OsStr::new("-no-progress")]);
    let field = export(&file);
    let device = Loop::read_only(&field.file("image"));
    assert_same(tree.path(), MountedTree::new("squashfs", "ro", device.path()).path());
}

#[test]
fn ext4_on_a_loop_device() {
    if !can_run(&["mkfs.ext4", "losetup", "mount"]) {
        return;
    }
    let (tree, scratch) = (tree(), TempDir::new().unwrap());
    let file = scratch.path().join("image");
    fs::File::create(&file).unwrap().set_len(32 << 20).unwrap();
    run("mkfs.ext4", [OsStr::new("-q"), OsStr::new("-d"), tree.path().as_os_str(), file.as_os_str()]);
    let field = export(&file);
    let device = Loop::read_only(&field.file("image"));
    assert_same(tree.path(), MountedTree::new("ext4", "ro,noload", device.path()).path());
}

#[test]
fn erofs_straight_from_the_file() {
    if !can_run(&["mkfs.erofs"]) {
        return;
    }
    let (tree, scratch) = (tree(), TempDir::new().unwrap());
    let file = scratch.path().join("image");
    run("mkfs.erofs", [file.as_os_str(), tree.path().as_os_str()]);
    let field = export(&file);
    assert_same(tree.path(), MountedTree::of_file("erofs", &field.file("image")).path());
}

#[test]
fn cp_copies_an_image() {
    if !can_run(&["cp"]) {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let bytes = noise(4 << 20);
    let field = Field::mount(&[&Image::new("image", bytes.clone(), Form::Bytes)]);
    let copy = scratch.path().join("copy");
    run("cp", [field.file("image"), copy.clone()]);
    assert!(fs::read(copy).unwrap() == bytes);
}
