//! Writes the settings that findings call safe, and looks whether the kernel took them.
//!
//! Only files below `proc/sys` and `sys` are written, and none is made.

use crate::finding::{Finding, Fix};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// The outcome for one setting, in words.
pub type Outcome = Result<String, String>;

/// Writes all settings of these findings below a root; each outcome is a line.
pub fn apply(findings: &[Finding], root: &Path) -> Vec<Outcome> {
    findings.iter().flat_map(|finding| &finding.fix).map(|fix| write(fix, root)).collect()
}

fn write(fix: &Fix, root: &Path) -> Outcome {
    let path = Path::new(&fix.path);
    let is_ours = ["/proc/sys", "/sys"].iter().any(|base| path.starts_with(base));
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    assert!(is_ours && is_plain, "a fix is a setting of the kernel");
    let below = root.join(path.strip_prefix("/").unwrap_or(path));
    let mut options = OpenOptions::new();
    let written =
        options.write(true).truncate(true).open(&below).and_then(|mut file| file.write_all(fix.value.as_bytes()));
    if let Err(error) = written {
        return Err(format!("{}: {}", fix.path, vfield_console::failure::plain(&error)));
    }
    let now = std::fs::read_to_string(&below).unwrap_or_default();
    // The kernel may write leading zeros into a mask.
    let bare = |text: &str| text.trim().trim_start_matches(['0', ',']).to_owned();
    if bare(&now) == bare(&fix.value) {
        Ok(format!("{}: {} instead of {}; to take it back: {}", fix.path, fix.value, fix.before, fix.undo()))
    } else {
        Err(format!("{}: the kernel has {} and not {}", fix.path, now.trim(), fix.value))
    }
}
