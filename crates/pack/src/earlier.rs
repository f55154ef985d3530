//! An image that was packed before: its tree, and where each inode lies in it.
//!
//! Its bytes come from outside. Whatever they say, reading them ends, takes memory in proportion to
//! the file's length at most, and gives places within the file. Only images with our own marker are
//! read ([`crate::marker`]); those of other programs have no layout that would be worth keeping.

use crate::erofs::{
    BLOCK_BYTES, Form, HOLE, INODE_BYTES, Inode as OnDisk, MODE_BLOCK, MODE_CHARACTER, MODE_DIRECTORY, MODE_FIFO,
    MODE_FILE, MODE_SOCKET, MODE_SYMLINK, MODE_TYPE, SLOT_BYTES, Superblock, directory, u32_at,
};
use crate::error::PackError;
use crate::layout::Spot;
use crate::marker::Marker;
use crate::slots::slots;
use crate::space::Run;
use crate::tree::{Attributes, File, Inode, InodeId, Kind, Origin, Tree};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use vfield_core::chunk::ChunkSize;

/// Bytes of a file's contents that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Why an image is refused that contradicts itself.
const DAMAGED: &str = "damaged: it contradicts itself";

/// An image that was packed before.
#[derive(Debug)]
pub struct Earlier {
    /// Its file, for messages.
    pub path: PathBuf,
    /// Names, kinds, sizes and times; other attributes are left out.
    pub tree: Tree,
    /// Bytes of the metadata in front: whole chunks.
    pub metadata_bytes: u64,
    /// Bytes of the image: whole chunks.
    pub length_bytes: u64,
    file: fs::File,
    /// By the index of the inode.
    spots: Vec<Spot>,
}

impl Earlier {
    /// Reads the metadata of the image in a file.
    ///
    /// # Errors
    /// If there is none that was packed with chunks of `chunk_size`.
    pub fn open(path: &Path, chunk_size: ChunkSize) -> Result<Self, PackError> {
        let refuse = |why: String| PackError::Like(path.to_owned(), why);
        let unreadable = |error: io::Error| refuse(vfield_console::failure::plain(&error));
        // A named pipe is not to be waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| unreadable(errno.into()))?;
        let file = fs::File::from(file);
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(refuse("not a regular file".into()));
        }
        let length_bytes = file.metadata().map_err(unreadable)?.len();
        let mut first = vec![0; BLOCK_BYTES as usize];
        match file.read_exact_at(&mut first, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(refuse("no EROFS image".into())),
            read => read.map_err(unreadable)?,
        }
        let superblock = Superblock::open(&first).map_err(|why| refuse(why.into()))?;
        let marker = Marker::decode(&first)
            .ok_or_else(|| refuse("an EROFS image of another program, whose layout cannot be kept".into()))?;
        if marker.chunk_size != chunk_size {
            let (its, ours) = (marker.chunk_size.bytes() >> 10, chunk_size.bytes() >> 10);
            return Err(refuse(format!("it has chunks of {its} KiB, and the new image has chunks of {ours} KiB")));
        }
        let fits = u64::from(superblock.blocks) * BLOCK_BYTES == length_bytes
            && length_bytes % chunk_size.bytes() == 0
            && marker.metadata_bytes <= length_bytes;
        if !fits {
            return Err(refuse("damaged: its length is not the one that it says".into()));
        }
        let image = Image { file: &file, length_bytes };
        let (tree, spots) = image.tree(superblock.root_nid).map_err(|fault| match fault {
            Fault::Io(error) => unreadable(error),
            Fault::Damaged => refuse(DAMAGED.into()),
        })?;
        let Marker { metadata_bytes, .. } = marker;
        Ok(Self { path: path.to_owned(), tree, metadata_bytes, length_bytes, file, spots })
    }

    /// Where an inode lies.
    pub fn spot(&self, id: InodeId) -> Spot {
        self.spots[id.index()]
    }

    /// All runs of metadata, in slots: inodes, and blocks of directories.
    pub fn metadata(&self) -> impl Iterator<Item = Run> {
        use crate::slots::SLOTS_PER_BLOCK;
        let blocks = self.spots.iter().enumerate().filter(|(index, _)| self.tree.is_directory_at(*index));
        let blocks = blocks.filter_map(|(_, spot)| spot.blocks);
        let blocks = blocks.map(|run| Run { start: run.start * SLOTS_PER_BLOCK, blocks: run.blocks * SLOTS_PER_BLOCK });
        self.spots.iter().map(|spot| spot.body).chain(blocks)
    }

    /// All runs of blocks with contents of inodes that are no directories.
    pub fn contents(&self) -> impl Iterator<Item = Run> {
        let spots = self.spots.iter().enumerate().filter(|(index, _)| !self.tree.is_directory_at(*index));
        spots.filter_map(|(_, spot)| spot.blocks)
    }

    /// Hashes the contents of a file that lies in blocks of its own without holes; `None` for any
    /// other inode.
    ///
    /// # Errors
    /// If the image cannot be read.
    pub fn hash(&self, id: InodeId) -> Result<Option<blake3::Hash>, PackError> {
        let Kind::File(file) = &self.tree.inode(id).kind else { return Ok(None) };
        let Spot { form: Form::Plain(_), blocks: Some(run), .. } = self.spot(id) else { return Ok(None) };
        let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; READ_BYTES]);
        let mut at = 0;
        while at < file.size_bytes() {
            let part = (file.size_bytes() - at).min(READ_BYTES as u64) as usize;
            self.read(run.start * BLOCK_BYTES + at, &mut buffer[..part])?;
            hasher.update(&buffer[..part]);
            at += part as u64;
        }
        Ok(Some(hasher.finalize()))
    }

    /// Fills `buffer` with the image's bytes from an offset on.
    ///
    /// # Errors
    /// If the image cannot be read that far.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PackError> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|error| PackError::Like(self.path.clone(), vfield_console::failure::plain(&error)))
    }
}

enum Fault {
    Io(io::Error),
    Damaged,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The bytes of an image.
struct Image<'a> {
    file: &'a fs::File,
    length_bytes: u64,
}

impl Image<'_> {
    fn read(&self, at: u64, length: u64) -> Result<Vec<u8>, Fault> {
        let end = at.checked_add(length).filter(|end| *end <= self.length_bytes);
        end.ok_or(Fault::Damaged)?;
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| Fault::Damaged)?];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// All inodes, and where they lie.
    fn tree(&self, root_nid: u16) -> Result<(Tree, Vec<Spot>), Fault> {
        let mut tree = Tree::new(Attributes::default());
        let (root, spot) = self.inode(root_nid.into())?;
        if root.kind.mode() != MODE_DIRECTORY {
            return Err(Fault::Damaged);
        }
        *tree.attributes_mut(InodeId::ROOT) = root.attributes;
        let (mut spots, mut known) = (vec![spot], HashMap::from([(u64::from(root_nid), InodeId::ROOT)]));
        let mut ahead = vec![(InodeId::ROOT, u64::from(root_nid))];
        // Directories that claim each other's blocks would be read again and again.
        let mut left_bytes = self.length_bytes;
        while let Some((id, nid)) = ahead.pop() {
            let bytes = self.directory(nid, &mut left_bytes)?;
            for block in bytes.chunks(BLOCK_BYTES as usize) {
                for (name, nid) in directory::decode(block).ok_or(Fault::Damaged)? {
                    if matches!(name, b"." | b"..") {
                        continue;
                    }
                    if let Some(other) = known.get(&nid) {
                        if tree.inode(*other).kind.mode() == MODE_DIRECTORY {
                            return Err(Fault::Damaged);
                        }
                        tree.link(id, name, *other).map_err(|_| Fault::Damaged)?;
                        continue;
                    }
                    let (inode, spot) = self.inode(nid)?;
                    let is_directory = inode.kind.mode() == MODE_DIRECTORY;
                    let new = tree.add(id, name, inode).map_err(|_| Fault::Damaged)?;
                    spots.push(spot);
                    known.insert(nid, new);
                    if is_directory {
                        ahead.push((new, nid));
                    }
                }
            }
        }
        Ok((tree, spots))
    }

    fn on_disk(&self, nid: u64) -> Result<OnDisk, Fault> {
        let at = nid.checked_mul(SLOT_BYTES).ok_or(Fault::Damaged)?;
        let bytes = self.read(at, INODE_BYTES)?;
        OnDisk::decode(bytes.as_slice().try_into().expect("read as long")).ok_or(Fault::Damaged)
    }

    /// The bytes of a directory.
    fn directory(&self, nid: u64, left_bytes: &mut u64) -> Result<Vec<u8>, Fault> {
        let inode = self.on_disk(nid)?;
        *left_bytes = left_bytes.checked_sub(inode.size_bytes).ok_or(Fault::Damaged)?;
        match inode.form {
            Form::Plain(block) => self.read(u64::from(block) * BLOCK_BYTES, inode.size_bytes),
            Form::Inline => self.read(nid * SLOT_BYTES + INODE_BYTES + inode.xattr_bytes, inode.size_bytes),
            Form::Chunked { .. } | Form::Device(_) => Err(Fault::Damaged),
        }
    }

    fn inode(&self, nid: u64) -> Result<(Inode, Spot), Fault> {
        let inode = self.on_disk(nid)?;
        let attributes = Attributes::new(u32::from(inode.mode), inode.uid, inode.gid, inode.mtime_s, inode.mtime_ns);
        let kind = match (inode.mode & MODE_TYPE, inode.form) {
            (MODE_DIRECTORY, _) => Kind::directory(),
            (MODE_FILE, _) => Kind::File(File::new(inode.size_bytes, Origin::Image).ok_or(Fault::Damaged)?),
            (MODE_SYMLINK, _) => Kind::Symlink(Box::default()),
            (MODE_CHARACTER, Form::Device(number)) => Kind::Character(number),
            (MODE_BLOCK, Form::Device(number)) => Kind::Block(number),
            (MODE_FIFO, _) => Kind::Fifo,
            (MODE_SOCKET, _) => Kind::Socket,
            _ => return Err(Fault::Damaged),
        };
        let head_bytes = INODE_BYTES + inode.xattr_bytes;
        let (body_bytes, blocks) = match inode.form {
            Form::Plain(start) => {
                let blocks = inode.size_bytes.div_ceil(BLOCK_BYTES);
                (head_bytes, Some(Run { start: start.into(), blocks }))
            }
            // It lies in one block.
            Form::Inline if inode.size_bytes <= BLOCK_BYTES => (head_bytes + inode.size_bytes, None),
            Form::Inline => return Err(Fault::Damaged),
            Form::Device(_) => (head_bytes, None),
            Form::Chunked { bits } => self.chunked(nid, head_bytes, bits, inode.size_bytes)?,
        };
        let body = Run { start: nid, blocks: slots(body_bytes) };
        let blocks = blocks.filter(|run| run.blocks > 0);
        let ends = [body.end() * SLOT_BYTES, blocks.map_or(0, Run::end).saturating_mul(BLOCK_BYTES)];
        if ends.iter().any(|end| *end > self.length_bytes) {
            return Err(Fault::Damaged);
        }
        Ok((Inode { attributes, kind }, Spot { body, form: inode.form, blocks }))
    }

    /// Bytes of the body of a file of chunks, and the run of its chunks if they follow each other.
    fn chunked(&self, nid: u64, head_bytes: u64, bits: u8, size_bytes: u64) -> Result<(u64, Option<Run>), Fault> {
        let chunk_blocks = 1_u64 << bits;
        let blocks = size_bytes.div_ceil(BLOCK_BYTES);
        let entries = blocks.div_ceil(chunk_blocks);
        let map_bytes = entries.checked_mul(4).ok_or(Fault::Damaged)?;
        let map = self.read(nid * SLOT_BYTES + head_bytes, map_bytes)?;
        let mut run: Option<Run> = None;
        let mut follows = true;
        for (index, entry) in (0..).zip(map.chunks(4)) {
            let start = u32_at(entry, 0);
            if start == HOLE {
                continue;
            }
            let part = Run { start: start.into(), blocks: chunk_blocks.min(blocks - index * chunk_blocks) };
            match &mut run {
                Some(run) if run.end() == part.start => run.blocks += part.blocks,
                Some(_) => follows = false,
                None => run = Some(part),
            }
        }
        Ok((head_bytes + map_bytes, run.filter(|_| follows)))
    }
}
