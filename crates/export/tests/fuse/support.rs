//! What the FUSE tests share: a source under test control, mounts and loops that clean up behind
//! themselves, and the check for what a test needs.

use bytes::Bytes;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, FilePiece, Piece, ReadError, Reading, Urgency};
use vfield_export::fuse::{self, Mounted, Options};

/// Longest wait for a state that must come; far above what a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// True if the test can run here; says why not otherwise, and fails in CI.
pub fn can_run(tools: &[&str]) -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        Some("it needs root".to_owned())
    } else if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        Some(format!("/dev/fuse: {error}"))
    } else {
        tools.iter().find(|tool| !has(tool)).map(|tool| format!("it needs {tool}"))
    };
    let Some(missing) = missing else { return true };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run: {missing}");
    println!("skipped: {missing}");
    false
}

/// True if a command is in the path, or a path of its own exists.
fn has(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(tool).exists())
}

/// Runs a command to its end; its standard output.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes that repeat nowhere near.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(length).collect()
}

/// How an image's bytes are handed out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In memory, chunk by chunk.
    Bytes,
    /// As parts of a file.
    File,
}

/// An image in memory. While its gate is shut nothing of it is here, and reads wait.
pub struct Image {
    name: String,
    bytes: Bytes,
    file: Arc<std::os::fd::OwnedFd>,
    form: Form,
    gate: watch::Sender<bool>,
    error: Mutex<Option<ReadError>>,
    /// Set when a read waits at the gate.
    waited: AtomicBool,
}

const CHUNK: u32 = 64 << 10;

impl Image {
    pub fn new(name: &str, bytes: Vec<u8>, form: Form) -> Arc<Self> {
        let mut file = tempfile::tempfile().expect("a file for the image");
        file.write_all(&bytes).expect("room for the image");
        Arc::new(Self {
            name: name.into(),
            bytes: bytes.into(),
            file: Arc::new(file.into()),
            form,
            gate: watch::Sender::new(true),
            error: Mutex::new(None),
            waited: AtomicBool::new(false),
        })
    }

    pub fn shut(&self) {
        self.gate.send_replace(false);
    }

    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    pub fn fail_with(&self, error: ReadError) {
        *self.error.lock().unwrap() = Some(error);
        self.shut();
    }

    pub fn somebody_waits(&self) -> bool {
        self.waited.load(Ordering::SeqCst)
    }

    /// The pieces of an extent, cut at chunks; chunks of zeros are not data.
    fn pieces(&self, extent: Extent) -> Vec<Piece> {
        let mut rest = extent;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let part = rest.take(u64::from(CHUNK) - rest.start() % u64::from(CHUNK));
            pieces.push(match self.form {
                _ if self.is_zero(part) => Piece::Zero(part.len()),
                Form::Bytes => Piece::Bytes(self.bytes.slice(part.start() as usize..part.end() as usize)),
                Form::File => Piece::File(FilePiece::new(self.file.clone(), part.start(), part.len(), None)),
            });
            rest = rest.skip(part.len());
        }
        pieces
    }

    fn is_zero(&self, extent: Extent) -> bool {
        self.bytes[extent.start() as usize..extent.end() as usize].iter().all(|&byte| byte == 0)
    }
}

impl BlockSource for Image {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        "a test's image".into()
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn chunk_bytes(&self) -> u32 {
        CHUNK
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        let here = *self.gate.borrow();
        if here {
            pieces.extend(self.pieces(extent));
        }
        here
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        Box::pin(async move {
            if let Some(error) = self.error.lock().unwrap().clone() {
                return Err(error);
            }
            self.waited.store(true, Ordering::SeqCst);
            let mut gate = self.gate.subscribe();
            gate.wait_for(|open| *open).await.expect("the image owns the gate");
            // A part only, so that callers have to come again for the rest.
            Ok(self.pieces(extent.take(100_000)))
        })
    }

    fn prefetch(&self, _: Extent, _: Urgency) {}

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        let run = |piece: Piece| Allocation { length_bytes: piece.len(), zero: matches!(piece, Piece::Zero(_)) };
        let runs = self.pieces(extent).into_iter().map(run).take(5).collect();
        Box::pin(std::future::ready(Ok(runs)))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

/// A mounted directory; unmounted and removed at the end, whatever happened.
pub struct Field {
    // In this order: the mount goes before the runtime, and both before the directory.
    pub mounted: Option<Mounted>,
    pub runtime: Runtime,
    pub directory: TempDir,
}

impl Field {
    #[track_caller]
    pub fn mount(images: &[&Arc<Image>]) -> Self {
        Self::of(images.iter().map(|&image| image.clone() as Arc<dyn BlockSource>).collect())
    }

    #[track_caller]
    pub fn of(sources: Vec<Arc<dyn BlockSource>>) -> Self {
        let directory = TempDir::new().expect("a directory");
        let runtime = Runtime::new().expect("a runtime");
        let mounted = mount_sources(directory.path(), sources, &runtime).expect("it mounts");
        Self { mounted: Some(mounted), runtime, directory }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

pub fn mount(directory: &Path, images: &[&Arc<Image>], runtime: &Runtime) -> Result<Mounted, fuse::MountError> {
    let sources = images.iter().map(|&image| image.clone() as Arc<dyn BlockSource>).collect();
    mount_sources(directory, sources, runtime)
}

pub fn mount_sources(
    directory: &Path,
    sources: Vec<Arc<dyn BlockSource>>,
    runtime: &Runtime,
) -> Result<Mounted, fuse::MountError> {
    let mut options = Options::new(runtime.handle().clone());
    options.unmount_grace = Duration::from_millis(100);
    fuse::mount(directory, sources, options)
}

/// The mounts at a path, according to the kernel: the number of mounts on top of each other.
pub fn mounts_at(path: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    table.lines().filter(|line| line.split(' ').nth(4) == path.to_str()).count()
}

/// A loop device, detached at the end.
pub struct Loop(String);

impl Loop {
    #[track_caller]
    pub fn read_only(file: &Path) -> Self {
        let arguments = [OsStr::new("--read-only"), OsStr::new("--find"), OsStr::new("--show"), file.as_os_str()];
        Self(run("losetup", arguments))
    }

    #[track_caller]
    pub fn writable(file: &Path) -> Self {
        Self(run("losetup", [OsStr::new("--find"), OsStr::new("--show"), file.as_os_str()]))
    }

    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A guard that runs after failures as well: nothing to do about one here.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A file system mounted by mount(8) on a directory of its own, unmounted at the end.
pub struct MountedTree(TempDir);

impl MountedTree {
    #[track_caller]
    pub fn new(kind: &str, options: &str, device: &Path) -> Self {
        let directory = TempDir::new().expect("a directory");
        let place = [device.as_os_str(), directory.path().as_os_str()];
        let flags = ["-t", kind, "-o", options].map(OsStr::new);
        run("mount", flags.into_iter().chain(place));
        Self(directory)
    }

    /// Straight from a file, by mount(2): mount(8) would put a loop device in between.
    #[track_caller]
    pub fn of_file(kind: &str, file: &Path) -> Self {
        let directory = TempDir::new().expect("a directory");
        rustix::mount::mount(file, directory.path(), kind, MountFlags::RDONLY, None).expect("the kernel mounts it");
        Self(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for MountedTree {
    fn drop(&mut self) {
        // Detached, because another test that starts a process holds our open files for a moment.
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}
