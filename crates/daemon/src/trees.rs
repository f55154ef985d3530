//! The hashes of served files, which outlive the daemon: where they are looked for, and for which
//! files they are kept.
//!
//! It is done before anything is given up, since a sandbox leaves no way to a directory of images.
//! The hashes of a file that is added later come from the client that adds it.
//! The node decides whether a tree is used ([`vfield_node::origin::kept_tree`]).

use crate::plan::Plan;
use rustix::process::geteuid;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vfield_console::log::Console;
use vfield_node::origin::kept_tree::{self, Keeping, KeptTree};

/// Data of a file from which on its hashes are kept: 0.2 s of work on one processor. Below that a
/// second file is more trouble than it saves.
const DATA_MIN_BYTES: u64 = 256 << 20;

/// Some file systems count times in whole or even seconds. A write in the same two seconds as the
/// one before might leave all times as they are.
const SETTLED: Duration = Duration::from_secs(2);

/// Looks for the trees of all files that are to be served.
pub fn look(plan: &mut Plan, console: &Console) {
    let keeping = Keeping { rehash: plan.rehash, cache: usual_dir(), data_min_bytes: DATA_MIN_BYTES, settled: SETTLED };
    for serve in plan.node.serve.iter_mut().filter(|serve| serve.file.is_none() && serve.object.is_none()) {
        let (kept, remarks) = KeptTree::look(&serve.path, || serve.chunk_size.of(&serve.path), &keeping);
        remarks.iter().for_each(|remark| console.warn(remark));
        serve.kept = Some(Arc::new(kept));
    }
}

/// Opens the file that may have the tree of a file, to be handed to a daemon.
pub fn open_for(path: &Path) -> Option<File> {
    kept_tree::open_for(path, usual_dir().as_deref())
}

/// Where the service manager says (systemd.exec(5)), or the machine's or the user's place for files
/// that can be made again.
fn usual_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = set("CACHE_DIRECTORY") {
        return Some(dir);
    }
    if geteuid().is_root() {
        return Some(PathBuf::from("/var/cache/vfield"));
    }
    let home = || set("HOME").map(|home| home.join(".cache"));
    set("XDG_CACHE_HOME").or_else(home).map(|dir| dir.join("vfield"))
}
