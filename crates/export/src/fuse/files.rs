//! The files of a mount: which image is which inode, under which names, and how often each is open.
//!
//! Invariants: an inode stands for one image for the life of the mount, also after the image has
//! gone, so nothing that the kernel keeps of it is ever another image's; no two images have a name
//! in common. Shared by the directory, which the kernel asks, and by [`super::Mounted`], through
//! which images come and go.

use super::answer::ImageFile;
use super::error::MountError;
use super::table::{Known, KnownFile, Record};
use fuser::{Errno, FileHandle, INodeNo};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfield_block::device::User;
use vfield_block::source::BlockSource;

/// Inode of the first file; those of the others follow. 1 is the root's, by definition.
const FIRST_FILE: u64 = 2;

/// Files to which a name has led that are remembered. A reader that has just found a link asks
/// where it leads, and must be told, though the name leads elsewhere by now. So many other files in
/// between are months of releases.
const LINKS_KEPT: usize = 64;

/// The handle of everybody who only reads.
const READER: FileHandle = FileHandle(0);

/// Longest file name of Linux.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// The files of a mount, one for each image.
#[derive(Default)]
pub(super) struct Files(RwLock<Table>);

#[derive(Default)]
struct Table {
    files: BTreeMap<u64, Arc<ImageFile>>,
    /// Symbolic links by name: for each file to which it has led, the inode of that link and the
    /// file's name; the latest last.
    links: BTreeMap<String, VecDeque<(u64, String)>>,
    /// How many files and links there have ever been.
    made: u64,
    /// How often each inode is open that cannot be written; all have the handle [`READER`].
    opens: BTreeMap<u64, u64>,
    /// Open files that can be written: their inodes and users by their handles.
    writers: BTreeMap<u64, (u64, User)>,
    /// The last handle.
    last: u64,
    /// No file is opened any more.
    is_shut: bool,
    /// Where the next process finds all that, if it is kept.
    kept: Option<(Record, Known)>,
}

impl Files {
    /// One file for each source, in their order.
    pub fn of(sources: Vec<Arc<dyn BlockSource>>) -> Result<Self, MountError> {
        let files = Self::default();
        sources.into_iter().try_for_each(|source| files.add(source))?;
        Ok(files)
    }

    /// One file for each source, as the kernel knows them from an earlier process.
    pub fn known(sources: Vec<Arc<dyn BlockSource>>, record: Record, known: Known) -> Result<Self, MountError> {
        let files = Self(RwLock::new(Table { made: known.made, ..Table::default() }));
        for source in sources {
            let image = source.description();
            let before = known.files.iter().find(|file| file.image == image);
            files.add_as(source, before.map(|file| file.inode))?;
            if let Some(file) = before {
                files.write().opens.insert(file.inode, file.opens);
            }
        }
        files.keep(record, known);
        Ok(files)
    }

    /// Writes down from now on what the kernel knows of the mount that `known` describes.
    pub fn keep(&self, record: Record, known: Known) {
        let mut table = self.write();
        table.kept = Some((record, known));
        table.write_down();
    }

    /// Has files opened no more, or again.
    pub fn shut(&self, is_shut: bool) {
        self.write().is_shut = is_shut;
    }

    /// True if no file is to be opened.
    pub fn is_shut(&self) -> bool {
        self.read().is_shut
    }

    /// The memory for the next process, if there is one.
    pub fn kept(&self) -> Option<OwnedFd> {
        self.read().kept.as_ref().and_then(|(record, _)| record.as_fd().try_clone_to_owned().ok())
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        // A panic elsewhere cannot leave it half changed.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file for one more image.
    pub fn add(&self, source: Arc<dyn BlockSource>) -> Result<(), MountError> {
        self.add_as(source, None)
    }

    fn add_as(&self, source: Arc<dyn BlockSource>, inode: Option<u64>) -> Result<(), MountError> {
        let mut table = self.write();
        for name in source.names() {
            let bad = name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['/', '\0']);
            if bad || name == "." || name == ".." {
                return Err(MountError::BadName(name.into()));
            }
            if table.files.values().any(|file| file.source.names().contains(&name)) {
                return Err(MountError::SameName(name.into()));
            }
        }
        let (name, size_bytes) = (source.name().to_owned(), source.size_bytes());
        let file = ImageFile::new(source).ok_or(MountError::TooLong { name, size_bytes })?;
        let inode = inode.unwrap_or_else(|| {
            table.made += 1;
            FIRST_FILE + table.made - 1
        });
        table.files.insert(inode, Arc::new(file));
        table.write_down();
        Ok(())
    }

    /// Has a link of this name lead to the file `to` from now on. That is another link than those
    /// to other files: the kernel may keep the content of each.
    pub fn lead(&self, name: &str, to: &str) {
        let mut guard = self.write();
        let table = &mut *guard;
        let links = table.links.entry(name.to_owned()).or_default();
        let link = match links.iter().position(|(_, led)| led == to) {
            Some(place) => links.remove(place),
            None => {
                table.made += 1;
                Some((FIRST_FILE + table.made - 1, to.to_owned()))
            }
        };
        if links.len() == LINKS_KEPT {
            links.pop_front();
        }
        links.extend(link);
        // The next process gives no inode twice. It makes links of its own.
        table.write_down();
    }

    /// The name to which the link of an inode leads.
    pub fn link(&self, inode: INodeNo) -> Option<String> {
        let table = self.read();
        table.links.values().flatten().find(|(of, _)| *of == inode.0).map(|(_, to)| to.clone())
    }

    /// The links, but for those whose name a file has.
    pub fn links(&self) -> Vec<(INodeNo, String)> {
        let table = self.read();
        let free = table.links.iter().filter(|(name, _)| table.inode_of(name).is_none());
        free.filter_map(|(name, links)| Some((INodeNo(links.back()?.0), name.clone()))).collect()
    }

    /// Takes out the image of this name; its inode and its names.
    pub fn remove(&self, name: &str) -> Option<(INodeNo, Vec<String>)> {
        let mut table = self.write();
        let inode = table.inode_of(name)?;
        let file = table.files.remove(&inode)?;
        table.write_down();
        Some((INodeNo(inode), file.source.names().into_iter().map(str::to_owned).collect()))
    }

    /// How often the image of this name is open.
    pub fn opens(&self, name: &str) -> usize {
        let table = self.read();
        let Some(inode) = table.inode_of(name) else { return 0 };
        let writers = table.writers.values().filter(|(of, _)| *of == inode).count();
        writers + table.opens.get(&inode).map_or(0, |opens| usize::try_from(*opens).unwrap_or(usize::MAX))
    }

    /// The file of an inode.
    pub fn file(&self, inode: INodeNo) -> Result<Arc<ImageFile>, Errno> {
        if inode == INodeNo::ROOT {
            return Err(Errno::EISDIR);
        }
        self.read().files.get(&inode.0).cloned().ok_or(Errno::ENOENT)
    }

    /// The inode of the image of this name, or of the link.
    pub fn find(&self, name: &str) -> Option<INodeNo> {
        let table = self.read();
        let link = || table.links.get(name)?.back().map(|(inode, _)| *inode);
        table.inode_of(name).or_else(link).map(INodeNo)
    }

    /// All, in the order in which they came.
    pub fn all(&self) -> Vec<(INodeNo, Arc<ImageFile>)> {
        self.read().files.iter().map(|(inode, file)| (INodeNo(*inode), Arc::clone(file))).collect()
    }

    /// Somebody has opened it, to write if he is a user of the device.
    pub fn enter(&self, inode: INodeNo, user: Option<User>) -> FileHandle {
        let mut table = self.write();
        let Some(user) = user else {
            *table.opens.entry(inode.0).or_default() += 1;
            table.write_down();
            return READER;
        };
        table.last += 1;
        let handle = table.last;
        table.writers.insert(handle, (inode.0, user));
        FileHandle(handle)
    }

    /// It was closed.
    pub fn leave(&self, inode: INodeNo, handle: FileHandle) {
        let mut table = self.write();
        if handle != READER {
            table.writers.remove(&handle.0);
            return;
        }
        if let Some(opens) = table.opens.get_mut(&inode.0) {
            *opens = opens.saturating_sub(1);
        }
        table.write_down();
    }
}

impl Table {
    fn write_down(&mut self) {
        let Some((record, known)) = &mut self.kept else { return };
        known.made = self.made;
        let opens = |inode: &u64| self.opens.get(inode).copied().unwrap_or_default();
        let files = self.files.iter().map(|(inode, file)| KnownFile {
            inode: *inode,
            opens: opens(inode),
            image: file.source.description(),
        });
        known.files = files.collect();
        record.write(known);
    }

    fn inode_of(&self, name: &str) -> Option<u64> {
        let mut files = self.files.iter();
        files.find(|(_, file)| file.source.names().contains(&name)).map(|(inode, _)| *inode)
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.read().files.values().map(|file| file.source.names())).finish()
    }
}
