//! The file system itself: one directory with one file for each image, under each of its names, and
//! a symbolic link for each name that leads to a file.
//!
//! Invariant: everything said about names and sizes, and about bytes of files that cannot be
//! written, stays true until the image goes, of which the kernel is told ([`super::Removed`]), so
//! it may cache all but missing names. Which files there are is in [`super::files`].
//! Called by the threads of `fuser`'s session; checks what the kernel asks for, once, and leaves
//! bytes to [`super::answer`] and [`super::change`].

use super::answer::{self, ImageFile, READ_BYTES_MAX, TOO_LONG, Waiting};
use super::change;
use super::error::errno;
use super::files::{Files, NAME_BYTES_MAX};
use super::holes::{self, Wanted};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vfield_block::extent::Extent;
use vfield_block::source::ReadError;

/// How long the kernel may keep names and attributes without asking again: it is told when one
/// goes.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The same of one file: a link may lead elsewhere at any time.
fn ttl(attributes: &FileAttr) -> Duration {
    if attributes.kind == FileType::Symlink { Duration::ZERO } else { TTL }
}

/// Unit of `st_blocks`, and of the file system's size.
const SECTOR_BYTES: u32 = 512;

/// Reads that the kernel keeps under way for the page cache and asynchronous readers: at 1 MiB
/// each, what [`super::Options::waiting_bytes_max`] lets wait.
const BACKGROUND_MAX: u16 = 64;

/// The directory and its files.
pub(super) struct Directory {
    files: Arc<Files>,
    waiting: Arc<Waiting>,
    /// Set once the kernel has said that it sends requests again.
    resends: Arc<AtomicBool>,
    uid: u32,
    gid: u32,
}

impl Directory {
    pub fn new(files: Arc<Files>, waiting: Arc<Waiting>) -> Self {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self { files, waiting, resends: Arc::default(), uid, gid }
    }

    /// Whether the kernel sends requests again that a process has left; known after the greeting.
    pub fn resends(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.resends)
    }

    /// The file that an inode stands for, if reads of it are still answered.
    fn open_file(&self, inode: INodeNo) -> Result<Arc<ImageFile>, Errno> {
        if self.waiting.is_closed() { Err(Errno::ESHUTDOWN) } else { self.files.file(inode) }
    }

    fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let root = FileAttr {
            ino: inode,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o555,
            nlink: 2,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        if inode == INodeNo::ROOT {
            return Ok(root);
        }
        if let Some(to) = self.files.link(inode) {
            let size = to.len() as u64;
            return Ok(FileAttr { size, kind: FileType::Symlink, perm: 0o777, nlink: 1, ..root });
        }
        let file = self.files.file(inode)?;
        Ok(FileAttr {
            size: file.size_bytes,
            blocks: file.size_bytes / u64::from(SECTOR_BYTES),
            kind: FileType::RegularFile,
            perm: if file.is_writable() { 0o644 } else { 0o444 },
            nlink: u32::try_from(file.source.names().len()).unwrap_or(u32::MAX),
            blksize: file.source.chunk_bytes(),
            ..root
        })
    }

    /// Names and inodes, in the order of the files; an image of several names is one file with as
    /// many links.
    fn entries(&self) -> Vec<(INodeNo, FileType, String)> {
        let mut entries = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name.to_owned())).to_vec();
        for (inode, file) in self.files.all() {
            let named = |name: &str| (inode, FileType::RegularFile, name.to_owned());
            entries.extend(file.source.names().into_iter().map(named));
        }
        entries.extend(self.files.links().into_iter().map(|(inode, name)| (inode, FileType::Symlink, name)));
        entries
    }

    fn find(&self, name: &OsStr) -> Result<FileAttr, Errno> {
        let inode = name.to_str().and_then(|name| self.files.find(name));
        self.attributes(inode.ok_or(Errno::ENOENT)?)
    }
}

impl Filesystem for Directory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that lacks one of them serves the same bytes with less going on at once.
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_PARALLEL_DIROPS;
        let offered = wanted & config.capabilities();
        self.resends.store(config.capabilities().contains(InitFlags::FUSE_HAS_RESEND), Ordering::Relaxed);
        if config.add_capabilities(offered).is_err()
            || config.set_max_write(READ_BYTES_MAX).is_err()
            || config.set_max_background(BACKGROUND_MAX).is_err()
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = if parent == INodeNo::ROOT { self.find(name) } else { Err(Errno::ENOTDIR) };
        match found {
            Ok(attributes) => reply.entry(&ttl(&attributes), &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.files.link(inode) {
            Some(to) => reply.data(to.as_bytes()),
            None => reply.error(Errno::EINVAL),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Ok(attributes) => reply.attr(&ttl(&attributes), &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let file = match self.open_file(inode) {
            Ok(_) if self.files.is_shut() => return reply.error(Errno::ESHUTDOWN),
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        match file.source.device() {
            Some(device) => {
                let handle = self.files.enter(inode, Some(device.users().enter()));
                reply.opened(handle, FopenFlags::FOPEN_NOFLUSH);
            }
            None if flags.acc_mode() != OpenAccMode::O_RDONLY => reply.error(Errno::EROFS),
            None => {
                let handle = self.files.enter(inode, None);
                reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
        }
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.leave(inode, handle);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match (self.open_file(inode), Extent::new(offset, size.into())) {
            (Ok(file), Some(asked)) if size <= READ_BYTES_MAX => {
                let asked = asked.clip(Extent::from(0..file.size_bytes));
                answer::read(&file, asked, reply, &self.waiting);
            }
            (Ok(_), _) => reply.error(TOO_LONG),
            (Err(error), _) => reply.error(error),
        }
    }

    fn lseek(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let file = match self.open_file(inode) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let Some(wanted) = Wanted::from_whence(whence) else {
            return reply.error(Errno::EINVAL);
        };
        let from = match u64::try_from(offset) {
            Ok(from) if from < file.size_bytes => from,
            _ => return reply.error(Errno::ENXIO),
        };
        self.waiting.spawn(0, holes::search(file, from, wanted), move |found| match found {
            // A place within the file, whose length fits.
            Ok(Some(place)) => reply.offset(place.cast_signed()),
            Ok(None) => reply.error(Errno::ENXIO),
            Err::<_, ReadError>(error) => reply.error(errno(&error)),
        });
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Not kept: files come and go, and a list is cheap to make.
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (inode, kind, name)) in (1..).zip(self.entries()).skip(skipped) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = self.files.all();
        let blocks = files.iter().map(|(_, file)| file.size_bytes / u64::from(SECTOR_BYTES)).sum();
        reply.statfs(blocks, 0, 0, files.len() as u64, 0, SECTOR_BYTES, NAME_BYTES_MAX as u32, SECTOR_BYTES);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.open_file(inode) {
            Ok(_) if bytes.len() > READ_BYTES_MAX as usize => reply.error(TOO_LONG),
            Ok(file) => change::write(&file, offset, bytes, reply, &self.waiting),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match (self.open_file(inode), Extent::new(offset, length)) {
            (Ok(file), Some(extent)) => change::fallocate(&file, extent, mode, reply, &self.waiting),
            (Ok(_), None) => reply.error(Errno::EINVAL),
            (Err(error), _) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.open_file(inode) {
            Ok(file) => change::flush(&file, reply, &self.waiting),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attributes = match self.files.file(inode) {
            Ok(file) if file.is_writable() => self.attributes(inode),
            _ => return reply.error(Errno::EROFS),
        };
        match attributes {
            // Times are not kept. The length is the image's, whoever would cut it.
            Ok(attributes)
                if size.is_none_or(|size| size == attributes.size) && (mode, uid, gid) == (None, None, None) =>
            {
                reply.attr(&TTL, &attributes);
            }
            Ok(_) => reply.error(Errno::EPERM),
            Err(error) => reply.error(error),
        }
    }

    // Nothing is ever made, renamed or removed. On a read-only mount the kernel refuses what
    // follows by itself.

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::EROFS);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rename(&self, _: &Request, _: INodeNo, _: &OsStr, _: INodeNo, _: &OsStr, _: RenameFlags, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    // What follows has nothing to do here; answering keeps the kernel from asking again.

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}
