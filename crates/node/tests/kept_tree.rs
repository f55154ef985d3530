//! Trees that outlive the process: the same image without hashing it, and files that are no such
//! tree.

use rustix::fs::{FileType, Mode};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::image::ImageId;
use vfield_node::origin::kept_tree::{self, Keeping, KeptTree};
use vfield_node::origin::tree_file::Head;
use vfield_node::origin::{Origin, OriginState, SourceError};

/// Chunks of the image: two leaf pages and a top page.
const CHUNKS: u64 = 700;
const SIZE: u64 = 16 << 10;
/// A chunk that is changed.
const CHANGED: u64 = 600;

/// A directory with an image, on a file system that has leases on every machine.
struct Stage {
    dir: TempDir,
}

/// How an image was published.
struct Published {
    origin: Origin,
    /// Bytes that were read and hashed.
    hashed: u64,
    remarks: Vec<String>,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { dir: tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm") };
        stage.write(&stage.image(), 1);
        stage
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image.raw")
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("image.raw.vfh")
    }

    /// Every second chunk has data.
    fn write(&self, path: &Path, seed: u64) {
        let file = File::create(path).expect("created");
        file.set_len(CHUNKS * SIZE - 5).expect("sized");
        for chunk in (0..CHUNKS).step_by(2) {
            file.write_all_at(&(chunk + seed).to_le_bytes(), chunk * SIZE).expect("written");
        }
    }

    fn keeping(&self) -> Keeping {
        Keeping { cache: Some(self.dir.path().join("cache")), ..Keeping::default() }
    }

    fn publish(&self) -> Published {
        self.publish_with(&self.keeping())
    }

    fn publish_with(&self, keeping: &Keeping) -> Published {
        let (kept, mut remarks) = KeptTree::look(&self.image(), || ChunkSize::MIN, keeping);
        let hashed = AtomicU64::new(0);
        let origin = Origin::publish_kept(&self.image(), None, ChunkSize::MIN, NonZeroUsize::MIN, &kept, &|progress| {
            hashed.fetch_max(progress.hashed_bytes, Ordering::Relaxed);
        });
        let origin = origin.expect("it can be published");
        remarks.extend(kept.keep(&origin).err());
        Published { origin, hashed: hashed.into_inner(), remarks }
    }

    /// The id, found without anything that was kept.
    fn id(&self) -> ImageId {
        let origin = Origin::publish(&self.image(), None, ChunkSize::MIN, NonZeroUsize::MIN, &|_| {});
        origin.expect("it can be published").id()
    }
}

/// The first number of each chunk.
fn read(origin: &Origin, chunk: u64) -> Result<u64, SourceError> {
    let mut pieces = Vec::new();
    origin.read_extent(Extent::from(chunk * SIZE..chunk * SIZE + 8), &mut pieces)?;
    let mut bytes = [0; 8];
    match &pieces[..] {
        [Piece::File(file)] => {
            assert_eq!(rustix::io::pread(file.fd(), &mut bytes[..], file.offset()), Ok(8));
        }
        [Piece::Bytes(found)] => bytes.copy_from_slice(found),
        [Piece::Zero(8)] => {}
        other => panic!("{} pieces of one chunk", other.len()),
    }
    Ok(u64::from_le_bytes(bytes))
}

/// As `vfield add` does it: another process opens both files, and names the first.
#[test]
fn a_tree_that_is_handed_over_is_judged_like_one_that_is_found() {
    let stage = Stage::new();
    let id = stage.publish().origin.id();
    let open = || kept_tree::open_for(&stage.image(), None).expect("the tree beside it");
    let image = || Arc::new(OwnedFd::from(File::open(stage.image()).expect("the image")));
    let handed = |tree| KeptTree::handed(&image(), tree, &stage.image(), ChunkSize::MIN);
    let publish = |kept: &KeptTree| {
        let (hashed, size) = (AtomicU64::new(0), ChunkSize::MIN);
        let origin = Origin::publish_open(image(), &stage.image(), None, size, NonZeroUsize::MIN, Some(kept), &|now| {
            hashed.fetch_max(now.hashed_bytes, Ordering::Relaxed);
        });
        (origin.expect("it can be published"), hashed.into_inner())
    };
    let (kept, remark) = handed(open());
    let (origin, hashed) = publish(&kept.expect("the tree of this file"));
    assert_eq!((origin.id(), hashed, remark, origin.state()), (id, 0, None, OriginState::Checked));
    assert_eq!(origin.kept_tree(), Some(&*stage.tree()));
    assert_eq!(read(&origin, 0), Ok(1));
    // Another size of chunks is another image; the rest is none of this file's.
    assert!(KeptTree::handed(&image(), open(), &stage.image(), ChunkSize::DEFAULT).0.is_none());
    assert!(handed(File::open("/dev/zero").expect("a device")).1.expect("a reason").contains("no regular file"));
    assert!(handed(File::open(stage.image()).expect("the image")).0.is_none());
    std::fs::set_permissions(stage.tree(), Permissions::from_mode(0o666)).expect("ours");
    let (kept, remark) = handed(open());
    assert!(kept.is_none() && remark.expect("a reason").contains("other users may write to it"));
    std::fs::remove_file(stage.tree()).expect("ours");
    assert!(kept_tree::open_for(&stage.image(), None).is_none());
}

#[test]
fn the_second_start_hashes_nothing_and_compares_what_is_read() {
    let stage = Stage::new();
    let first = stage.publish();
    assert_eq!((first.hashed, first.origin.kept_tree(), first.remarks.len()), (CHUNKS / 2 * SIZE, None, 0));
    assert_eq!(first.origin.state(), OriginState::Intact);
    let (id, length) = (first.origin.id(), std::fs::metadata(stage.tree()).expect("a tree").len());
    assert!(length < CHUNKS * 32 + 1024, "{length} bytes of hashes");
    drop(first);
    let second = stage.publish();
    let origin = &second.origin;
    assert_eq!((second.hashed, origin.kept_tree(), origin.id()), (0, Some(&*stage.tree()), id));
    assert_eq!((origin.id(), second.remarks.len()), (stage.id(), 0));
    assert_eq!((origin.is_compared(), origin.state()), (false, OriginState::Checked));
    for chunk in (0..CHUNKS).rev() {
        assert_eq!(read(origin, chunk), Ok(if chunk % 2 == 0 { chunk + 1 } else { 0 }));
    }
    assert_eq!((origin.is_compared(), origin.state()), (true, OriginState::Intact));
    let pages = origin.geometry().data_chunks()..origin.geometry().chunks();
    assert!(pages.map(Chunk).all(|page| origin.read(page).is_ok()));
}

#[test]
fn a_file_that_changed_is_hashed_and_its_tree_replaced() {
    let stage = Stage::new();
    let before = stage.publish().origin.id();
    stage.write(&stage.image(), 2);
    let changed = stage.publish();
    assert_eq!((changed.hashed, changed.remarks.len()), (CHUNKS / 2 * SIZE, 0));
    assert!(changed.origin.id() == stage.id() && changed.origin.id() != before);
    drop(changed);
    assert_eq!(stage.publish().hashed, 0);
    // Other chunks are another image.
    let (other, remarks) = KeptTree::look(&stage.image(), || ChunkSize::DEFAULT, &stage.keeping());
    assert!(other.dir().is_some() && remarks.is_empty());
}

#[test]
fn a_tree_is_kept_only_if_the_next_change_would_be_seen() {
    let stage = Stage::new();
    stage.publish_with(&Keeping { settled: Duration::from_secs(3600), ..stage.keeping() });
    assert!(!stage.tree().exists());
    stage.publish_with(&Keeping { data_min_bytes: 1 << 30, ..stage.keeping() });
    assert!(!stage.tree().exists());
    stage.publish();
    assert!(stage.tree().exists());
    assert!(stage.publish_with(&Keeping { rehash: true, ..stage.keeping() }).hashed > 0);
    assert_eq!(stage.publish().hashed, 0);
}

#[test]
fn a_change_behind_unchanged_times_is_found_by_its_first_reader() {
    let stage = Stage::new();
    let published = stage.publish();
    let image = File::options().write(true).open(stage.image());
    image.and_then(|image| image.write_all_at(b"another", CHANGED * SIZE)).expect("written");
    let stamp = stage.publish_with(&Keeping::default()).origin;
    // As if the times had been those of before.
    let head =
        Head { id: published.origin.id(), header: *published.origin.header(), file: stamp.stamp().expect("one") };
    head.write(published.origin.tree(), &mut File::create(stage.tree()).expect("created")).expect("written");
    drop((published, stamp));
    let fooled = stage.publish();
    assert_eq!((fooled.hashed, fooled.origin.id(), fooled.origin.state()), (0, head.id, OriginState::Checked));
    assert_eq!(read(&fooled.origin, CHANGED - 2), Ok(CHANGED - 1));
    assert!(matches!(read(&fooled.origin, CHANGED), Err(SourceError::Changed { chunk: Chunk(CHANGED), .. })));
    assert_eq!(read(&fooled.origin, CHANGED + 2), Ok(CHANGED + 3));
    assert!(matches!(fooled.origin.state(), OriginState::Changed { .. }));
    drop(fooled);
    // The wrong tree is no tree any more.
    let after = stage.publish();
    assert!(after.hashed > 0 && after.origin.id() == stage.id());
    assert_eq!((after.remarks.len(), stage.publish().hashed), (1, 0));
}

#[test]
fn what_is_no_tree_of_the_file_is_not_used() {
    let stage = Stage::new();
    stage.publish();
    let tree = std::fs::read(stage.tree()).expect("a tree");
    let length = tree.len();
    let changed = |at: usize| {
        let mut bytes = tree.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut bad: Vec<(Vec<u8>, &str)> = [8, 100, 180].map(|at| (changed(at), "it is cut short or damaged")).into();
    bad[0].1 = "its format 0 is not the one of this version (1)";
    bad.extend([0, 7, 8, 191, 195, 250, length - 1].map(|end| (tree[..end].to_vec(), "it is cut short or damaged")));
    bad.push((tree[..192].to_vec(), "page #702 is missing"));
    bad.push(([&tree[..], &[0]].concat(), "it is cut short or damaged"));
    bad.push(([&tree[..], &[0; 8]].concat(), "0 is no page that comes next"));
    bad.push((changed(193), "is no page that comes next"));
    bad.extend([(changed(210), "page #702 has the wrong hash"), (changed(length - 1), "page #700 has the wrong hash")]);
    for (bytes, why) in bad {
        std::fs::write(stage.tree(), &bytes).expect("written");
        let published = stage.publish();
        assert!(published.hashed > 0 && published.origin.id() == stage.id(), "{why}");
        let [remark] = &published.remarks[..] else { panic!("{:?} of {why}", published.remarks) };
        assert!(remark.contains(why), "{remark}: {why}");
        drop(published);
        assert_eq!(stage.publish().hashed, 0, "it was not replaced: {why}");
    }
}

/// The tree of another image was copied to this place, or the image was replaced by another file.
#[test]
fn a_tree_of_another_file_is_told_and_replaced() {
    let stage = Stage::new();
    let first = stage.publish().origin.id();
    let other = stage.dir.path().join("other.raw");
    stage.write(&other, 2);
    std::fs::rename(other, stage.image()).expect("renamed");
    let replaced = stage.publish();
    assert!(replaced.hashed > 0 && replaced.origin.id() == stage.id() && replaced.origin.id() != first);
    let [remark] = &replaced.remarks[..] else { panic!("{:?}", replaced.remarks) };
    let (tree, image) = (stage.tree(), stage.image());
    let expected = format!("{} is not used, and {} is hashed: ", tree.display(), image.display());
    assert_eq!(*remark, expected + "it has the hashes of another file");
    drop(replaced);
    assert_eq!(stage.publish().hashed, 0, "it was not replaced");
}

#[test]
fn a_full_disk_costs_only_the_hashes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let stage = Stage::new();
    let full = stage.dir.path().join("full");
    std::fs::create_dir(&full).expect("made");
    let mounted = Mounted::tmpfs(&full, c"size=64k");
    let image = full.join("image.raw");
    File::create(&image).and_then(|file| file.set_len(CHUNKS * SIZE)).expect("a sparse file");
    let file = File::options().write(true).open(&image).expect("opened");
    (0..CHUNKS).try_for_each(|chunk| file.write_all_at(b"x", chunk * SIZE)).expect_err("the disk is full");
    drop(file);
    let keeping = Keeping::default();
    let (kept, remarks) = KeptTree::look(&image, || ChunkSize::MIN, &keeping);
    assert_eq!(remarks, [""; 0]);
    let origin = Origin::publish_kept(&image, None, ChunkSize::MIN, NonZeroUsize::MIN, &kept, &|_| {});
    let origin = origin.expect("it is served all the same");
    let why = kept.keep(&origin).expect_err("there is no room");
    let shown = image.display();
    let expected = format!("the hashes of {shown} are not kept, so the next start hashes it again: {shown}.vfh: ");
    assert_eq!(why, expected + "No space left on device (os error 28)");
    assert_eq!(read(&origin, 0), Ok(u64::from(b'x')));
    let left: Vec<_> = std::fs::read_dir(&full).expect("read").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["image.raw"], "a torn tree is left");
    drop((origin, kept, mounted));
}

/// A file system in memory, for as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &CStr) -> Self {
        mount("none", at, "tmpfs", MountFlags::empty(), Some(options)).expect("mounted");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A foreign file in the place of the tree: how it comes there, and the words about it.
type Foreign = (fn(&Stage), &'static str);

#[test]
fn what_others_put_there_is_left_alone_and_the_cache_is_used() {
    let mut cases: Vec<Foreign> = vec![
        (|stage| std::fs::write(stage.tree(), "my own notes").expect("written"), "it has no tree of an image"),
        (|stage| std::fs::create_dir(stage.tree()).expect("made"), "directory"),
        (
            |stage| {
                stage.publish();
                std::fs::rename(stage.tree(), stage.dir.path().join("elsewhere")).expect("renamed");
                symlink("elsewhere", stage.tree()).expect("a link");
            },
            "it is a symbolic link",
        ),
        (
            |stage| {
                stage.publish();
                std::fs::set_permissions(stage.tree(), Permissions::from_mode(0o666)).expect("changed");
            },
            "other users may write to it",
        ),
        (
            |stage| {
                // In place: a program that starts would hold descriptors of other tests' writers.
                let made = rustix::fs::mknodat(rustix::fs::CWD, stage.tree(), FileType::Fifo, Mode::RUSR, 0);
                made.expect("a pipe");
            },
            "it is no regular file",
        ),
    ];
    if rustix::process::geteuid().is_root() {
        // Only root can give a file away.
        cases.push((
            |stage| {
                stage.publish();
                chown(stage.tree(), Some(4711), None).expect("given away");
            },
            "it belongs to user 4711",
        ));
    }
    for (put, why) in cases {
        let stage = Stage::new();
        put(&stage);
        let before = std::fs::symlink_metadata(stage.tree()).expect("something");
        let first = stage.publish();
        assert!(first.hashed > 0 && first.remarks.len() == 1 && first.remarks[0].contains(why), "{:?}", first.remarks);
        drop(first);
        let second = stage.publish();
        let from = second.origin.kept_tree().map(Path::to_owned).unwrap_or_default();
        assert!(second.hashed == 0 && from.starts_with(stage.dir.path().join("cache")), "{why}: {from:?}");
        let after = std::fs::symlink_metadata(stage.tree()).expect("still there");
        assert_eq!((before.file_type(), before.len()), (after.file_type(), after.len()));
    }
}

#[test]
fn a_cache_keeps_the_latest_trees() {
    let stage = Stage::new();
    std::fs::write(stage.tree(), "my own notes").expect("written");
    let cache = stage.dir.path().join("cache");
    std::fs::create_dir(&cache).expect("made");
    std::fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("changed");
    for number in 0..100 {
        std::fs::write(cache.join(format!("{number}.vfh")), "old").expect("written");
    }
    std::fs::write(cache.join("notes"), "none of ours").expect("written");
    stage.publish();
    let names: Vec<_> = std::fs::read_dir(&cache).expect("read").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names.len(), 64 + 1, "{names:?}");
    assert!(names.contains(&"notes".into()));
    assert_eq!(stage.publish().hashed, 0);
    // A directory where others may put something is none.
    std::fs::set_permissions(&cache, Permissions::from_mode(0o777)).expect("changed");
    let open = stage.publish_with(&Keeping { rehash: true, ..stage.keeping() });
    assert!(open.remarks[1].contains("other users may write to this directory"), "{:?}", open.remarks);
}
