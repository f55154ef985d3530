//! What the programs of this crate share: where they find `vfield`, and how they append results.

use serde::Serialize;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The absolute path of the program to measure: `given`, or else `vfield` in this program's folder.
///
/// # Errors
/// If the system does not name this program's own path or the working folder.
pub fn vfield(given: Option<&Path>) -> io::Result<PathBuf> {
    let beside = || std::env::current_exe().map(|this| this.with_file_name("vfield"));
    std::path::absolute(given.map_or_else(beside, |path| Ok(path.to_owned()))?)
}

/// Appends one JSON object, on a line of its own, to a file that is made if it is missing.
///
/// # Errors
/// If the file cannot be written to.
pub fn append(path: &Path, found: &impl Serialize) -> io::Result<()> {
    let mut file = std::fs::File::options().create(true).append(true).open(path)?;
    writeln!(file, "{}", serde_json::to_string(found)?)
}
