//! The entries of a tar, one after the other.
//!
//! The tar comes from outside: an entry's claims are checked against the length of the tar before
//! anything is read or allocated for them.

use super::header::{self, BLOCK_BYTES, Header};
use super::records::{Records, number};
use crate::erofs::xattrs::Xattr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Most bytes of a long name or of an entry's records. Attributes of 256 KiB, the most that an
/// inode has, and a long path fit.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of the map of a sparse file.
const MAP_BYTES_MAX: u64 = 16 << 20;
/// Most parts of a sparse file: those that fit into the largest map.
const PARTS_MAX: usize = 1 << 20;

/// Bytes that can be read from any offset.
pub trait ReadAt {
    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The system's, or that of the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for fs::File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start.checked_add(buffer.len()).and_then(|end| self.get(start..end));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Why there is no next entry.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The tar cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is none.
    #[error("{why}, at byte {at}")]
    Broken {
        /// Offset of the header.
        at: u64,
        /// The reason, in lower case.
        why: &'static str,
    },
}

/// What an entry is.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory of other files.
    Directory,
    /// A regular file.
    File {
        /// Its length, holes included.
        size_bytes: u64,
        /// Offset of its data in the tar.
        offset: u64,
        /// Half-open ranges with data if it has holes.
        data: Option<Vec<Range<u64>>>,
    },
    /// One more name of the file with this path.
    Link(Vec<u8>),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A character or block device.
    Device {
        /// True for a block device.
        is_block: bool,
        /// Major number: the driver.
        major: u32,
        /// Minor number: the device of the driver.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
}

/// One entry: a file with its attributes.
#[derive(Debug)]
pub struct Entry {
    /// The path as it stands there.
    pub path: Vec<u8>,
    /// Permissions, below 0o10000.
    pub mode: u32,
    /// Number of the user who owns it.
    pub uid: u32,
    /// Number of the group that owns it.
    pub gid: u32,
    /// Time of the last change, in seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of that time, below 10^9.
    pub mtime_ns: u32,
    /// Extended attributes, in the tar's order.
    pub xattrs: Vec<Xattr>,
    /// Attributes in a form that is not read.
    pub left_out: u64,
    /// What it is.
    pub body: Body,
}

/// An iterator over the entries; ends after the first fault.
#[derive(Debug)]
pub struct Entries<'a, R> {
    tar: &'a R,
    length: u64,
    at: u64,
    /// Records that hold for all entries.
    global: Records,
    done: bool,
}

impl<'a, R: ReadAt> Entries<'a, R> {
    /// The entries of a tar of `length` bytes.
    pub fn new(tar: &'a R, length: u64) -> Self {
        Self { tar, length, at: 0, global: Records::default(), done: false }
    }

    fn broken<T>(&self, why: &'static str) -> Result<T, Fault> {
        Err(Fault::Broken { at: self.at, why })
    }

    /// The block at the current offset; `None` at the end.
    fn block(&mut self) -> Result<Option<[u8; BLOCK_BYTES as usize]>, Fault> {
        if self.at == self.length && self.at > 0 {
            return Ok(None);
        }
        if self.length - self.at < BLOCK_BYTES {
            return self.broken("it ends within a header");
        }
        let mut block = [0; BLOCK_BYTES as usize];
        self.tar.read_at(self.at, &mut block)?;
        self.at += BLOCK_BYTES;
        Ok(Some(block))
    }

    /// Passes `size` bytes and those that fill their last block; the offset of the first.
    fn pass(&mut self, size: u64) -> Result<u64, Fault> {
        let offset = self.at;
        if size > self.length - self.at {
            return self.broken("it ends within a file");
        }
        // The last block of a tar that was cut behind its data is not missed.
        self.at = (offset + size).next_multiple_of(BLOCK_BYTES).min(self.length);
        Ok(offset)
    }

    /// The bytes of a long name or of records.
    fn text(&mut self, size: u64) -> Result<Vec<u8>, Fault> {
        if size > TEXT_BYTES_MAX {
            return self.broken("a name or attributes of more than 1 MiB");
        }
        let offset = self.pass(size)?;
        let mut text = vec![0; size as usize];
        self.tar.read_at(offset, &mut text)?;
        Ok(text)
    }

    fn entry(&mut self) -> Result<Option<Entry>, Fault> {
        let mut records = self.global.clone();
        let (mut long_path, mut long_target) = (None, None);
        loop {
            let Some(block) = self.block()? else { return Ok(None) };
            // Two such blocks end a tar, and one does.
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let header = match Header::new(&block) {
                Ok(header) => header,
                Err(why) => return self.broken(why),
            };
            let Some(size) = header.size_bytes() else { return self.broken("a header without a size") };
            let without_end = |text: Vec<u8>| text.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
            match header.kind() {
                b'x' => {
                    let text = self.text(size)?;
                    if records.read(&text).is_none() {
                        return self.broken("records of pax that are none");
                    }
                }
                b'g' => {
                    let text = self.text(size)?;
                    if self.global.read(&text).is_none() || self.global.xattrs.len() > usize::from(u16::MAX) {
                        return self.broken("records of pax that are none");
                    }
                    records = self.global.clone();
                }
                b'L' => long_path = without_end(self.text(size)?),
                b'K' => long_target = without_end(self.text(size)?),
                // The name of the volume, which is no file.
                b'V' => drop(self.pass(size)?),
                _ => {
                    records.path = records.path.or(long_path);
                    records.target = records.target.or(long_target);
                    return self.described(&header, size, records).map(Some);
                }
            }
        }
    }

    /// The entry of a header and of the records before it.
    fn described(&mut self, header: &Header<'_>, size: u64, records: Records) -> Result<Entry, Fault> {
        let size = records.size_bytes.unwrap_or(size);
        let path = records.sparse_path.clone().or(records.path.clone()).unwrap_or_else(|| header.path());
        let target = records.target.clone().unwrap_or_else(|| header.target());
        let is_directory = path.ends_with(b"/");
        let body = match header.kind() {
            // An old form of directories.
            b'0' | 0 | b'7' if is_directory => self.empty(size, Body::Directory)?,
            b'0' | 0 | b'7' => self.file(size, &records)?,
            b'1' => self.empty(size, Body::Link(target))?,
            b'2' => self.empty(size, Body::Symlink(target))?,
            b'5' | b'D' => self.empty(size, Body::Directory)?,
            b'6' => self.empty(size, Body::Fifo)?,
            kind @ (b'3' | b'4') => match header.device() {
                Some((major, minor)) => self.empty(size, Body::Device { is_block: kind == b'4', major, minor })?,
                None => return self.broken("a device without a number"),
            },
            b'S' => self.old_sparse(header, size)?,
            b'M' => return self.broken("a part of a file that begins in another tar"),
            _ => return self.broken("an entry of a type that is not known"),
        };
        let (Some(mode), Some(header_mtime)) = (header.mode(), header.mtime_s()) else {
            return self.broken("a header without permissions or time");
        };
        let (Some(uid), Some(gid)) = (records.uid.or(header.uid()), records.gid.or(header.gid())) else {
            return self.broken("a header without an owner");
        };
        let (mtime_s, mtime_ns) = records.mtime.unwrap_or((header_mtime, 0));
        let Records { xattrs, left_out, .. } = records;
        Ok(Entry { path, mode, uid, gid, mtime_s, mtime_ns, xattrs, left_out, body })
    }

    /// An entry without contents. Those of a directory are a list of names, in some tars.
    fn empty(&mut self, size: u64, body: Body) -> Result<Body, Fault> {
        // Links may say the size of their file, and have no bytes.
        if body == Body::Directory {
            self.pass(size)?;
        }
        Ok(body)
    }

    fn file(&mut self, size: u64, records: &Records) -> Result<Body, Fault> {
        match records.sparse {
            [Some(1), Some(0)] => {
                let Some(length) = records.sparse_bytes else { return self.broken("a sparse file without a length") };
                self.sparse(size, length)
            }
            [None, None] if !records.sparse_old => {
                Ok(Body::File { size_bytes: size, offset: self.pass(size)?, data: None })
            }
            _ => self.broken("a sparse file in a form that GNU tar has given up"),
        }
    }

    /// A sparse file of pax: its map stands before its data, a number on each line.
    fn sparse(&mut self, size: u64, length: u64) -> Result<Body, Fault> {
        let (start, end) = (self.at, self.at + size.min(self.length - self.at));
        self.pass(size)?;
        let mut numbers = Numbers { tar: self.tar, at: start, end: end.min(start + MAP_BYTES_MAX), block: Vec::new() };
        let no_map = Fault::Broken { at: start, why: "a sparse file without a map" };
        let Some(count) = numbers.next()?.filter(|count| *count <= PARTS_MAX as u64) else { return Err(no_map) };
        let mut parts = Vec::new();
        for _ in 0..count {
            let (Some(offset), Some(bytes)) = (numbers.next()?, numbers.next()?) else { return Err(no_map) };
            parts.push((offset, bytes));
        }
        let offset = start + (numbers.at - start - numbers.block.len() as u64).next_multiple_of(BLOCK_BYTES);
        self.parts(parts, length, offset, end)
    }

    fn old_sparse(&mut self, header: &Header<'_>, size: u64) -> Result<Body, Fault> {
        let Some((mut parts, mut more, length)) = header.sparse() else {
            return self.broken("a sparse file without a map");
        };
        while more {
            let Some(block) = self.block()? else { return self.broken("it ends within a map") };
            let Some((further, again)) = header::more_parts(&block) else {
                return self.broken("a sparse file without a map");
            };
            parts.extend(further);
            more = again;
            if parts.len() > PARTS_MAX {
                return self.broken("a sparse file of too many parts");
            }
        }
        let offset = self.pass(size)?;
        self.parts(parts, length, offset, offset + size)
    }

    /// A sparse file of these parts, whose data lie in a half-open range of the tar.
    fn parts(&self, parts: Vec<(u64, u64)>, length: u64, offset: u64, end: u64) -> Result<Body, Fault> {
        let mut data: Vec<Range<u64>> = Vec::new();
        let mut left = end.saturating_sub(offset);
        for (start, bytes) in parts {
            let before = data.last().map_or(0, |range| range.end);
            let range = start.checked_add(bytes).map(|end| start..end);
            let range = range.filter(|range| range.start >= before && range.end <= length && bytes <= left);
            let Some(range) = range else { return self.broken("a sparse file whose map contradicts itself") };
            left -= bytes;
            match data.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ if range.is_empty() => {}
                _ => data.push(range),
            }
        }
        Ok(Body::File { size_bytes: length, offset, data: Some(data) })
    }
}

impl<R: ReadAt> Iterator for Entries<'_, R> {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.entry().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Numbers on lines of their own.
struct Numbers<'a, R> {
    tar: &'a R,
    /// Offset behind the bytes that were read.
    at: u64,
    end: u64,
    /// Bytes that were read and not used.
    block: Vec<u8>,
}

impl<R: ReadAt> Numbers<'_, R> {
    /// The next number; `None` if there is none.
    fn next(&mut self) -> io::Result<Option<u64>> {
        loop {
            if let Some(end) = self.block.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.block.drain(..=end).collect();
                return Ok(number(&line[..end]));
            }
            // A number has 20 digits at most.
            if self.block.len() > 20 || self.end - self.at < BLOCK_BYTES {
                return Ok(None);
            }
            let mut block = [0; BLOCK_BYTES as usize];
            self.tar.read_at(self.at, &mut block)?;
            self.at += BLOCK_BYTES;
            self.block.extend(block);
        }
    }
}
