//! What the tests share: sources with everything in them, mounts that clean up behind themselves,
//! and all facts about a tree.

use rustix::fs::{AtFlags, CWD, FileType, Mode, mknodat, statat};
use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use vfield_core::chunk::ChunkSize;
use vfield_pack::report::Report;
use vfield_pack::{PackError, pack};

/// True if the test can run here; says why not otherwise, and fails in CI.
pub fn can_run(tools: &[&str]) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = |tool: &&&str| std::env::split_paths(&paths).any(|directory| directory.join(tool).exists());
    let missing = if !rustix::process::geteuid().is_root() {
        Some("it needs root".to_owned())
    } else {
        tools.iter().find(|tool| !has(tool)).map(|tool| format!("it needs {tool}"))
    };
    let Some(missing) = missing else { return true };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run: {missing}");
    println!("skipped: {missing}");
    false
}

/// Runs a command to its end; its standard output.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{program}: {}{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout)
}

/// Runs a line of a shell in a directory.
#[track_caller]
pub fn shell(directory: &Path, line: &str) -> String {
    run("sh", [OsStr::new("-c"), OsStr::new(&format!("cd '{}' && {line}", directory.display()))])
}

/// Lets `fsck.erofs` read all of an image.
#[track_caller]
pub fn check(image: &Path) {
    run("fsck.erofs", [OsStr::new("--extract"), image.as_os_str()]);
}

/// A directory for sources and images.
pub struct Desk(TempDir);

impl Desk {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new directory.
    pub fn directory(&self, name: &str) -> PathBuf {
        fs::create_dir(self.path(name)).expect("a directory of our own");
        self.path(name)
    }

    /// Packs a source as `name`, and lets `fsck.erofs` judge the image.
    #[track_caller]
    pub fn pack(&self, source: &Path, name: &str, like: Option<&str>) -> Report {
        let report = self.try_pack(source, name, like).unwrap_or_else(|error| panic!("{error}"));
        check(&self.path(name));
        report
    }

    pub fn try_pack(&self, source: &Path, name: &str, like: Option<&str>) -> Result<Report, PackError> {
        let like = like.map(|like| self.path(like));
        pack(source, &self.path(name), like.as_deref(), ChunkSize::DEFAULT, &|_| ())
    }

    /// The image of this name, mounted by the kernel.
    #[track_caller]
    pub fn mount(&self, name: &str) -> Mounted {
        Mounted::new(&self.path(name))
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("an image of ours")
    }
}

/// A mounted image.
pub struct Mounted(TempDir);

impl Mounted {
    #[track_caller]
    pub fn new(image: &Path) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        // Linux 6.12 and later mounts the file itself; others need a loop device.
        if rustix::mount::mount(image, place.path(), "erofs", MountFlags::RDONLY, None).is_err() {
            let words = ["-t", "erofs", "-o", "loop,ro"].map(OsStr::new);
            run("mount", words.into_iter().chain([image.as_os_str(), place.path().as_os_str()]));
        }
        Self(place)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Detached, because another test that starts a process holds our open files for a moment.
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// All that has to be the same about a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Fact {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    /// Length in bytes; 0 for directories and special files.
    size: u64,
    device: u64,
    links: u64,
    /// The first path of the same inode.
    first: PathBuf,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// A hash of the contents, or the target of a link.
    contents: Vec<u8>,
}

/// All facts about a tree, by paths.
pub fn facts(root: &Path) -> BTreeMap<PathBuf, Fact> {
    let (mut facts, mut firsts) = (BTreeMap::new(), BTreeMap::new());
    let mut ahead = vec![PathBuf::new()];
    while let Some(path) = ahead.pop() {
        let at = root.join(&path);
        let metadata = fs::symlink_metadata(&at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
        let kind = FileType::from_raw_mode(metadata.mode());
        let (mut contents, mut size) = (Vec::new(), metadata.len());
        match kind {
            FileType::Directory => {
                size = 0;
                let entries = fs::read_dir(&at).expect("a directory").map(|entry| entry.expect("an entry"));
                let mut below: Vec<PathBuf> = entries.map(|entry| path.join(entry.file_name())).collect();
                below.sort();
                ahead.extend(below.into_iter().rev());
            }
            FileType::Symlink => {
                contents = fs::read_link(&at).expect("a link").as_os_str().as_bytes().to_vec();
            }
            FileType::RegularFile => {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader(fs::File::open(&at).expect("a file")).expect("its contents");
                contents = hasher.finalize().as_bytes().to_vec();
            }
            _ => size = 0,
        }
        let first = firsts.entry(metadata.ino()).or_insert_with(|| path.clone()).clone();
        let is_directory = kind == FileType::Directory;
        let fact = Fact {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            size,
            device: metadata.rdev(),
            links: if is_directory { 0 } else { metadata.nlink() },
            first,
            xattrs: xattrs(&at),
            contents,
        };
        facts.insert(path, fact);
    }
    facts
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value).expect("it was listed");
        value.truncate(length);
        value
    };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut xattrs: Vec<_> = names.map(|name| (name.to_vec(), value(name))).collect();
    xattrs.sort();
    xattrs
}

/// Takes all extended attributes from a tree.
pub fn without_xattrs(root: &Path) {
    for path in facts(root).into_keys() {
        for (name, _) in xattrs(&root.join(&path)) {
            rustix::fs::lremovexattr(root.join(&path), name).expect("it was listed");
        }
    }
}

/// Fails unless two trees are the same in all that [`Fact`] has, with the first difference.
#[track_caller]
pub fn assert_same(expected: &Path, found: &Path) {
    let (expected, found) = (facts(expected), facts(found));
    for (path, fact) in &expected {
        assert_eq!(Some(fact), found.get(path), "{}", path.display());
    }
    let more: Vec<_> = found.keys().filter(|path| !expected.contains_key(*path)).collect();
    assert!(more.is_empty(), "{more:?}");
}

/// Bytes that look random, the same for each `seed`.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A file with data in some places and holes elsewhere.
pub fn sparse(path: &Path, length: u64, data: &[(u64, usize)]) {
    let mut file = fs::File::create(path).expect("a file of our own");
    file.set_len(length).expect("a hole");
    for (offset, bytes) in data {
        file.seek(SeekFrom::Start(*offset)).expect("a place");
        file.write_all(&noise(*offset, *bytes)).expect("data");
    }
}

/// A directory with every kind of file that there is, and every length that is an edge.
pub fn everything(root: &Path) {
    let at = |name: &str| root.join(name);
    for directory in ["deep/er/still/more", "empty directory", "many", ".hidden"] {
        fs::create_dir_all(at(directory)).expect("a directory");
    }
    let lengths = [0, 1, 1024, 2047, 2048, 2049, 4095, 4096, 4097, 32767, 32768, 65535, 65536, 65537, 5 << 20];
    for length in lengths {
        fs::write(at(&format!("deep/{length}")), noise(length as u64, length)).expect("a file");
    }
    for number in 0..600 {
        fs::write(at(&format!("many/{number:0>40}")), noise(number, number as usize * 7)).expect("a file");
    }
    fs::write(at(&"n".repeat(255)), "a long name").expect("a file");
    for name in ["-", "!", "+x", "a b", "\u{fc}ml\u{e4}ut"] {
        fs::write(at(name), name).expect("a file");
    }
    fs::write(root.join(OsStr::from_bytes(b"\xff\xfe\n")), "bytes").expect("a file");
    symlink("deep/1", at("link")).expect("a link");
    symlink("x".repeat(4095), at("deep/link to far away")).expect("a link");
    symlink("loop", at("loop")).expect("a link");
    symlink("..", at("deep/er/up")).expect("a link");
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("character", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("block", FileType::BlockDevice, rustix::fs::makedev(259, 0x12345)),
    ] {
        mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), device).expect("a special file");
    }
    fs::hard_link(at("deep/65537"), at("many/again")).expect("a hard link");
    fs::hard_link(at("deep/65537"), at("a first name")).expect("a hard link");
    fs::hard_link(at("fifo"), at("deep/fifo")).expect("a hard link");
    sparse(&at("hole"), 1 << 20, &[]);
    sparse(&at("sparse"), (50 << 20) + 17, &[(0, 3), (1 << 20, 70_000), (40 << 20, 4096), ((50 << 20) - 100, 117)]);
    for (path, name, value) in [
        (at("deep/1"), "user.small", b"1".to_vec()),
        (at("deep/4096"), "user.one", noise(1, 900)),
        (at("deep/4096"), "user.two", noise(2, 1900)),
        (at("deep"), "trusted.of.a.directory", b"".to_vec()),
        (at("deep/65536"), "security.capability", b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()),
        (at("sparse"), "user.sparse", b"yes".to_vec()),
    ] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(&path, name, &value, flags).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    owned(&at("deep/1"), 70_000, 4_000_000_000, 0o4755);
    owned(&at("many"), 5, 6, 0o1777);
    shell(root, "touch -h -d @-5.25 link; touch -d @5000000000.000000001 deep/0; chmod 000 deep/1024");
    assert!(statat(CWD, at("sparse"), AtFlags::empty()).expect("it is there").st_blocks < 4096, "it has holes");
}

fn owned(path: &Path, uid: u32, gid: u32, mode: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).expect("we are root");
    rustix::fs::chmod(path, Mode::from_raw_mode(mode)).expect("a mode");
}
