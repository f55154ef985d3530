//! Gathers facts from a machine: files below a root, the kernel's ethtool call, a daemon's status.
//!
//! Owns the bounds: a file counts up to [`TEXT_MAX`] bytes, a folder up to [`ENTRIES_MAX`] entries.
//! Texts of drivers and programs are hostile until parsed: no number is assumed, and names with
//! a slash are skipped. Files without permission are noted.

mod ethtool;
mod firewalls;
mod links;
mod machine;
mod net;

use crate::facts::{Facts, Field, Limit};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use vfield_control::limits::LimitStatus;
use vfield_control::message::DaemonStatus;

/// Most bytes of a file: the interrupts of a machine with 256 processors and 500 lines.
const TEXT_MAX: u64 = 2 << 20;
/// Most entries of a folder: interfaces, or queues of one.
const ENTRIES_MAX: usize = 512;
/// Most notes of what could not be read.
const UNSEEN_MAX: usize = 32;

/// A file system to read facts from: `/`, or what a test made up.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    unseen: RefCell<BTreeSet<String>>,
}

impl Root {
    /// Facts below this folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), unseen: RefCell::default() }
    }

    /// True for the machine itself, where the kernel can be asked too.
    fn is_real(&self) -> bool {
        self.path == Path::new("/")
    }

    /// All facts; those of the field from a daemon's status, if there is one.
    pub fn facts(&self, status: Result<&DaemonStatus, &str>) -> Facts {
        let field = match status {
            Ok(status) => Some(field(status)),
            Err(why) => {
                self.note(format!("the field: {why}"));
                None
            }
        };
        let (links, net, machine) = (links::read(self), net::read(self), machine::read(self));
        let firewalls = firewalls::read(self);
        if links.is_empty() {
            self.note("network interfaces: none is up in sys/class/net".to_owned());
        }
        let unseen = self.unseen.borrow().iter().cloned().collect();
        Facts { links, net, firewalls, machine, field, unseen }
    }

    fn note(&self, what: String) {
        let mut unseen = self.unseen.borrow_mut();
        if unseen.len() < UNSEEN_MAX {
            unseen.insert(what);
        }
    }

    /// The text of a file, without spaces around it; none if it is not there or cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let read = File::open(self.path.join(path)).and_then(|file| file.take(TEXT_MAX).read_to_end(&mut bytes));
        match read {
            Ok(_) => Some(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.note(format!("/{path}: permission denied; try as root"));
                None
            }
            Err(_) => None,
        }
    }

    /// The number that a file has alone.
    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path.join(path)).into_iter().flatten().flatten().take(ENTRIES_MAX);
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// The last part of where a link leads.
    fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path.join(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }
}

/// The row of this name in a table of `name: value`.
fn row<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim))
}

fn field(status: &DaemonStatus) -> Field {
    let node = &status.node;
    let (own, others): (Vec<_>, Vec<_>) = node.nodes.iter().partition(|node| node.state == "self");
    let of_node = limits(None, &status.limits.up, &status.limits.down);
    let of_images = status.limits.images.iter().flat_map(|image| limits(Some(&image.image), &image.up, &image.down));
    Field {
        addr: own.first().and_then(|own| own.addr.parse().ok()),
        link_bytes_per_s: own.first().and_then(|own| own.link_bytes_per_s),
        members: others.iter().map(|node| (node.addr.clone(), node.state.clone(), node.link_bytes_per_s)).collect(),
        is_closed: node.field.closed,
        store: (
            node.images.iter().map(|image| image.capacity_bytes).sum(),
            node.images.iter().map(|image| image.held_bytes).sum(),
        ),
        waiting: node.images.iter().map(|image| image.waiting.len()).sum(),
        limits: of_node.into_iter().chain(of_images).collect(),
        warnings: node.warnings.clone(),
    }
}

fn limits(image: Option<&str>, up: &LimitStatus, down: &LimitStatus) -> Vec<Limit> {
    let of = |(direction, limit): (&'static str, &LimitStatus)| {
        let image = image.map(str::to_owned);
        let (setting, held_s) = (limit.setting.clone(), limit.held_s);
        limit.bytes_per_s.map(|bytes_per_s| Limit { image, direction, setting, bytes_per_s, held_s })
    };
    [("up", up), ("down", down)].into_iter().filter_map(of).collect()
}
