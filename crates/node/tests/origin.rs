//! Publishing files of all shapes, and reads while another process writes to them.

use proptest::prelude::*;
use rustix::fs::{FileType, Mode};
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::hash_tree::{TreeBuilder, hash_chunk};
use vfield_core::image::ImageId;
use vfield_core::wire::Priority;
use vfield_node::origin::guard::{DRAIN_MAX, SETTLE};
use vfield_node::origin::{Origin, OriginState, Progress, PublishError, SourceError};
use vfield_node::source;

const SIZE: u64 = 16 << 10;

/// A directory on a file system that has leases on every machine.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm")
}

fn publish(path: &Path) -> Result<Origin, PublishError> {
    publish_with(path, &|_| {})
}

fn publish_with(path: &Path, progress: &(dyn Fn(Progress) + Sync)) -> Result<Origin, PublishError> {
    Origin::publish(path, None, ChunkSize::MIN, NonZeroUsize::new(3).expect("not 0"), progress)
}

/// Waits until nobody has a written file open for writing. A program that another test is just
/// starting has the writer's descriptor too, until it is executed.
fn wait_for_writers(path: &Path) {
    wait_until("no writer is left", || publish(path).expect("published").state() == OriginState::Intact);
}

/// Bytes without a period, none of them zero.
fn noise(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8 | 1).collect()
}

/// A file of noise.
fn noise_file(directory: &TempDir, length: usize) -> (PathBuf, Vec<u8>) {
    let (path, bytes) = (directory.path().join("image.raw"), noise(length));
    std::fs::write(&path, &bytes).expect("written");
    wait_for_writers(&path);
    (path, bytes)
}

fn bytes_of(piece: &Piece) -> Vec<u8> {
    match piece {
        Piece::Zero(length) => vec![0; *length as usize],
        Piece::Bytes(bytes) => bytes.to_vec(),
        Piece::File(file) => {
            let mut bytes = vec![0; file.len() as usize];
            let count = rustix::io::pread(file.fd(), &mut bytes[..], file.offset()).expect("read");
            assert_eq!(count, bytes.len(), "a short piece");
            bytes
        }
    }
}

fn read(origin: &Origin, extent: Extent) -> Result<Vec<u8>, SourceError> {
    let mut pieces = Vec::new();
    origin.read_extent(extent, &mut pieces)?;
    assert_eq!(pieces.iter().map(Piece::len).sum::<u64>(), extent.len());
    Ok(pieces.iter().flat_map(bytes_of).collect())
}

fn read_all(origin: &Origin) -> Result<Vec<u8>, SourceError> {
    read(origin, Extent::from(0..origin.header().length_bytes()))
}

fn id_of(bytes: &[u8]) -> ImageId {
    let mut builder = TreeBuilder::new(bytes.len() as u64, ChunkSize::MIN).expect("a builder");
    for (number, chunk) in (0..).zip(bytes.chunks(SIZE as usize)) {
        builder.add(Chunk(number), hash_chunk(chunk));
    }
    builder.finish().1
}

/// Waits for a state that must come; the bound only ends a broken test.
fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        std::thread::yield_now();
    }
}

fn open_for_writing(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).expect("opened for writing")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Data anywhere in a sparse file, read in any extent, leased and checked.
    #[test]
    fn files_of_all_shapes(
        length in prop_oneof![1usize..100, 1usize..100_000, Just(16384), Just(16385), 600_000usize..1_300_000],
        data in prop::collection::vec((any::<usize>(), 1usize..50_000), 0..6),
        cuts in prop::collection::vec((any::<u64>(), any::<u64>()), 4),
    ) {
        let directory = directory();
        let path = directory.path().join("image.raw");
        let mut bytes = vec![0; length];
        let file = File::create(&path).expect("created");
        file.set_len(length as u64).expect("sized");
        for (start, count) in data {
            let start = start % length;
            let part = &mut bytes[start..(start + count).min(length)];
            part.copy_from_slice(&noise(part.len()));
            file.write_all_at(part, start as u64).expect("written");
        }
        // Published while it is open for writing there is no lease.
        let checked = publish(&path).expect("published");
        drop(file);
        wait_for_writers(&path);
        let leased = publish(&path).expect("published");
        prop_assert_eq!((checked.state(), leased.state()), (OriginState::Checked, OriginState::Intact));
        for origin in [&checked, &leased] {
            prop_assert_eq!(origin.id(), id_of(&bytes));
            prop_assert!(read_all(origin).as_ref() == Ok(&bytes), "other bytes");
            for (a, b) in &cuts {
                let (a, b) = (a % (length as u64 + 1), b % (length as u64 + 1));
                let extent = Extent::from(a.min(b)..a.max(b));
                let expected = &bytes[extent.start() as usize..extent.end() as usize];
                prop_assert_eq!(&read(origin, extent).expect("read")[..], expected);
                let mut at = extent.start();
                for (run, zero) in source::runs(origin.tree(), extent) {
                    prop_assert_eq!(run.start(), at);
                    let part = &bytes[at as usize..run.end() as usize];
                    prop_assert!(!zero || part.iter().all(|byte| *byte == 0));
                    at = run.end();
                }
                prop_assert_eq!(at, extent.end().max(extent.start()));
            }
            for number in 0..origin.geometry().chunks() {
                let piece = origin.read(Chunk(number)).expect("read");
                prop_assert_eq!(piece.len(), origin.geometry().length(Chunk(number)));
                prop_assert_eq!(hash_chunk(&bytes_of(&piece)), origin.tree().hash(Chunk(number)));
            }
        }
    }
}

#[test]
fn unpublishable_files_have_distinct_errors() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    File::create(at("empty")).expect("created");
    let pipe = rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0);
    pipe.expect("a pipe");
    let error = |path: &Path| publish(path).expect_err("not publishable");
    assert!(matches!(error(&at("nothing")), PublishError::Missing(_)));
    assert!(matches!(error(&at("empty").join("below")), PublishError::Missing(_)));
    assert!(matches!(error(&at("empty")), PublishError::Empty(_)));
    assert!(matches!(error(directory.path()), PublishError::Directory(_)));
    assert!(matches!(error(&at("pipe")), PublishError::NotAFile(_)));
    assert!(matches!(error(Path::new("/dev/null")), PublishError::NotAFile(_)));
    assert_eq!(error(&at("nothing")).to_string(), format!("{}: no such file", at("nothing").display()));
    std::fs::write(at("good"), b"x").expect("written");
    for name in ["", "a/b", &"x".repeat(256)] {
        let bad = Origin::publish(&at("good"), Some(name), ChunkSize::MIN, NonZeroUsize::MIN, &|_| {});
        assert!(matches!(bad, Err(PublishError::BadName(..))));
    }
    assert_eq!(publish(&at("good")).expect("published").name(), "good");
}

#[test]
fn unreadable_files_have_distinct_errors() {
    let directory = directory();
    let (path, _) = noise_file(&directory, 10);
    std::fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("ours");
    if File::open(&path).is_ok() {
        eprintln!("skipped: this user may read everything");
        return;
    }
    assert!(matches!(publish(&path), Err(PublishError::Unreadable(_))));
}

#[test]
fn progress_ends_at_the_end() {
    let directory = directory();
    let (path, bytes) = noise_file(&directory, 3_000_000);
    let (position, hashed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let origin = publish_with(&path, &|progress| {
        position.fetch_max(progress.position_bytes as usize, Ordering::Relaxed);
        hashed.fetch_max(progress.hashed_bytes as usize, Ordering::Relaxed);
    });
    assert_eq!(origin.expect("published").id(), id_of(&bytes));
    assert_eq!((position.into_inner(), hashed.into_inner()), (bytes.len(), bytes.len()));
}

#[test]
fn replacing_the_name_changes_nothing() {
    let directory = directory();
    let (path, bytes) = noise_file(&directory, 100_000);
    let origin = publish(&path).expect("published");
    std::fs::write(directory.path().join("other"), b"other").expect("written");
    std::fs::rename(directory.path().join("other"), &path).expect("renamed");
    assert_eq!((origin.state(), read_all(&origin)), (OriginState::Intact, Ok(bytes)));
}

/// A writer waits until the origin has let go, then every read is right or fails.
#[test]
fn writer_ends_the_lease() {
    let directory = directory();
    let (path, bytes) = noise_file(&directory, 10 * SIZE as usize);
    let origin = publish(&path).expect("published");
    assert_eq!(origin.state(), OriginState::Intact);
    let start = Instant::now();
    let file = open_for_writing(&path);
    assert!(start.elapsed() >= SETTLE, "the writer was let in after {:?}", start.elapsed());
    assert!(start.elapsed() < DRAIN_MAX, "without pins the writer waited for {:?}", start.elapsed());
    assert!(*origin.guard().broken().borrow());
    assert_eq!((origin.state(), read_all(&origin)), (OriginState::Checked, Ok(bytes.clone())));
    file.write_all_at(b"other", 3 * SIZE + 7).expect("written");
    file.write_all_at(b"other", 9 * SIZE).expect("written");
    for number in 0..10 {
        let extent = origin.geometry().extent(Chunk(number));
        // A checked chunk may still be in the cache; then it is right.
        match read(&origin, extent) {
            Ok(read) => assert_eq!(read, bytes[extent.start() as usize..extent.end() as usize]),
            Err(error) => assert!(matches!(error, SourceError::Changed { .. }) && [3, 9].contains(&number)),
        }
    }
}

#[test]
fn change_is_reported_with_its_chunks() {
    let directory = directory();
    // More chunks than the origin keeps in memory.
    let (path, bytes) = noise_file(&directory, 200 * SIZE as usize);
    let origin = publish(&path).expect("published");
    let file = open_for_writing(&path);
    for number in [7, 9, 8, 100] {
        file.write_all_at(b"other", number * SIZE).expect("written");
    }
    let mut failed = Vec::new();
    for number in 0..200 {
        let extent = origin.geometry().extent(Chunk(number));
        match read(&origin, extent.skip(5).take(100)) {
            Ok(read) => assert_eq!(read, bytes[extent.start() as usize + 5..][..100]),
            Err(_) => failed.push(number),
        }
    }
    assert_eq!(failed, [7, 8, 9, 100]);
    let OriginState::Changed { chunks, .. } = origin.state() else { panic!("{:?}", origin.state()) };
    assert_eq!(chunks, [7..10, 100..101]);
    let mut pieces = vec![Piece::Zero(1)];
    let error = origin.read_extent(Extent::from(0..200 * SIZE), &mut pieces).expect_err("changed");
    assert_eq!((pieces.len(), error), (1, SourceError::Changed { path, chunk: Chunk(7) }));
}

/// The writer is held back as long as a pin lives, but not for ever.
#[test]
fn pins_hold_writers_back() {
    let directory = directory();
    let (path, bytes) = noise_file(&directory, 10 * SIZE as usize);
    let origin = publish(&path).expect("published");
    let mut pieces = Vec::new();
    origin.read_extent(Extent::from(0..10 * SIZE), &mut pieces).expect("read");
    assert!(matches!(pieces[..], [Piece::File(_)]), "neighbouring chunks are one piece");
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            open_for_writing(&path).write_all(b"other").expect("written");
            written.store(true, Ordering::SeqCst);
        });
        wait_until("the writer knocks", || *origin.guard().broken().borrow());
        let start = Instant::now();
        while start.elapsed() < SETTLE * 2 {
            assert!(!written.load(Ordering::SeqCst), "written under a pin");
            assert_eq!(bytes_of(&pieces[0]), bytes);
        }
        // New readers do not get pages any more.
        assert!(matches!(origin.read(Chunk(1)), Ok(Piece::Bytes(_))));
        pieces.clear();
        wait_until("the writer is let in", || written.load(Ordering::SeqCst));
        assert!(start.elapsed() < DRAIN_MAX);
    });
    assert!(matches!(origin.read(Chunk(0)), Err(SourceError::Changed { .. })));
}

#[test]
fn forgotten_pins_hold_writers_back_for_a_while_only() {
    let directory = directory();
    let (path, _) = noise_file(&directory, 10);
    let origin = publish(&path).expect("published");
    let piece = origin.read(Chunk(0)).expect("read");
    let start = Instant::now();
    drop(open_for_writing(&path));
    assert!(start.elapsed() >= DRAIN_MAX && start.elapsed() < DRAIN_MAX * 4, "{:?}", start.elapsed());
    drop(piece);
}

#[test]
fn truncated_file_fails_to_read() {
    let directory = directory();
    let (path, bytes) = noise_file(&directory, 100 * SIZE as usize);
    let origin = publish(&path).expect("published");
    open_for_writing(&path).set_len(50_000).expect("truncated");
    assert_eq!(read(&origin, Extent::from(0..SIZE)).as_deref(), Ok(&bytes[..SIZE as usize]));
    assert!(matches!(origin.read(Chunk(3)), Err(SourceError::Changed { .. })));
    assert!(matches!(origin.read(Chunk(99)), Err(SourceError::Changed { .. })));
    // Its size comes back with the bytes.
    open_for_writing(&path).write_all(&bytes).expect("written");
    assert_eq!(read_all(&origin), Ok(bytes));
    assert!(matches!(origin.state(), OriginState::Changed { .. }));
}

#[test]
fn change_while_hashing_is_refused() {
    let directory = directory();
    let (path, _) = noise_file(&directory, 3_000_000);
    let first = AtomicBool::new(true);
    let result = publish_with(&path, &|_| {
        if first.swap(false, Ordering::SeqCst) {
            open_for_writing(&path).write_all_at(b"x", 1_000_000).expect("written");
        }
    });
    assert!(matches!(result, Err(PublishError::ChangedWhileHashing(_))), "{result:?}");
}

/// A writer that comes again and again, and readers of everything.
#[test]
fn readers_never_get_a_wrong_byte() {
    // More chunks than the origin keeps in memory.
    const LENGTH: u64 = 200 * SIZE;
    let directory = directory();
    let (path, bytes) = noise_file(&directory, LENGTH as usize);
    let origin = publish(&path).expect("published");
    let (stop, failures) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..=3u64)
            .map(|thread| {
                let (origin, bytes, stop, failures) = (&origin, &bytes, &stop, &failures);
                scope.spawn(move || {
                    for turn in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let extent = Extent::from(turn * 4096 * thread % LENGTH..LENGTH).take(100_000);
                        match read(origin, extent) {
                            Ok(read) => assert!(read == bytes[extent.start() as usize..extent.end() as usize]),
                            Err(_) => drop(failures.fetch_add(1, Ordering::Relaxed)),
                        }
                    }
                })
            })
            .collect();
        for round in 0..300u64 {
            let file = open_for_writing(&path);
            let at = round * 7919 % (LENGTH - 5);
            file.write_all_at(b"other", at).expect("written");
            if round % 3 != 0 {
                file.write_all_at(&bytes[at as usize..at as usize + 5], at).expect("restored");
            }
        }
        let start = Instant::now();
        while failures.load(Ordering::Relaxed) == 0 && start.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("no wrong byte"));
    });
    assert!(failures.into_inner() > 0, "no reader noticed");
}

/// A loop device, taken down again at the end.
struct Loop(String);

impl Loop {
    fn new(path: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(path).output().ok()?;
        made.status.success().then(|| Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn block_devices_are_checked() {
    let directory = directory();
    let (path, bytes) = noise_file(&directory, 300 * SIZE as usize + 512);
    let Some(device) = Loop::new(&path) else {
        assert!(std::env::var_os("CI").is_none(), "this test needs losetup and loop devices");
        eprintln!("skipped: needs losetup and loop devices");
        return;
    };
    let origin = publish(Path::new(&device.0)).expect("published");
    assert_eq!((origin.state(), origin.id()), (OriginState::Checked, id_of(&bytes)));
    assert_eq!(read_all(&origin), Ok(bytes));
    let writer = open_for_writing(Path::new(&device.0));
    writer.write_all_at(&[0; 512], 100 * SIZE).expect("written");
    assert!(matches!(origin.read(Chunk(100)), Err(SourceError::Changed { .. })));
    drop((writer, origin));
}

/// Bytes that are in no memory are read into it by another thread first.
#[test]
fn what_only_a_disk_has_is_brought() {
    // On a disk: there is nothing to wait for in a tmpfs.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (path, bytes) = noise_file(&directory, 40 * SIZE as usize + 5);
    let origin = publish(&path).expect("published");
    let extent = Extent::from(0..bytes.len() as u64);
    let tells = origin.is_in_memory(extent);
    let file = File::open(&path).expect("it is there");
    file.sync_all().expect("it is on the disk");
    // The kernel keeps pages that it has still to do with. A look makes it read ahead.
    wait_until("it is forgotten", || {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("it may be forgotten");
        !origin.is_in_memory(extent)
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert_eq!(runtime.block_on(origin.bring(extent, Priority::Demand)), Ok(extent.len()));
    // Some file systems do not tell.
    assert_eq!((origin.is_in_memory(extent), origin.is_away(Chunk(3))), (tells, !tells));
    assert_eq!(read_all(&origin), Ok(bytes));
    // The end of a file that became shorter is found when it is read.
    open_for_writing(&path).set_len(20 * SIZE).expect("cut");
    assert_eq!(runtime.block_on(origin.bring(extent, Priority::Demand)), Ok(extent.len()));
    assert!(matches!(origin.read(Chunk(30)), Err(SourceError::Changed { .. })));
}

/// A file that the caller has opened is guarded like any other, and its name is watched if it leads
/// there.
#[test]
fn a_file_comes_as_a_descriptor() {
    let directory = directory();
    let (path, bytes) = noise_file(&directory, 3 * SIZE as usize + 5);
    let open = || std::sync::Arc::new(std::os::fd::OwnedFd::from(File::open(&path).expect("it is there")));
    let publish_as = |name: &Path| {
        Origin::publish_open(open(), name, None, ChunkSize::MIN, NonZeroUsize::MIN, None, &|_| {}).expect("a file")
    };
    let looked = |origin: &Origin| {
        origin.look();
        origin.moved().map(|moved| moved.to_string())
    };
    let origin = publish_as(&path);
    assert_eq!((origin.name(), origin.id()), ("image.raw", publish(&path).expect("a file").id()));
    assert_eq!((origin.state(), looked(&origin), read_all(&origin)), (OriginState::Intact, None, Ok(bytes.clone())));
    // Elsewhere is nothing, or another file, from the start: that says nothing of this one.
    let other = directory.path().join("other.raw");
    let unnamed = publish_as(&other);
    std::fs::write(&other, "another file").expect("written");
    assert_eq!((looked(&unnamed), unnamed.state()), (None, OriginState::Intact));
    std::fs::rename(&other, &path).expect("renamed");
    assert_eq!(looked(&origin).as_deref(), Some("replaced"));
    assert_eq!((looked(&unnamed), read_all(&unnamed)), (None, Ok(bytes)));
    // A descriptor of no file is refused, as its name would be.
    let directory_itself = std::sync::Arc::new(File::open(directory.path()).expect("a directory").into());
    let refused = Origin::publish_open(directory_itself, &path, None, ChunkSize::MIN, NonZeroUsize::MIN, None, &|_| {});
    assert!(matches!(refused, Err(PublishError::Directory(_))));
}
