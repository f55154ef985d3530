//! A directory as a source: its tree, read without following links.
//!
//! Attributes, extended attributes and holes are those that the file systems below the directory
//! say; mounts below it are a part of it. Files with several names there are one inode.

use crate::contents::{Directory, open_below, stamp, stamp_of};
use crate::erofs::xattrs::Xattr;
use crate::error::{PackError, path_of};
use crate::tree::{Attributes, File, Inode, InodeId, Kind, Origin, TARGET_BYTES_MAX, Tree};
use rustix::fd::{AsFd, AsRawFd as _};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, SeekFrom, Stat, fstat, readlinkat, seek, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// Most bytes of the names or of one value of extended attributes that Linux gives.
const XATTR_BYTES_MAX: usize = 64 << 10;
/// Bytes of names that nearly all files' attributes fit into.
const XATTR_BYTES_USUAL: usize = 1 << 10;
/// Unit of a file's blocks in its attributes.
const STAT_BLOCK_BYTES: u64 = 512;

/// Reads the tree below a directory. Files shorter than a chunk of `chunk_bytes` have no holes. The
/// number counts extended attributes that EROFS has no place for.
///
/// # Errors
/// If something cannot be read, or an image cannot hold it.
pub fn read(path: &Path, chunk_bytes: u64) -> Result<(Tree, Directory, u64), PackError> {
    let opened =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, rustix::fs::Mode::empty());
    let root = opened.map_err(|error| PackError::Source(path.to_owned(), error.into()))?;
    let stat = fstat(&root).map_err(|error| PackError::Source(path.to_owned(), error.into()))?;
    let mut tree = Tree::new(attributes(&stat));
    let xattrs = xattrs_of(format!("/proc/self/fd/{}/.", root.as_raw_fd()).as_bytes());
    let xattrs = xattrs.map_err(|error| PackError::Source(path.to_owned(), error.into()))?;
    let left_out = tree.attributes_mut(InodeId::ROOT).set_xattrs(xattrs);
    let left_out = left_out.map_err(|why| PackError::Misfit(path.to_owned(), why))?;
    let directory = Directory { path: path.to_owned(), root, listed: Vec::new() };
    let mut walk = Walk { tree, directory, chunk_bytes, links: HashMap::new(), left_out };
    let mut ahead: Vec<(InodeId, Vec<u8>)> = vec![(InodeId::ROOT, Vec::new())];
    while let Some((id, path)) = ahead.pop() {
        walk.list(id, &path, &mut ahead)?;
    }
    Ok((walk.tree, walk.directory, walk.left_out))
}

struct Walk {
    tree: Tree,
    directory: Directory,
    chunk_bytes: u64,
    /// Inodes with several names, by the numbers of their file system and their own.
    links: HashMap<(u64, u64), InodeId>,
    left_out: u64,
}

impl Walk {
    /// Adds all that a directory holds; its directories are listed later.
    fn list(&mut self, id: InodeId, path: &[u8], ahead: &mut Vec<(InodeId, Vec<u8>)>) -> Result<(), PackError> {
        let shown = self.directory.shown(path);
        let failed = |error: Errno| PackError::Source(shown.clone(), error.into());
        let opened = open_below(&self.directory.root, path, OFlags::DIRECTORY).map_err(failed)?;
        // Before the names are read: a name that comes later changes it.
        self.directory.listed.push((path.into(), stamp(&opened).map_err(failed)?));
        let entries = Dir::read_from(&opened).map_err(failed)?;
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let mut below = path.to_vec();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend(name);
            let new = self.add(id, &opened, name, &below)?;
            if matches!(self.tree.inode(new).kind, Kind::Directory(_)) {
                ahead.push((new, below));
            }
        }
        Ok(())
    }

    /// Adds one name of an open directory; `path` is the name's from the root.
    fn add(&mut self, id: InodeId, opened: impl AsFd, name: &[u8], path: &[u8]) -> Result<InodeId, PackError> {
        let shown = || self.directory.path.join(path_of(path));
        let failed = |error: Errno| match error {
            Errno::NOENT => PackError::Changed(shown()),
            _ => PackError::Source(shown(), error.into()),
        };
        let misfit = |why: String| PackError::Misfit(shown(), why);
        let stat = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let has_links = stat.st_nlink > 1 && kind != FileType::Directory;
        let numbers = (stat.st_dev, stat.st_ino);
        if has_links && let Some(known) = self.links.get(&numbers).copied() {
            self.tree.link(id, name, known).map_err(misfit)?;
            return Ok(known);
        }
        let kind = match kind {
            FileType::Directory => Kind::directory(),
            FileType::RegularFile => {
                let data = data_of(&opened, name, &stat, self.chunk_bytes).map_err(failed)?;
                let (size_bytes, origin) = (stat.st_size as u64, Origin::Path(stamp_of(&stat)));
                let file = match data {
                    Some(data) => File::sparse(size_bytes, data, origin),
                    None => File::new(size_bytes, origin),
                };
                Kind::File(file.ok_or_else(|| PackError::Changed(shown()))?)
            }
            FileType::Symlink => {
                let target = readlinkat(&opened, name, Vec::with_capacity(TARGET_BYTES_MAX + 1)).map_err(failed)?;
                Kind::symlink(target.as_bytes()).map_err(misfit)?
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
                Kind::device(kind == FileType::BlockDevice, major, minor).map_err(misfit)?
            }
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::Unknown => return Err(misfit("a file of a type that Linux does not have".into())),
        };
        let mut attributes = attributes(&stat);
        let mut through_proc = format!("/proc/self/fd/{}/", opened.as_fd().as_raw_fd()).into_bytes();
        through_proc.extend(name);
        let xattrs = xattrs_of(&through_proc).map_err(failed)?;
        let left_out = attributes.set_xattrs(xattrs).map_err(misfit)?;
        let new = self.tree.add(id, name, Inode { attributes, kind }).map_err(misfit)?;
        self.left_out += left_out;
        if has_links {
            self.links.insert(numbers, new);
        }
        Ok(new)
    }
}

fn attributes(stat: &Stat) -> Attributes {
    Attributes::new(stat.st_mode, stat.st_uid, stat.st_gid, stat.st_mtime, stat.st_mtime_nsec as u32)
}

/// The ranges with data of a file that takes less room than its length. `None` for all others, and
/// for files shorter than a chunk.
fn data_of(directory: impl AsFd, name: &[u8], stat: &Stat, chunk_bytes: u64) -> Result<Option<Vec<Range<u64>>>, Errno> {
    let size = stat.st_size as u64;
    if size < chunk_bytes || stat.st_blocks as u64 * STAT_BLOCK_BYTES >= size {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::openat(directory, name, flags, rustix::fs::Mode::empty())?;
    let (mut data, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            // Behind the last data.
            Err(Errno::NXIO) => break,
            found => found?,
        };
        let end = seek(&file, SeekFrom::Hole(start))?.min(size);
        if start >= end {
            break;
        }
        data.push(start..end);
        at = end;
    }
    Ok(Some(data))
}

/// The extended attributes of a path whose last name is not followed.
fn xattrs_of(path: &[u8]) -> Result<Vec<Xattr>, Errno> {
    let mut names = vec![0; XATTR_BYTES_USUAL];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Err(Errno::NOTSUP) => 0,
        Err(Errno::RANGE) => {
            names.resize(XATTR_BYTES_MAX, 0);
            rustix::fs::llistxattr(path, &mut names)?
        }
        length => length?,
    };
    let mut xattrs = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        match rustix::fs::lgetxattr(path, name, &mut value) {
            // Taken away in this moment; the change is found when the file is read.
            Err(Errno::NODATA) => {}
            length => xattrs.push((name.into(), value[..length?].into())),
        }
    }
    Ok(xattrs)
}
