//! What a test needs of the machine: it says so, and without it is skipped, or in CI fails.

use crate::diskless::Images;
use crate::machine::Machine;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Something that not every machine or user has.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// Namespaces, shaping and mounts.
    Root,
    /// The device `/dev/fuse`.
    Fuse,
    /// What `scripts/machine` makes, and QEMU.
    Machine,
    /// What `scripts/diskless` makes, and QEMU.
    Diskless,
    /// A kernel of this version or a later one.
    Linux(u32, u32),
    /// A program in the search path.
    Tool(&'static str),
    /// A file that a package brings.
    File(&'static str),
}

impl Need {
    /// Why it is not there, or `None` if it is.
    fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!is_root()).then(|| "root".to_owned()),
            Self::Fuse => (!fuse_works()).then(|| "/dev/fuse and fusermount3".to_owned()),
            Self::Machine => Machine::find().is_none().then(|| "scripts/test-boot, which makes a machine".to_owned()),
            Self::Diskless => Images::find().is_none().then(|| "scripts/test-diskless, which makes images".to_owned()),
            Self::Linux(major, minor) => (kernel() < (major, minor)).then(|| format!("Linux {major}.{minor}")),
            Self::Tool(name) => find_tool(name).is_none().then(|| format!("the program {name:?}")),
            Self::File(path) => (!Path::new(path).is_file()).then(|| path.to_owned()),
        }
    }
}

/// True if all is there. If not, names the test and what it lacks, past the test harness's capture
/// of output.
///
/// # Panics
/// With the environment variable `CI` set, where a test that does not run is a failure.
pub fn have(needs: &[Need]) -> bool {
    let missing: Vec<_> = needs.iter().filter_map(|need| need.missing()).collect();
    if missing.is_empty() {
        return true;
    }
    let thread = std::thread::current();
    let line = format!("skipped {}: it needs {}\n", thread.name().unwrap_or("a test"), missing.join(", "));
    assert!(std::env::var_os("CI").is_none(), "{line}");
    // A closed stderr is no reason to fail a test that is skipped anyway.
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// Version of the running kernel: `6.18.44-x` is 6 and 18.
fn kernel() -> (u32, u32) {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// True for user 0.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if a file system can be served from user space by this user.
pub fn fuse_works() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
        && (is_root() || find_tool("fusermount3").is_some())
}

/// Where a program lies; the system directories are looked into even where the search path lacks
/// them.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| Path::is_file(file))
}
