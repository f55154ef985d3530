//! What readers get: bytes, zeros past the end, holes, errors, and no waiting for others.

use crate::support::{Field, Form, Image, PATIENCE, can_run, noise, until};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::mpsc;
use vfield_block::extent::Extent;
use vfield_block::source::ReadError;

/// Images of both forms, some MiB and an odd number of bytes long.
fn odd_images() -> [(Vec<u8>, &'static str, Form); 2] {
    let bytes = noise((3 << 20) + 12345);
    [(bytes.clone(), "in-memory", Form::Bytes), (bytes, "in-file", Form::File)]
}

/// What the file of an image holds: its bytes up to the next sector.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(512), 0);
    padded
}

#[test]
fn two_images_in_one_directory_read_as_they_are() {
    if !can_run(&[]) {
        return;
    }
    let images = odd_images().map(|(bytes, name, form)| Image::new(name, bytes, form));
    let field = Field::mount(&[&images[0], &images[1]]);
    let mut names: Vec<_> = fs::read_dir(field.directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["in-file", "in-memory"]);
    for (bytes, name, _) in odd_images() {
        let metadata = fs::metadata(field.file(name)).unwrap();
        assert_eq!(metadata.len(), padded(&bytes).len() as u64);
        assert_eq!(metadata.mode(), 0o100_444);
        assert!(fs::read(field.file(name)).unwrap() == padded(&bytes), "{name} differs");
    }
    assert!(fs::metadata(field.file("other")).is_err());
}

#[test]
fn dd_reads_the_same_through_the_page_cache_and_directly() {
    if !can_run(&["dd"]) {
        return;
    }
    for (bytes, name, form) in odd_images() {
        let image = Image::new(name, bytes.clone(), form);
        let field = Field::mount(&[&image]);
        let file = field.file(name);
        for (block, flags) in [("4k", "direct"), ("1M", "direct"), ("512", "fullblock"), ("256K", "fullblock")] {
            let output = Command::new("dd")
                .arg(format!("if={}", file.display()))
                .args([format!("bs={block}"), format!("iflag={flags}")])
                .output()
                .unwrap();
            assert!(output.stdout == padded(&bytes), "{name}, blocks of {block}, {flags}");
        }
    }
}

#[test]
fn any_offset_and_length_can_be_read() {
    if !can_run(&[]) {
        return;
    }
    let (bytes, name, form) = odd_images().into_iter().next_back().unwrap();
    let image = Image::new(name, bytes.clone(), form);
    let field = Field::mount(&[&image]);
    let file = File::open(field.file(name)).unwrap();
    let expected = padded(&bytes);
    for (offset, length) in [(0, 1), (65535, 2), (1, 1 << 20), (expected.len() - 700, 700), (12345, 2 << 20)] {
        let mut buffer = vec![1; length];
        file.read_exact_at(&mut buffer, offset as u64).unwrap();
        assert!(buffer == expected[offset..offset + length], "{length} bytes at {offset}");
    }
    assert_eq!(file.read_at(&mut [1; 16], expected.len() as u64).unwrap(), 0);
    assert_eq!(file.read_at(&mut [1; 16], expected.len() as u64 - 4).unwrap(), 4);
}

#[test]
fn an_empty_image_is_an_empty_file() {
    if !can_run(&[]) {
        return;
    }
    let field = Field::mount(&[&Image::new("empty", Vec::new(), Form::Bytes)]);
    assert_eq!(fs::read(field.file("empty")).unwrap(), Vec::<u8>::new());
}

#[test]
fn a_read_that_waits_does_not_hold_up_others() {
    if !can_run(&[]) {
        return;
    }
    let bytes = noise(1 << 20);
    let (slow, fast) = (Image::new("slow", bytes.clone(), Form::Bytes), Image::new("fast", bytes.clone(), Form::File));
    let field = Field::mount(&[&slow, &fast]);
    slow.shut();
    // More readers than the session has threads.
    let (sender, answers) = mpsc::channel();
    for _ in 0..16 {
        let (sender, path) = (sender.clone(), field.file("slow"));
        std::thread::spawn(move || sender.send(fs::read(path)));
    }
    until("a waiting read", || slow.somebody_waits());
    assert!(fs::read(field.file("fast")).unwrap() == bytes);
    assert!(answers.try_recv().is_err(), "the slow image was not to be had");
    slow.open();
    for _ in 0..16 {
        assert!(answers.recv_timeout(PATIENCE).unwrap().unwrap() == bytes);
    }
}

#[test]
fn a_reader_that_waits_can_be_killed() {
    if !can_run(&["dd"]) {
        return;
    }
    let image = Image::new("slow", noise(1 << 20), Form::Bytes);
    let field = Field::mount(&[&image]);
    image.shut();
    let mut reader = Command::new("dd").arg(format!("if={}", field.file("slow").display())).spawn().unwrap();
    until("a waiting read", || image.somebody_waits());
    reader.kill().unwrap();
    until("the reader's end", || reader.try_wait().unwrap().is_some());
}

#[test]
fn an_error_of_the_source_is_an_i_o_error_and_not_remembered() {
    if !can_run(&[]) {
        return;
    }
    let image = Image::new("broken", noise(1 << 20), Form::Bytes);
    let field = Field::mount(&[&image]);
    image.fail_with(ReadError::TimedOut(Extent::from(0..4096)));
    let error = fs::read(field.file("broken")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    image.open();
    assert!(fs::read(field.file("broken")).unwrap() == noise(1 << 20));
}

#[test]
fn nothing_can_be_written_or_made() {
    if !can_run(&[]) {
        return;
    }
    let image = Image::new("image", noise(4096), Form::Bytes);
    let field = Field::mount(&[&image]);
    let refused = |what: &str, result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{what}");
    };
    let try_all = || {
        refused("open", File::options().write(true).open(field.file("image")).map(drop));
        refused("create", File::create(field.file("new")).map(drop));
        refused("mkdir", fs::create_dir(field.file("new")));
        refused("unlink", fs::remove_file(field.file("image")));
        refused("rename", fs::rename(field.file("image"), field.file("new")));
        refused("symlink", std::os::unix::fs::symlink("x", field.file("new")));
        refused("link", fs::hard_link(field.file("image"), field.file("new")));
        refused("chmod", fs::set_permissions(field.file("image"), fs::Permissions::from_mode(0o644)));
    };
    try_all();
    rustix::mount::mount_remount(field.directory.path(), rustix::mount::MountFlags::empty(), "").unwrap();
    try_all();
}

#[test]
fn holes_and_data_are_found() {
    if !can_run(&[]) {
        return;
    }
    const CHUNK: u64 = 64 << 10;
    let mut bytes = vec![0; 40 * CHUNK as usize + 100];
    let data = noise(2 * CHUNK as usize);
    bytes[20 * CHUNK as usize..22 * CHUNK as usize].copy_from_slice(&data);
    let image = Image::new("sparse", bytes.clone(), Form::Bytes);
    let field = Field::mount(&[&image]);
    let file = File::open(field.file("sparse")).unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    use rustix::fs::SeekFrom::{Data, Hole};
    assert_eq!(seek(Data(0)), Ok(20 * CHUNK));
    assert_eq!(seek(Hole(0)), Ok(0));
    assert_eq!(seek(Data(21 * CHUNK + 7)), Ok(21 * CHUNK + 7));
    assert_eq!(seek(Hole(20 * CHUNK)), Ok(22 * CHUNK));
    assert_eq!(seek(Data(22 * CHUNK)), Err(rustix::io::Errno::NXIO));
    assert_eq!(seek(Hole(bytes.len() as u64 + 500)), Err(rustix::io::Errno::NXIO));
    assert!(fs::read(field.file("sparse")).unwrap() == padded(&bytes));
}
