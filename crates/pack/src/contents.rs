//! The contents of a source's files: opened by path below a directory, or found in a tar.
//!
//! Owns the promise that a file is read as it was listed: a change since then, or in the meantime,
//! is an error. Links are never followed.

use crate::error::{PackError, path_of};
use crate::listing::{Listing, Place};
use crate::tree::{File, Kind, Origin, Stamp};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Bytes that are read at once to be hashed.
const READ_BYTES: usize = 256 << 10;

/// Where the files of a tree are.
#[derive(Debug)]
pub enum Sources {
    /// Below a directory.
    Directory(Directory),
    /// In tars, each on top of those before it.
    Archives(Vec<Archive>),
}

/// A directory with files.
#[derive(Debug)]
pub struct Directory {
    /// Its path, for messages.
    pub path: PathBuf,
    /// The directory itself.
    pub root: OwnedFd,
    /// Each directory that was listed, by its path from the root.
    pub listed: Vec<(Box<[u8]>, Stamp)>,
}

/// An uncompressed tar.
#[derive(Debug)]
pub struct Archive {
    /// Its path, for messages.
    pub path: PathBuf,
    /// The tar, or its unpacked copy.
    pub file: fs::File,
    /// As it was when it was listed.
    pub stamp: Stamp,
}

impl Archive {
    /// # Errors
    /// If the file has no attributes.
    pub fn new(path: PathBuf, file: fs::File) -> Result<Self, PackError> {
        let stamp = stamp(&file).map_err(|error| PackError::Source(path.clone(), error.into()))?;
        Ok(Self { path, file, stamp })
    }
}

/// The stamp of an open file.
///
/// # Errors
/// The system's.
pub fn stamp(file: impl AsFd) -> Result<Stamp, Errno> {
    Ok(stamp_of(&fstat(file)?))
}

/// The stamp in a file's attributes.
pub fn stamp_of(stat: &rustix::fs::Stat) -> Stamp {
    Stamp {
        inode: stat.st_ino,
        size_bytes: stat.st_size as u64,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
    }
}

/// Opens a path below a directory, without following links and without waiting.
///
/// # Errors
/// The system's.
pub fn open_below(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let path = if path.is_empty() { b"." } else { path };
    openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

impl Directory {
    /// The path of a file below the directory, for messages.
    pub fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.join(path_of(path))
    }
}

impl Sources {
    /// Opens the file at a place.
    ///
    /// # Errors
    /// If it is not as it was listed.
    ///
    /// # Panics
    /// If there is no file of this source at the place.
    pub fn open(&self, listing: &Listing<'_>, place: Place) -> Result<Opened<'_>, PackError> {
        let Kind::File(file) = &listing.tree.inode(listing.listed()[place].id).kind else {
            panic!("only files are opened");
        };
        match (self, &file.origin) {
            (Self::Directory(directory), Origin::Path(stamp)) => {
                let path = listing.path(place);
                let shown = directory.shown(&path);
                let opened = open_below(&directory.root, &path, OFlags::empty()).map_err(|error| match error {
                    Errno::NOENT | Errno::NOTDIR | Errno::LOOP => PackError::Changed(shown.clone()),
                    _ => PackError::Source(shown.clone(), error.into()),
                })?;
                Ok(Opened::Path { file: opened.into(), shown, stamp: *stamp })
            }
            (Self::Archives(archives), Origin::Archive { archive, offset }) => {
                Ok(Opened::Archive { archive: &archives[*archive as usize], pieces: pieces(file, *offset) })
            }
            _ => panic!("the file is another source's"),
        }
    }

    /// Hashes the file at a place.
    ///
    /// # Errors
    /// As [`Sources::open`].
    pub fn hash(&self, listing: &Listing<'_>, place: Place) -> Result<blake3::Hash, PackError> {
        let Kind::File(file) = &listing.tree.inode(listing.listed()[place].id).kind else {
            panic!("only files are hashed");
        };
        let opened = self.open(listing, place)?;
        let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; READ_BYTES], 0);
        while at < file.size_bytes() {
            let part = (file.size_bytes() - at).min(READ_BYTES as u64) as usize;
            opened.read(at, &mut buffer[..part])?;
            hasher.update(&buffer[..part]);
            at += part as u64;
        }
        opened.finish()?;
        Ok(hasher.finalize())
    }

    /// Checks that the source is as it was listed.
    ///
    /// # Errors
    /// [`PackError::Changed`] with the path of the first change.
    pub fn finish(&self) -> Result<(), PackError> {
        match self {
            Self::Directory(directory) => {
                for (path, stamp) in &directory.listed {
                    let now = open_below(&directory.root, path, OFlags::DIRECTORY);
                    if now.and_then(self::stamp).ok() != Some(*stamp) {
                        return Err(PackError::Changed(directory.shown(path)));
                    }
                }
            }
            Self::Archives(archives) => {
                for archive in archives {
                    if stamp(&archive.file).ok() != Some(archive.stamp) {
                        return Err(PackError::Changed(archive.path.clone()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Data of a file in an archive: a half-open range of the file, and its first byte in the archive.
type Piece = (Range<u64>, u64);

fn pieces(file: &File, mut offset: u64) -> Vec<Piece> {
    let whole = 0..file.size_bytes();
    let data = file.data().unwrap_or(std::slice::from_ref(&whole));
    let piece = |range: &Range<u64>| {
        let at = offset;
        offset += range.end - range.start;
        (range.clone(), at)
    };
    data.iter().map(piece).collect()
}

/// A file of a source that is being read.
#[derive(Debug)]
pub enum Opened<'a> {
    /// A file below a directory.
    Path {
        /// The file, open for reading.
        file: fs::File,
        /// Its path, for messages.
        shown: PathBuf,
        /// As it was when it was listed.
        stamp: Stamp,
    },
    /// A file in a tar.
    Archive {
        /// The tar that holds it.
        archive: &'a Archive,
        /// The file's data, in ascending order.
        pieces: Vec<Piece>,
    },
}

impl Opened<'_> {
    /// Fills `buffer` with the file's bytes from an offset on; holes are zeros.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PackError> {
        match self {
            Self::Path { file, shown, .. } => read_exact(file, shown, offset, buffer),
            Self::Archive { archive, pieces } => {
                let end = offset + buffer.len() as u64;
                buffer.fill(0);
                let first = pieces.partition_point(|(range, _)| range.end <= offset);
                for (range, at) in pieces[first..].iter().take_while(|(range, _)| range.start < end) {
                    let (from, to) = (range.start.max(offset), range.end.min(end));
                    let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
                    read_exact(&archive.file, &archive.path, at + (from - range.start), part)?;
                }
                Ok(())
            }
        }
    }

    /// Checks that the file is as it was listed, after the last read.
    ///
    /// # Errors
    /// [`PackError::Changed`].
    pub fn finish(self) -> Result<(), PackError> {
        match self {
            Self::Path { file, shown, stamp } => match self::stamp(&file) {
                Ok(now) if now == stamp => Ok(()),
                _ => Err(PackError::Changed(shown)),
            },
            // All of the tar is checked at the end.
            Self::Archive { .. } => Ok(()),
        }
    }
}

fn read_exact(file: &fs::File, shown: &Path, offset: u64, buffer: &mut [u8]) -> Result<(), PackError> {
    file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => PackError::Changed(shown.to_owned()),
        _ => PackError::Source(shown.to_owned(), error),
    })
}
