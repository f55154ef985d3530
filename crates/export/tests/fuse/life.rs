//! How mounts begin and end.

use crate::support::{Field, Form, Image, PATIENCE, can_run, mount, mounts_at, noise, run, until};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use vfield_export::fuse::{self, MountError, Options, Unmounted};

fn image() -> std::sync::Arc<Image> {
    Image::new("image", noise(1 << 20), Form::Bytes)
}

#[test]
fn an_idle_mount_is_unmounted() {
    if !can_run(&[]) {
        return;
    }
    let mut field = Field::mount(&[&image()]);
    fs::read(field.file("image")).unwrap();
    assert_eq!(mounts_at(field.directory.path()), 1);
    assert_eq!(field.mounted.take().unwrap().unmount().unwrap(), Unmounted::Idle);
    assert_eq!(mounts_at(field.directory.path()), 0);
    // And can be mounted again.
    let again = mount(field.directory.path(), &[&image()], &field.runtime).unwrap();
    assert_eq!(again.unmount().unwrap(), Unmounted::Idle);
}

#[test]
fn a_shut_mount_opens_nothing_and_open_files_stay() {
    if !can_run(&[]) {
        return;
    }
    let field = Field::mount(&[&image()]);
    let (file, mounted) = (File::open(field.file("image")).unwrap(), field.mounted.as_ref().unwrap());
    mounted.shut(true);
    let refused = File::open(field.file("image")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::SHUTDOWN.raw_os_error()));
    assert_eq!(file.read_at(&mut [0; 4096], 8192).unwrap(), 4096);
    mounted.shut(false);
    File::open(field.file("image")).unwrap();
}

#[test]
fn dropping_unmounts() {
    if !can_run(&[]) {
        return;
    }
    let mut field = Field::mount(&[&image()]);
    drop(field.mounted.take());
    assert_eq!(mounts_at(field.directory.path()), 0);
}

#[test]
fn a_busy_mount_goes_within_its_bound_and_its_readers_fail() {
    if !can_run(&[]) {
        return;
    }
    let image = image();
    let mut field = Field::mount(&[&image]);
    let file = File::open(field.file("image")).unwrap();
    image.shut();
    let reader = std::thread::spawn({
        let file = file.try_clone().unwrap();
        move || file.read_at(&mut [0; 4096], 0)
    });
    until("a waiting read", || image.somebody_waits());
    let start = Instant::now();
    assert_eq!(field.mounted.take().unwrap().unmount().unwrap(), Unmounted::Forced);
    assert!(start.elapsed() < PATIENCE / 2);
    assert_eq!(mounts_at(field.directory.path()), 0);
    assert!(reader.join().unwrap().is_err());
    assert!(file.read_at(&mut [0; 4096], 8192).is_err());
}

#[test]
fn a_reader_who_finishes_in_time_is_not_cut_off() {
    if !can_run(&[]) {
        return;
    }
    let image = image();
    let (directory, runtime) = (TempDir::new().unwrap(), Runtime::new().unwrap());
    let mut options = Options::new(runtime.handle().clone());
    options.unmount_grace = PATIENCE;
    let mounted = fuse::mount(directory.path(), vec![image.clone()], options).unwrap();
    let file = File::open(directory.path().join("image")).unwrap();
    image.shut();
    let reader = std::thread::spawn(move || file.read_at(&mut [0; 4096], 0));
    until("a waiting read", || image.somebody_waits());
    let unmounting = std::thread::spawn(move || mounted.unmount());
    image.open();
    assert_eq!(reader.join().unwrap().unwrap(), 4096);
    assert_eq!(unmounting.join().unwrap().unwrap(), Unmounted::Idle);
    assert_eq!(mounts_at(directory.path()), 0);
}

#[test]
fn an_end_from_outside_is_noticed() {
    if !can_run(&["umount"]) {
        return;
    }
    let mut field = Field::mount(&[&image()]);
    run("umount", [field.directory.path()]);
    let mounted = field.mounted.take().unwrap();
    field.runtime.block_on(async { tokio::time::timeout(PATIENCE, mounted.ended()).await }).unwrap();
    // Nothing of ours is left: a later mount there must stay.
    let other = mount(field.directory.path(), &[&image()], &field.runtime).unwrap();
    assert_eq!(mounted.unmount().unwrap(), Unmounted::Idle);
    assert_eq!(mounts_at(field.directory.path()), 1);
    drop(other);
}

#[test]
fn what_is_not_an_empty_directory_is_refused() {
    if !can_run(&[]) {
        return;
    }
    let runtime = Runtime::new().unwrap();
    let directory = TempDir::new().unwrap();
    let attempt = |path: &std::path::Path| mount(path, &[&image()], &runtime).err();
    let missing = directory.path().join("missing");
    assert!(matches!(attempt(&missing), Some(MountError::Missing(path)) if path == missing));
    fs::write(directory.path().join("file"), "x").unwrap();
    assert!(matches!(attempt(&directory.path().join("file")), Some(MountError::NotADirectory(_))));
    assert!(matches!(attempt(directory.path()), Some(MountError::NotEmpty(_))));
    assert_eq!(mounts_at(directory.path()), 0);
}

#[test]
fn a_live_mount_is_left_alone() {
    if !can_run(&[]) {
        return;
    }
    let field = Field::mount(&[&image()]);
    let second = mount(field.directory.path(), &[&image()], &field.runtime);
    assert!(matches!(second.err(), Some(MountError::AlreadyMounted(_))));
    assert_eq!(fs::read(field.file("image")).unwrap().len(), 1 << 20);
}

#[test]
fn names_that_cannot_be_files_are_refused() {
    let runtime = Runtime::new().unwrap();
    let directory = TempDir::new().unwrap();
    for name in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
        let error = mount(directory.path(), &[&Image::new(name, vec![], Form::Bytes)], &runtime).err();
        assert!(matches!(&error, Some(MountError::BadName(bad)) if bad == name), "{name:?}: {error:?}");
    }
    let error = mount(directory.path(), &[&image(), &image()], &runtime).err();
    assert!(matches!(error, Some(MountError::SameName(name)) if name == "image"));
}

/// A daemon in a process of its own, killed and its mount removed at the end.
struct Daemon {
    child: Child,
    directory: TempDir,
}

impl Daemon {
    /// Runs this test binary again with only the test below, which mounts and waits.
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "life::mounts_and_waits_to_be_killed"])
            .env("VFIELD_TEST_MOUNT", directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Self { child, directory };
        until("the daemon's mount", || fs::read(daemon.directory.path().join("image")).is_ok());
        daemon
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A mount that is gone cannot be ended, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
        while mounts_at(self.directory.path()) > 0 {
            let _ = rustix::mount::unmount(self.directory.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

#[test]
#[ignore = "the other process of a_dead_daemons_mount_is_replaced"]
fn mounts_and_waits_to_be_killed() {
    let Some(directory) = std::env::var_os("VFIELD_TEST_MOUNT") else { return };
    let runtime = Runtime::new().unwrap();
    let mounted = mount(directory.as_ref(), &[&image()], &runtime).unwrap();
    runtime.block_on(mounted.ended());
}

#[test]
fn a_dead_daemons_mount_is_replaced() {
    if !can_run(&[]) {
        return;
    }
    let mut daemon = Daemon::start();
    // Held open by somebody, as it usually is when a daemon dies.
    let _open = File::open(daemon.directory.path().join("image")).unwrap();
    daemon.kill();
    assert_eq!(mounts_at(daemon.directory.path()), 1);
    let error = fs::read_dir(daemon.directory.path()).err().map(|error| error.raw_os_error());
    assert_eq!(error, Some(Some(libc::ENOTCONN)));
    let runtime = Runtime::new().unwrap();
    let mounted = mount(daemon.directory.path(), &[&image()], &runtime).unwrap();
    assert_eq!(mounts_at(daemon.directory.path()), 1);
    assert_eq!(fs::read(daemon.directory.path().join("image")).unwrap().len(), 1 << 20);
    assert_eq!(mounted.unmount().unwrap(), Unmounted::Idle);
    assert_eq!(mounts_at(daemon.directory.path()), 0);
}

#[test]
fn files_come_and_go() {
    if !can_run(&[]) {
        return;
    }
    let (old, new) = (noise(1 << 20), noise(3 << 18).into_iter().rev().collect::<Vec<u8>>());
    let field = Field::mount(&[&Image::new("one", old.clone(), Form::Bytes)]);
    let mounted = field.mounted.as_ref().unwrap();
    let names = || {
        let entries = fs::read_dir(field.directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["one"]);
    assert!(File::open(field.file("two")).is_err(), "it is not there, and not remembered as such");
    mounted.add(Image::new("two", new.clone(), Form::Bytes)).unwrap();
    let taken = mounted.add(Image::new("two", new.clone(), Form::Bytes)).unwrap_err();
    assert_eq!(taken.to_string(), "two images have the name \"two\"");
    assert_eq!(names(), ["one", "two"]);
    assert!(fs::read(field.file("one")).unwrap() == old && fs::read(field.file("two")).unwrap() == new);

    let open = File::open(field.file("one")).unwrap();
    assert_eq!((mounted.opens("one"), mounted.opens("two")), (1, 0));
    mounted.remove("one").expect("it is there").tell();
    assert!(mounted.remove("one").is_none());
    assert_eq!(names(), ["two"]);
    assert!(File::open(field.file("one")).is_err());
    assert!(open.read_at(&mut [0; 4096], 0).is_err(), "what the kernel had of it is forgotten");
    // Another image of that name is another file.
    mounted.add(Image::new("one", new.clone(), Form::Bytes)).unwrap();
    assert!(fs::read(field.file("one")).unwrap() == new);
    drop(open);
    until("all is closed", || mounted.opens("one") == 0);
}

/// A link leads to another file under its readers: each finds one of both, whole, and never an
/// error.
#[test]
fn a_link_leads_elsewhere_under_its_readers() {
    if !can_run(&[]) {
        return;
    }
    let (old, new) = (vec![1; 1 << 20], vec![2; 1 << 20]);
    let field =
        Field::mount(&[&Image::new("v1", old.clone(), Form::Bytes), &Image::new("v2", new.clone(), Form::Bytes)]);
    let mounted = field.mounted.as_ref().unwrap();
    let link = field.file("prod");
    assert!(fs::read_link(&link).is_err());
    mounted.lead("prod", "v1");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("v1"));
    let open = File::open(&link).unwrap();
    let (stop, read) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let bytes = fs::read(&link).unwrap();
                assert!(bytes == old || bytes == new);
                read.fetch_add(1, Ordering::Relaxed);
            }
        });
        for turn in 0.. {
            if turn >= 200 && (read.load(Ordering::Relaxed) > 0 || reading.is_finished()) {
                break;
            }
            let to = if turn % 2 == 0 { "v2" } else { "v1" };
            mounted.lead("prod", to);
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(to));
        }
        stop.store(true, Ordering::Relaxed);
        reading.join().unwrap();
    });
    let mut bytes = [0; 4096];
    open.read_exact_at(&mut bytes, 1 << 19).unwrap();
    assert_eq!(bytes, [1; 4096], "an open file has become another");
    // A file that has the name itself goes first.
    mounted.add(Image::new("prod", vec![3; 4096], Form::Bytes)).unwrap();
    assert_eq!(fs::read(&link).unwrap(), vec![3; 4096]);
    let entries = fs::read_dir(field.directory.path()).unwrap().count();
    assert_eq!(entries, 3);
}
