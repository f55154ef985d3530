//! A tree of inodes in memory, as a source gives it and an image holds it.
//!
//! Owns names, attributes and links; contents stay where they are, and a file says where that is.
//! Every tree fits into an image: names, attributes and device numbers are checked when they enter.
//! Sources fill it ([`crate::directory`], [`crate::tar`]), [`crate::layout`] reads it. Costs about
//! 200 bytes for each inode.

use crate::erofs::directory::NAME_BYTES_MAX;
use crate::erofs::xattrs::{self, Xattr};
use crate::erofs::{
    MODE_BLOCK, MODE_CHARACTER, MODE_DIRECTORY, MODE_FIFO, MODE_FILE, MODE_SOCKET, MODE_SYMLINK, device_number,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most bytes of a symbolic link's target; the kernel follows no longer one.
pub const TARGET_BYTES_MAX: usize = 4095;
/// The bits of a mode beside its type.
const PERMISSIONS: u16 = 0o7777;

/// Index of an inode of one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(u32);

impl InodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    /// The index as a place in a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What all kinds of inodes have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions with set-id and sticky bits, below 0o10000.
    permissions: u16,
    /// Number of the user who owns it.
    pub uid: u32,
    /// Number of the group that owns it.
    pub gid: u32,
    /// Time of the last change, in seconds since 1970; negative before.
    pub mtime_s: i64,
    /// Its nanoseconds, below 10^9.
    mtime_ns: u32,
    /// Extended attributes in ascending order of their names.
    xattrs: Box<[Xattr]>,
}

impl Attributes {
    /// `mode` may have the bits of a type; those are dropped.
    pub fn new(mode: u32, uid: u32, gid: u32, mtime_s: i64, mtime_ns: u32) -> Self {
        let permissions = mode as u16 & PERMISSIONS;
        Self { permissions, uid, gid, mtime_s, mtime_ns: mtime_ns.min(999_999_999), xattrs: Box::default() }
    }

    /// Sets the extended attributes; returns how many EROFS has no name for, which are left out.
    ///
    /// # Errors
    /// A reason, if one is too large, or all together are.
    pub fn set_xattrs(&mut self, mut xattrs: Vec<Xattr>) -> Result<u64, String> {
        let given = xattrs.len();
        xattrs.retain(|(name, _)| xattrs::split(name).is_some());
        xattrs.sort_unstable();
        xattrs.dedup_by(|one, other| one.0 == other.0);
        if let Some((name, _)) = xattrs.iter().find(|(_, value)| value.len() > xattrs::VALUE_BYTES_MAX) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("its extended attribute {name} has more than {} bytes", xattrs::VALUE_BYTES_MAX));
        }
        if xattrs::length_bytes(&xattrs) > xattrs::BYTES_MAX {
            return Err(format!("its extended attributes have more than {} bytes", xattrs::BYTES_MAX));
        }
        let left_out = given - xattrs.len();
        self.xattrs = xattrs.into();
        Ok(left_out as u64)
    }

    /// Permissions with set-id and sticky bits, without the type.
    pub const fn permissions(&self) -> u16 {
        self.permissions
    }

    /// Nanoseconds of the time, below 10^9.
    pub const fn mtime_ns(&self) -> u32 {
        self.mtime_ns
    }

    /// Extended attributes in ascending order of their names.
    pub fn xattrs(&self) -> &[Xattr] {
        &self.xattrs
    }
}

/// Where the contents of a file are, until they are copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the file of the same path below a directory, if that file is still as it was.
    Path(Stamp),
    /// In a tar, from this byte on, the data alone, without holes.
    Archive {
        /// Which of the source's archives.
        archive: u32,
        /// First byte of the data.
        offset: u64,
    },
    /// In an image, from this block on.
    Image,
}

/// What changes when a file is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the inode in its file system.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Time of the last change to the contents: seconds, nanoseconds.
    pub mtime: (i64, i64),
    /// Time of the last change to the inode: seconds, nanoseconds.
    pub ctime: (i64, i64),
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Length in bytes, holes included.
    size_bytes: u64,
    /// Half-open ranges with data, ascending and apart; `None` if there is no hole.
    data: Option<Box<[Range<u64>]>>,
    /// Where the contents are.
    pub origin: Origin,
}

impl File {
    /// A file without holes; `None` if it is longer than files are.
    pub fn new(size_bytes: u64, origin: Origin) -> Option<Self> {
        (size_bytes <= i64::MAX as u64).then_some(Self { size_bytes, data: None, origin })
    }

    /// A file with data in these half-open ranges, and holes elsewhere.
    ///
    /// `None` if a range is empty, not behind the last one or not within the file. `None` if no
    /// file is so long.
    pub fn sparse(size_bytes: u64, data: Vec<Range<u64>>, origin: Origin) -> Option<Self> {
        let apart = data.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let within = data.iter().all(|range| range.start < range.end && range.end <= size_bytes);
        let file = Self::new(size_bytes, origin)?;
        (apart && within).then(|| Self { data: Some(data.into()), ..file })
    }

    /// Length in bytes, holes included.
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The half-open ranges with data, ascending and apart; `None` if there is no hole.
    pub fn data(&self) -> Option<&[Range<u64>]> {
        self.data.as_deref()
    }
}

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory, with its names in ascending order of their bytes.
    Directory(BTreeMap<Box<[u8]>, InodeId>),
    /// A regular file.
    File(File),
    /// A symbolic link to this target.
    Symlink(Box<[u8]>),
    /// A character device with this number.
    Character(u32),
    /// A block device with this number.
    Block(u32),
    /// A named pipe.
    Fifo,
    /// A socket, which is nothing but a name.
    Socket,
}

impl Kind {
    /// A directory without names.
    pub const fn directory() -> Self {
        Self::Directory(BTreeMap::new())
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// A reason, if the target is empty or too long.
    pub fn symlink(target: &[u8]) -> Result<Self, String> {
        match target.len() {
            0 => Err("a symbolic link to nothing".into()),
            1..=TARGET_BYTES_MAX => Ok(Self::Symlink(target.into())),
            more => Err(format!("a symbolic link to a path of {more} bytes; {TARGET_BYTES_MAX} are the most")),
        }
    }

    /// A device.
    ///
    /// # Errors
    /// A reason, if its number is above 12 bits of major and 20 of minor number.
    pub fn device(is_block: bool, major: u32, minor: u32) -> Result<Self, String> {
        let number = device_number(major, minor);
        let number = number.ok_or_else(|| format!("the device number {major}:{minor} is larger than Linux has"))?;
        Ok(if is_block { Self::Block(number) } else { Self::Character(number) })
    }

    /// The bits of a mode that say what it is.
    pub const fn mode(&self) -> u16 {
        match self {
            Self::Directory(_) => MODE_DIRECTORY,
            Self::File(_) => MODE_FILE,
            Self::Symlink(_) => MODE_SYMLINK,
            Self::Character(_) => MODE_CHARACTER,
            Self::Block(_) => MODE_BLOCK,
            Self::Fifo => MODE_FIFO,
            Self::Socket => MODE_SOCKET,
        }
    }
}

/// One inode: a file without its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// What all kinds have.
    pub attributes: Attributes,
    /// What it is.
    pub kind: Kind,
}

/// All inodes of a source below its root directory.
#[derive(Debug)]
pub struct Tree {
    inodes: Vec<Inode>,
}

impl Tree {
    /// A tree of an empty root directory.
    pub fn new(root: Attributes) -> Self {
        Self { inodes: vec![Inode { attributes: root, kind: Kind::directory() }] }
    }

    /// An inode of this tree.
    pub fn inode(&self, id: InodeId) -> &Inode {
        &self.inodes[id.index()]
    }

    /// The attributes of an inode, to be changed.
    pub fn attributes_mut(&mut self, id: InodeId) -> &mut Attributes {
        &mut self.inodes[id.index()].attributes
    }

    /// Number of inodes that were ever added.
    pub fn inodes(&self) -> usize {
        self.inodes.len()
    }

    /// All inodes that were ever added.
    pub fn ids(&self) -> impl Iterator<Item = InodeId> {
        (0..self.inodes.len()).map(|index| InodeId(index as u32))
    }

    /// True if the inode at an index of the tree's tables is a directory.
    pub fn is_directory_at(&self, index: usize) -> bool {
        matches!(self.inodes[index].kind, Kind::Directory(_))
    }

    /// The inode of a name in a directory.
    pub fn child(&self, directory: InodeId, name: &[u8]) -> Option<InodeId> {
        self.names(directory).get(name).copied()
    }

    /// The names of a directory; none if it is no directory.
    pub fn names(&self, directory: InodeId) -> &BTreeMap<Box<[u8]>, InodeId> {
        static NONE: BTreeMap<Box<[u8]>, InodeId> = BTreeMap::new();
        match &self.inode(directory).kind {
            Kind::Directory(names) => names,
            _ => &NONE,
        }
    }

    /// Adds an inode under a name, which loses the inode that it had.
    ///
    /// # Errors
    /// A reason, if the name is none, or there are 2^32 inodes.
    ///
    /// # Panics
    /// If `directory` is none; the same holds for [`Tree::link`].
    pub fn add(&mut self, directory: InodeId, name: &[u8], inode: Inode) -> Result<InodeId, String> {
        check_name(name)?;
        let id = InodeId(u32::try_from(self.inodes.len()).map_err(|_| "more than 2^32 files".to_owned())?);
        self.inodes.push(inode);
        self.link(directory, name, id)?;
        Ok(id)
    }

    /// Gives an inode that is no directory one more name.
    ///
    /// # Errors
    /// A reason, if the name is none.
    pub fn link(&mut self, directory: InodeId, name: &[u8], to: InodeId) -> Result<(), String> {
        check_name(name)?;
        let Kind::Directory(names) = &mut self.inodes[directory.index()].kind else {
            panic!("names are given in directories");
        };
        names.insert(name.into(), to);
        Ok(())
    }

    /// Takes a name away, with all that is below it.
    pub fn remove(&mut self, directory: InodeId, name: &[u8]) {
        if let Kind::Directory(names) = &mut self.inodes[directory.index()].kind {
            names.remove(name);
        }
    }
}

fn check_name(name: &[u8]) -> Result<(), String> {
    match name {
        b"" | b"." | b".." => Err("a name that is reserved for directories themselves".into()),
        _ if name.len() > NAME_BYTES_MAX => {
            Err(format!("a name of {} bytes; {NAME_BYTES_MAX} are the most", name.len()))
        }
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err("a name with a slash or a zero byte".into()),
        _ => Ok(()),
    }
}
