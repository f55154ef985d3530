//! The place for lasting state: where it is, and how a file in it is read and replaced.
//!
//! Several daemons of a machine may share it, and a kill or a full disk may come at any moment: a
//! file is the old one or the new one, and never a part. Its disk may stand still while the node
//! has all that others need, so a running daemon touches files only [apart](vfield_node::apart).
//! Called by the modules that keep something over a restart.

use rustix::process::geteuid;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The variable by which a service manager tells the place.
const OF_THE_MANAGER: &str = "STATE_DIRECTORY";

/// Where the service manager says (systemd.exec(5)), or the machine's or the user's place for
/// lasting state.
pub fn usual_dir() -> PathBuf {
    if let Some(dir) = set(OF_THE_MANAGER) {
        return dir;
    }
    let home = || set("HOME").map(|home| home.join(".local/state"));
    match set("XDG_STATE_HOME").or_else(|| if geteuid().is_root() { None } else { home() }) {
        Some(dir) => dir.join("vfield"),
        None => PathBuf::from("/var/lib/vfield"),
    }
}

/// True if a service manager has a place for lasting state. Without one, a daemon that serves
/// leaves no traces.
pub fn has_place() -> bool {
    set(OF_THE_MANAGER).is_some()
}

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The directory, made if it was not there; whether that went well is found out with the first
/// file.
pub fn make_dir() -> PathBuf {
    let dir = usual_dir();
    let _ = std::fs::create_dir_all(&dir);
    dir
}

/// A file of lasting state; `None` if there is none, or something else, such as a pipe that would
/// wait for its other end, or more than so many bytes.
pub fn read(dir: &Path, name: &str, bytes_max: u64) -> Option<Vec<u8>> {
    let path = dir.join(name);
    let file = std::fs::metadata(&path).ok()?;
    (file.is_file() && file.len() <= bytes_max).then(|| std::fs::read(path).ok()).flatten()
}

/// Replaces a file of lasting state as a whole.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    replace_at(&dir.join(name), bytes)
}

/// Replaces a file as a whole.
pub fn replace_at(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    // Of this process alone: two daemons may start at once.
    new.push(format!(".{}", std::process::id()));
    let mut file = std::fs::File::create(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let replaced = written.and_then(|()| std::fs::rename(&new, path));
    replaced.inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}
