//! Files that can be written: overlays of images, through the kernel's page cache, around it, and
//! under ext4.

use crate::support::{Field, Form, Image, Loop, MountedTree, PATIENCE, can_run, noise, run, until};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::{Arc, mpsc};
use vfield_block::device::BlockDevice;
use vfield_block::extent::Extent;
use vfield_block::source::BlockSource;
use vfield_core::image::ImageId;
use vfield_overlay::Overlay;

const LENGTH: usize = (3 << 20) + 12345;

fn overlay(image: &Arc<Image>, max_bytes: u64) -> Arc<Overlay> {
    Arc::new(Overlay::in_memory(image.clone(), ImageId([1; 32]), max_bytes).expect("there is memory"))
}

/// An image under an overlay, mounted, and what its file holds.
fn mounted(max_bytes: u64) -> (Arc<Image>, Arc<Overlay>, Field, Vec<u8>) {
    let mut bytes = noise(LENGTH);
    let image = Image::new("image", bytes.clone(), Form::Bytes);
    let overlay = overlay(&image, max_bytes);
    let field = Field::of(vec![overlay.clone() as Arc<dyn BlockSource>]);
    bytes.resize(LENGTH.next_multiple_of(512), 0);
    (image, overlay, field, bytes)
}

fn writable(field: &Field) -> File {
    File::options().read(true).write(true).open(field.file("image")).expect("it can be written")
}

#[test]
fn what_is_written_is_read_at_once_and_after_opening_again() {
    if !can_run(&[]) {
        return;
    }
    let (_, overlay, field, mut expected) = mounted(1 << 30);
    assert_eq!(fs::metadata(field.file("image")).unwrap().mode(), 0o100_644);
    let file = writable(&field);
    for (offset, length) in [(0, 1), (4095, 2), (70_001, 1 << 20), (expected.len() - 700, 700), (8192, 4096)] {
        let bytes: Vec<u8> = noise(length).iter().map(|byte| !byte).collect();
        file.write_all_at(&bytes, offset as u64).unwrap();
        expected[offset..offset + length].copy_from_slice(&bytes);
    }
    file.sync_all().unwrap();
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == expected);
    assert!(fs::read(field.file("image")).unwrap() == expected);
    assert!(overlay.usage().held_bytes > 1 << 20);
    // Changed behind the kernel's back: who opens it again sees it.
    overlay.reset().unwrap();
    drop(file);
    expected[..LENGTH].copy_from_slice(&noise(LENGTH));
    expected[LENGTH..].fill(0);
    assert!(fs::read(field.file("image")).unwrap() == expected);
}

#[test]
fn the_length_is_the_images() {
    if !can_run(&[]) {
        return;
    }
    let (_, _, field, expected) = mounted(1 << 30);
    let (file, end) = (writable(&field), expected.len() as u64);
    assert_eq!(file.write_at(b"beyond", end).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.write_at(b"across", end - 2).unwrap(), 2, "up to the end");
    assert_eq!(file.set_len(end - 1).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(file.set_len(end + 1).unwrap_err().kind(), ErrorKind::PermissionDenied);
    file.set_len(end).unwrap();
    assert!(File::create(field.file("image")).is_err(), "O_TRUNC would cut it");
    let refused = fs::set_permissions(field.file("image"), fs::Permissions::from_mode(0o777));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    for result in [
        File::create(field.file("new")).map(drop),
        fs::remove_file(field.file("image")),
        fs::rename(field.file("image"), field.file("new")),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(fs::metadata(field.file("image")).unwrap().len(), end);
    assert_eq!(fs::read(field.file("image")).unwrap()[..expected.len() - 2], expected[..expected.len() - 2]);
}

#[test]
fn holes_and_zeros_give_room_back() {
    if !can_run(&[]) {
        return;
    }
    use rustix::fs::FallocateFlags as Mode;
    let (_, overlay, field, mut expected) = mounted(1 << 30);
    let file = writable(&field);
    file.write_all_at(&vec![9; 1 << 20], 0).unwrap();
    expected[..1 << 20].fill(9);
    assert_eq!(overlay.usage().held_bytes, 1 << 20);
    rustix::fs::fallocate(&file, Mode::PUNCH_HOLE | Mode::KEEP_SIZE, 0, 512 << 10).unwrap();
    rustix::fs::fallocate(&file, Mode::ZERO_RANGE, (512 << 10) + 1, 8191).unwrap();
    expected[..512 << 10].fill(0);
    expected[(512 << 10) + 1..(512 << 10) + 8192].fill(0);
    assert_eq!(overlay.usage().held_bytes, (512 << 10) - 4096);
    assert!(fs::read(field.file("image")).unwrap() == expected);
    let end = expected.len() as u64;
    let refused = |mode, offset, length| rustix::fs::fallocate(&file, mode, offset, length).unwrap_err();
    assert_eq!(refused(Mode::empty(), 0, 4096), rustix::io::Errno::OPNOTSUPP);
    assert_eq!(refused(Mode::ZERO_RANGE, end - 1, 2), rustix::io::Errno::NOSPC);
    rustix::fs::fallocate(&file, Mode::PUNCH_HOLE | Mode::KEEP_SIZE, end - 512, 4096).unwrap();
}

#[test]
fn a_full_overlay_says_so_and_goes_on() {
    if !can_run(&[]) {
        return;
    }
    let (_, _, field, mut expected) = mounted(64 << 10);
    let file = writable(&field);
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    assert_eq!(file.write_all_at(&[1; 4096], 1 << 20).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_all_at(&[2; 4096], 8192).unwrap();
    expected[..64 << 10].fill(1);
    expected[8192..12_288].fill(2);
    assert!(fs::read(field.file("image")).unwrap() == expected);
}

#[test]
fn nothing_is_durable_while_a_write_was_refused() {
    if !can_run(&[]) {
        return;
    }
    let (_, overlay, field, _) = mounted(64 << 10);
    let file = writable(&field);
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    file.sync_all().unwrap();
    // A request of the kernel's that is cut in two: the caller is told of the first part, as if
    // that were all.
    overlay.discard(Extent::from(0..4096)).unwrap();
    let (start, part) = ((1 << 20) - 4096, vec![2; 8192 + (1 << 20)]);
    let refused = |file: &File| assert_eq!(file.sync_all().unwrap_err().kind(), ErrorKind::StorageFull);
    let _ = file.write_at(&part, start);
    refused(&file);
    refused(&writable(&field));
    // New bytes are there, discarded ones are not wanted.
    overlay.discard(Extent::from(0..32 << 10)).unwrap();
    refused(&file);
    file.write_all_at(&part[..8192], start).unwrap();
    refused(&file);
    overlay.discard(Extent::from(start..start + part.len() as u64)).unwrap();
    file.sync_all().unwrap();
    assert!(file.write_at(&part, start).is_err());
    refused(&file);
    overlay.reset().unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_write_that_waits_holds_up_nobody() {
    if !can_run(&[]) {
        return;
    }
    let (image, _, field, mut expected) = mounted(1 << 30);
    let file = Arc::new(writable(&field));
    image.shut();
    let (sender, answers) = mpsc::channel();
    let waiting = file.clone();
    std::thread::spawn(move || sender.send(waiting.write_all_at(&[1; 10], 100_001)));
    until("a waiting write", || image.somebody_waits());
    assert!(answers.try_recv().is_err());
    image.open();
    answers.recv_timeout(PATIENCE).unwrap().unwrap();
    expected[100_001..100_011].fill(1);
    assert!(fs::read(field.file("image")).unwrap() == expected);
}

#[test]
fn beside_a_writable_file_others_stay_read_only() {
    if !can_run(&[]) {
        return;
    }
    let image = Image::new("image", noise(8192), Form::Bytes);
    let plain = Image::new("plain", noise(8192), Form::File);
    let field = Field::of(vec![overlay(&image, 1 << 20), plain.clone() as Arc<dyn BlockSource>]);
    writable(&field).write_all_at(&[1; 100], 0).unwrap();
    let refused = File::options().write(true).open(field.file("plain")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::metadata(field.file("plain")).unwrap().mode(), 0o100_444);
}

#[test]
fn ext4_lives_on_it_and_gives_back_what_it_deletes() {
    if !can_run(&["mkfs.ext4", "losetup", "fstrim"]) {
        return;
    }
    let image = Image::new("image", vec![0; 16 << 20], Form::Bytes);
    let overlay = overlay(&image, 1 << 30);
    let field = Field::of(vec![overlay.clone() as Arc<dyn BlockSource>]);
    let written = noise(5 << 20);
    let device = Loop::writable(&field.file("image"));
    run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), device.path()]);
    {
        let tree = MountedTree::new("ext4", "rw", device.path());
        fs::write(tree.path().join("file"), &written).unwrap();
        run("sync", ["-f".as_ref(), tree.path()]);
    }
    let held = overlay.usage().held_bytes;
    assert!(held >= 5 << 20, "{held}");
    let tree = MountedTree::new("ext4", "rw", device.path());
    assert!(fs::read(tree.path().join("file")).unwrap() == written);
    fs::remove_file(tree.path().join("file")).unwrap();
    run("sync", ["-f".as_ref(), tree.path()]);
    run("fstrim", [tree.path()]);
    assert!(overlay.usage().held_bytes < held - (4 << 20), "{}", overlay.usage().held_bytes);
}
