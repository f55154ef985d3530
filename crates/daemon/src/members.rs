//! Members that are remembered over the daemon's death (`--members FILE`): those whom it was told
//! to join through may be gone by then.
//!
//! Owns the file: one address a line, replaced as a whole when the members have changed. Its
//! addresses are only dialled, so foreign content does no harm.

use crate::lasting;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vfield_console::failure::plain;
use vfield_node::{Node, apart};

/// More are not remembered, and not tried: one that answers is enough.
const MEMBERS_MAX: usize = 32;
/// How often it is looked whether others have come or gone.
const EVERY: Duration = Duration::from_secs(2);
/// A file longer than this was written by somebody else.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// Addresses in the file `path`; none if the file is missing.
pub fn read(path: &Path) -> Vec<SocketAddr> {
    let short = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= FILE_BYTES_MAX);
    let text = if short { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    text.lines().filter_map(|line| line.trim().parse().ok()).take(MEMBERS_MAX).collect()
}

/// Keeps the addresses of live members in `path` while it is polled.
pub async fn remember(path: PathBuf, node: Arc<Node>) {
    let (mut known, mut said) = (BTreeSet::new(), String::new());
    loop {
        let alive: BTreeSet<String> =
            node.status().nodes.into_iter().filter(|node| node.state == "alive").map(|node| node.addr).collect();
        // A node that has lost all others needs the addresses of before.
        if alive != known && !alive.is_empty() {
            let lines: String = alive.iter().take(MEMBERS_MAX).map(|addr| format!("{addr}\n")).collect();
            let file = path.clone();
            match apart::run(move || lasting::replace_at(&file, lines.as_bytes())).await {
                Ok(()) => (known, said) = (alive, String::new()),
                // A full disk may have room later: it is tried again, and told once.
                Err(error) => {
                    let why = plain(&error);
                    if said != why {
                        tracing::warn!("members cannot be kept in {}: {why}", path.display());
                    }
                    said = why;
                }
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_in_the_file_is_members_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("members");
        assert_eq!(read(&path), vec![]);
        lasting::replace_at(&path, b"192.168.1.1:4440\nrubbish\n\n[fd00::1]:5\n").unwrap();
        assert_eq!(read(&path), vec!["192.168.1.1:4440".parse().unwrap(), "[fd00::1]:5".parse().unwrap()]);
        lasting::replace_at(&path, &[0xff; 100]).unwrap();
        assert_eq!(read(&path), vec![]);
        assert_eq!(read(dir.path()), vec![]);
    }
}
