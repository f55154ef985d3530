//! A store on a disk that stands still: whoever settles, evicts or commits does not wait for it.
//!
//! A frozen file system is such a disk: writing to it waits until it is thawed.

use crate::image::{Image, SIZE, concatenated};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use vfield_block::extent::Extent;
use vfield_core::chunk::Chunk;
use vfield_core::node::Commitment;
use vfield_node::buffers::Buffers;
use vfield_node::store::found::{Adopted, Place};
use vfield_node::store::{Kept, Store};

const COMMITMENT: Commitment = Commitment { start: 3, from: 5 };
/// Far beyond what anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// A file system of its own; thawed and gone with its value.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    /// `None` without the rights or the tools for it.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let image = dir.path().join("disk.img");
        File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("a file");
        let disk = Self { dir };
        let made = disk.run("mkfs.ext4", &["-q".as_ref(), image.as_ref()])
            && std::fs::create_dir(disk.path()).is_ok()
            && disk.run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), disk.path().as_ref()]);
        made.then_some(disk)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    fn open(&self) -> File {
        let path = self.path().join("store");
        File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
    }

    fn run(&self, program: &str, words: &[&Path]) -> bool {
        Command::new(program).args(words).status().is_ok_and(|status| status.success())
    }

    fn freeze(&self) {
        assert!(self.run("fsfreeze", &["--freeze".as_ref(), self.path().as_ref()]), "frozen");
    }

    fn thaw(&self) -> bool {
        let thaw = Command::new("fsfreeze").arg("--unfreeze").arg(self.path()).output();
        thaw.is_ok_and(|done| done.status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.thaw();
        // Open files in it end with the process.
        self.run("umount", &["--lazy".as_ref(), self.path().as_ref()]);
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "still not: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// True if `work` ends although the disk stands still.
fn ends(store: &Arc<Store>, work: impl FnOnce(&Arc<Store>) + Send + 'static) -> bool {
    let (done, ended) = mpsc::channel();
    let store = Arc::clone(store);
    thread::spawn(move || {
        work(&store);
        done.send(()).expect("the test waits");
    });
    ended.recv_timeout(LIMIT).is_ok()
}

fn bytes_of(store: &Arc<Store>, image: &Image, number: u64) -> Option<Vec<u8>> {
    let mut pieces = Vec::new();
    let extent = image.tree.geometry().extent(Chunk(number));
    store.pieces(Extent::from(extent.start()..extent.end()), &mut pieces).then(|| concatenated(&pieces))
}

#[test]
fn a_disk_that_stands_still_holds_nobody_up() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let Some(disk) = Disk::new() else {
        assert!(std::env::var_os("CI").is_none(), "no mkfs.ext4, mount or loop device");
        eprintln!("skipped: it needs mkfs.ext4, mount and a loop device");
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let image = Arc::new(Image::with_zeros(12, &[]));
    let store = Store::on_disk(image.id, image.tree.geometry(), disk.open().into()).expect("a store");
    let top = image.tree.geometry().top();
    for chunk in [top, Chunk(0), Chunk(1)] {
        store.insert(chunk, &image.chunk(chunk)).expect("room");
    }
    assert!(!store.writes_behind(), "nobody attends to its disk");
    let worker = runtime.spawn(Arc::clone(&store).work_behind());
    until("the worker attends", || store.writes_behind());

    disk.freeze();
    let (buffers, wanted) = (Arc::new(Buffers::default()), Arc::clone(&image));
    let ended = ends(&store, move |store| {
        for chunk in (2..7).map(Chunk) {
            store.pass(chunk, buffers.copy(&wanted.chunk(chunk)));
            store.settle(chunk).expect("queued");
        }
        // The first is in the disk's hands by now, perhaps; the last waits.
        assert!(store.evict(Chunk(2)) && store.evict(Chunk(6)));
        assert!(store.evict(Chunk(0)));
        // This one comes again at once.
        assert!(store.evict(Chunk(3)));
        store.pass(Chunk(3), buffers.copy(&wanted.chunk(Chunk(3))));
        store.settle(Chunk(3)).expect("queued");
        store.commit(&"image".into(), COMMITMENT).expect("queued");
    });
    assert!(ended, "somebody waits for the disk");
    // Readers have all chunks that are here, wherever they lie.
    let held = |store: &Arc<Store>| (0..12).filter(|number| store.is_resident(Chunk(*number))).collect::<Vec<_>>();
    assert_eq!(held(&store), [1, 3, 4, 5]);
    for number in [3, 4, 5] {
        assert!(bytes_of(&store, &image, number).is_some_and(|bytes| bytes == image.chunk(Chunk(number))), "{number}");
    }

    assert!(disk.thaw());
    until("the disk has what settled, and no more", || store.disk_bytes() == 4 * SIZE);
    assert_eq!(held(&store), [1, 3, 4, 5]);
    until("the buffers are empty", || store.resident_bytes() == SIZE.min(image.chunk(top).len() as u64));
    worker.abort();
    until("the worker is gone", || !store.writes_behind());
    drop(store);
    let (store, found) = Store::take_over(Kept::read_on_disk(disk.open().into()).expect("a label")).expect("a store");
    assert_eq!(found.commitment, COMMITMENT);
    let mut adopted = Adopted::default();
    (0..store.geometry().chunks()).for_each(|number| store.adopt(Chunk(number), Place::Disk, &mut adopted));
    assert_eq!(held(&store), [1, 3, 4, 5]);
    for number in [1, 3, 4, 5] {
        assert!(bytes_of(&store, &image, number).is_some_and(|bytes| bytes == image.chunk(Chunk(number))), "{number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Chunks come and go faster than the worker writes: in the end exactly those are on the disk
    /// that came last.
    #[test]
    fn what_settles_late_is_what_came(steps in prop::collection::vec((0..11_u64, any::<bool>()), 1..300)) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("store")).expect("a file");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let image = Image::with_zeros(12, &[]);
        let store = Store::on_disk(image.id, image.tree.geometry(), file.into()).expect("a store");
        let top = image.tree.geometry().top();
        store.insert(top, &image.chunk(top)).expect("memory");
        let pages = store.resident_bytes();
        runtime.spawn(Arc::clone(&store).work_behind());
        until("the worker attends", || store.writes_behind());
        let (buffers, mut wanted) = (Arc::new(Buffers::default()), BTreeSet::new());
        for (number, comes) in steps {
            let chunk = Chunk(number);
            if comes {
                store.pass(chunk, buffers.copy(&image.chunk(chunk)));
                store.settle(chunk).expect("queued");
                wanted.insert(number);
            } else {
                prop_assert_eq!(store.evict(chunk), wanted.remove(&number));
            }
            prop_assert_eq!(store.is_resident(chunk), wanted.contains(&number));
        }
        until("all is on the disk", || store.resident_bytes() == pages && store.disk_bytes() == wanted.len() as u64 * SIZE);
        for number in 0..11 {
            let right = wanted.contains(&number).then(|| image.chunk(Chunk(number)));
            prop_assert_eq!(bytes_of(&store, &image, number), right);
        }
    }
}
