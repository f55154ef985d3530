//! Tars as a source: their trees, one on top of the other.
//!
//! Reads what GNU tar, bsdtar and container tools write: ustar, pax and GNU headers, long names,
//! sparse files, extended attributes. Two tars that stand for layers of one image follow the rules
//! of OCI: a name `.wh.NAME` takes NAME away from the layers below. A layer that stays alone says
//! the same in the words of overlayfs. Contents stay in the tars.

mod entries;
mod header;
mod records;
mod write;

pub use entries::{Body, Entries, Entry, Fault, ReadAt};
pub use write::of_texts;

use crate::contents::Archive;
use crate::error::{PackError, path_of};
use crate::tree::{Attributes, File, Inode, InodeId, Kind, Origin, Tree};

/// Before the name that a layer takes away.
const WHITEOUT: &[u8] = b".wh.";
/// A directory with this name keeps nothing of the layers below.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names with which a layer speaks of itself.
const RESERVED: &[u8] = b".wh..wh.";
/// What overlayfs has in place of `.wh..wh..opq`.
const OVERLAY_OPAQUE: (&[u8], &[u8]) = (b"trusted.overlay.opaque", b"y");
/// Permissions of directories that no entry describes.
const IMPLIED_MODE: u32 = 0o755;

/// The tree of these archives, each on top of those before it. The number counts extended
/// attributes that EROFS has no place for.
///
/// # Errors
/// If one is no tar, or has something that an image cannot hold.
pub fn read(archives: &[Archive]) -> Result<(Tree, u64), PackError> {
    let whiteouts = if archives.len() > 1 { Whiteouts::Applied } else { Whiteouts::Names };
    let mut stack = Stack { tree: implied_tree(), left_out: 0, whiteouts };
    for (number, archive) in (0..).zip(archives) {
        stack.add_archive(archive, number)?;
    }
    Ok((stack.tree, stack.left_out))
}

/// The tree of one layer, as overlayfs puts it on top of others; else as [`read`].
///
/// # Errors
/// As [`read`].
pub fn read_layer(archive: &Archive) -> Result<(Tree, u64), PackError> {
    let mut stack = Stack { tree: implied_tree(), left_out: 0, whiteouts: Whiteouts::Kept(Vec::new()) };
    stack.add_archive(archive, 0)?;
    stack.hide().map_err(|why| PackError::Misfit(archive.path.clone(), why))?;
    Ok((stack.tree, stack.left_out))
}

/// Reads one tar of `length` bytes as [`read`] does; for inputs that are no files.
///
/// # Errors
/// In words.
pub fn tree_of(tar: &impl ReadAt, length: u64) -> Result<Tree, String> {
    let mut stack = Stack { tree: implied_tree(), left_out: 0, whiteouts: Whiteouts::Applied };
    match stack.add(tar, length, 0) {
        Ok(()) => Ok(stack.tree),
        Err(Problem::Tar(fault)) => Err(fault.to_string()),
        Err(Problem::Misfit { why, .. }) => Err(why),
    }
}

fn implied_tree() -> Tree {
    Tree::new(Attributes::new(IMPLIED_MODE, 0, 0, 0, 0))
}

/// Why a tar has no tree.
enum Problem {
    /// It is none.
    Tar(Fault),
    /// An entry has no place in an image.
    Misfit {
        /// The entry's path, from the root.
        path: Vec<u8>,
        /// The reason, in lower case.
        why: String,
    },
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::Tar(fault)
    }
}

/// The tree of the archives so far.
struct Stack {
    tree: Tree,
    left_out: u64,
    whiteouts: Whiteouts,
}

/// What a name `.wh.NAME` means.
enum Whiteouts {
    /// Nothing: a tar alone is no layer.
    Names,
    /// NAME is taken away from the layers below.
    Applied,
    /// The same, for overlayfs, once all of the layer is read: the directory, and the name here.
    Kept(Vec<(InodeId, Box<[u8]>)>),
}

impl Stack {
    fn add_archive(&mut self, archive: &Archive, number: u32) -> Result<(), PackError> {
        let added = self.add(&archive.file, archive.stamp.size_bytes, number);
        added.map_err(|problem| match problem {
            Problem::Tar(Fault::Io(error)) => PackError::Source(archive.path.clone(), error),
            Problem::Tar(Fault::Broken { at, why }) => {
                PackError::NoSource(archive.path.clone(), format!("no tar that can be read: {why}, at byte {at}"))
            }
            Problem::Misfit { path, why } => PackError::Misfit(archive.path.join(path_of(&path)), why),
        })
    }

    fn add(&mut self, tar: &impl ReadAt, length: u64, number: u32) -> Result<(), Problem> {
        if matches!(self.whiteouts, Whiteouts::Applied) {
            // What a layer takes away, it takes from the layers below, wherever it says so.
            for entry in Entries::new(tar, length) {
                let entry = entry?;
                self.take_away(&entry.path).map_err(|why| Problem::Misfit { path: entry.path, why })?;
            }
        }
        for entry in Entries::new(tar, length) {
            let mut entry = entry?;
            let path = std::mem::take(&mut entry.path);
            self.put(&path, entry, number).map_err(|why| Problem::Misfit { path, why })?;
        }
        Ok(())
    }

    fn take_away(&mut self, path: &[u8]) -> Result<(), String> {
        let names = names(path)?;
        let Some((last, parents)) = names.split_last().filter(|(last, _)| last.starts_with(WHITEOUT)) else {
            return Ok(());
        };
        let mut directory = InodeId::ROOT;
        for name in parents {
            let Some(next) = self.tree.child(directory, name) else { return Ok(()) };
            directory = next;
        }
        if *last == OPAQUE {
            let gone: Vec<Box<[u8]>> = self.tree.names(directory).keys().cloned().collect();
            gone.iter().for_each(|name| self.tree.remove(directory, name));
        } else if !last.starts_with(RESERVED) {
            self.tree.remove(directory, &last[WHITEOUT.len()..]);
        }
        Ok(())
    }

    fn put(&mut self, path: &[u8], entry: Entry, archive: u32) -> Result<(), String> {
        let names = names(path)?;
        let mut attributes = Attributes::new(entry.mode, entry.uid, entry.gid, entry.mtime_s, entry.mtime_ns);
        self.left_out += attributes.set_xattrs(entry.xattrs)? + entry.left_out;
        let Some((name, parents)) = names.split_last() else {
            return match entry.body {
                Body::Directory => {
                    *self.tree.attributes_mut(InodeId::ROOT) = attributes;
                    Ok(())
                }
                _ => Err("an entry without a name that is no directory".into()),
            };
        };
        let is_whiteout = name.starts_with(WHITEOUT);
        if is_whiteout && matches!(self.whiteouts, Whiteouts::Applied) {
            return Ok(());
        }
        let directory = self.directory(parents)?;
        if let Whiteouts::Kept(kept) = &mut self.whiteouts
            && is_whiteout
        {
            kept.push((directory, (*name).into()));
            return Ok(());
        }
        let kind = match entry.body {
            Body::Directory => {
                let there = self.tree.child(directory, name);
                if let Some(there) = there.filter(|there| self.tree.is_directory_at(there.index())) {
                    *self.tree.attributes_mut(there) = attributes;
                    return Ok(());
                }
                Kind::directory()
            }
            Body::Link(target) => {
                let target = self.find(&target)?;
                return self.tree.link(directory, name, target);
            }
            Body::File { size_bytes, offset, data } => {
                let origin = Origin::Archive { archive, offset };
                let file = match data {
                    Some(data) => File::sparse(size_bytes, data, origin),
                    None => File::new(size_bytes, origin),
                };
                Kind::File(file.ok_or("a file whose parts do not fit into it")?)
            }
            Body::Symlink(target) => Kind::symlink(&target)?,
            Body::Device { is_block, major, minor } => Kind::device(is_block, major, minor)?,
            Body::Fifo => Kind::Fifo,
        };
        self.tree.add(directory, name, Inode { attributes, kind }).map(|_| ())
    }

    /// Hides what a layer takes away, in the words of overlayfs. A device of number 0 hides a name,
    /// and an attribute hides all that a directory has below. What the layer itself has is not
    /// hidden.
    fn hide(&mut self) -> Result<(), String> {
        let Whiteouts::Kept(kept) = std::mem::replace(&mut self.whiteouts, Whiteouts::Names) else { return Ok(()) };
        for (directory, name) in kept {
            if *name == *OPAQUE {
                self.make_opaque(directory)?;
            } else if !name.starts_with(RESERVED) {
                let hidden = &name[WHITEOUT.len()..];
                match self.tree.child(directory, hidden) {
                    Some(own) if self.tree.is_directory_at(own.index()) => self.make_opaque(own)?,
                    Some(_) => {}
                    None => {
                        let inode = Inode { attributes: Attributes::default(), kind: Kind::device(false, 0, 0)? };
                        self.tree.add(directory, hidden, inode)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn make_opaque(&mut self, directory: InodeId) -> Result<(), String> {
        let (name, value) = OVERLAY_OPAQUE;
        let attributes = self.tree.attributes_mut(directory);
        let mut xattrs = attributes.xattrs().to_vec();
        xattrs.retain(|(other, _)| **other != *name);
        xattrs.push((name.into(), value.into()));
        attributes.set_xattrs(xattrs).map(|_| ())
    }

    /// The directory of this path; directories that no entry has described are made.
    fn directory(&mut self, names: &[&[u8]]) -> Result<InodeId, String> {
        let mut directory = InodeId::ROOT;
        for name in names {
            directory = match self.tree.child(directory, name) {
                Some(there) if self.tree.is_directory_at(there.index()) => there,
                Some(_) => return Err("it lies below a name that is no directory".into()),
                None => {
                    let attributes = Attributes::new(IMPLIED_MODE, 0, 0, 0, 0);
                    self.tree.add(directory, name, Inode { attributes, kind: Kind::directory() })?
                }
            };
        }
        Ok(directory)
    }

    /// The inode that a hard link names.
    fn find(&self, path: &[u8]) -> Result<InodeId, String> {
        let mut id = Some(InodeId::ROOT);
        for name in names(path)? {
            id = id.and_then(|id| self.tree.child(id, name));
        }
        let is_file = |id: &InodeId| !self.tree.is_directory_at(id.index());
        id.filter(is_file).ok_or_else(|| {
            let target = String::from_utf8_lossy(path).into_owned();
            format!("a hard link to {target:?}, which the archive has no file of")
        })
    }
}

/// The names in a path; slashes in front and names of `.` are left out.
fn names(path: &[u8]) -> Result<Vec<&[u8]>, String> {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    if names.contains(&b"..".as_slice()) {
        return Err("a path with a name of two dots".into());
    }
    Ok(names)
}
