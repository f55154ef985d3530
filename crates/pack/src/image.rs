//! From a layout to the bytes of an image.
//!
//! Inodes, directories and contents are made in ascending order of their addresses. No part of the
//! image is held in memory, and none is written twice.

use crate::contents::Sources;
use crate::erofs::directory::{self, Entry};
use crate::erofs::{
    BLOCK_BYTES, Form, HOLE, Inode as OnDisk, MODE_DIRECTORY, SLOT_BYTES, SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock,
    xattrs,
};
use crate::error::PackError;
use crate::layout::Layout;
use crate::listing::{Listing, Place};
use crate::marker::Marker;
use crate::need::{Contents, chunks_with_data, names};
use crate::stream::{Ended, Filler};
use crate::tree::{File, Inode, Kind};
use std::ops::Range;
use vfield_core::chunk::ChunkSize;

/// What an image is made from.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// What it holds.
    pub listing: &'a Listing<'a>,
    /// Where that lies.
    pub layout: &'a Layout,
    /// Where contents come from.
    pub sources: &'a Sources,
    /// The chunks that it is laid out for.
    pub chunk_size: ChunkSize,
}

/// A part of an image that lies together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// An inode and what lies beside it.
    Body(Place),
    /// Contents in blocks.
    Blocks(Place),
}

impl Image<'_> {
    /// The superblock, without its number.
    pub fn superblock(&self) -> Superblock {
        let listed = self.listing.listed();
        let newest = listed.iter().map(|listed| self.listing.tree.inode(listed.id).attributes.mtime_s).max();
        Superblock {
            root_nid: u16::try_from(self.layout.spots[0].body.start).expect("the root lies in front"),
            inodes: listed.len() as u64,
            built_s: newest.unwrap_or(0).max(0) as u64,
            blocks: (self.layout.length_bytes / BLOCK_BYTES) as u32,
            uuid: [0; 16],
            has_chunked: self.layout.spots.iter().any(|spot| matches!(spot.form, Form::Chunked { .. })),
        }
    }

    /// Fills a stream with the image, but for the superblock.
    ///
    /// # Errors
    /// If a source cannot be read or has changed, or the stream has ended.
    pub fn fill(&self, mut stream: Filler<'_>) -> Result<(), Ended> {
        let marker = Marker { chunk_size: self.chunk_size, metadata_bytes: self.layout.metadata_bytes };
        stream.put(&marker.encode())?;
        stream.skip_to((SUPERBLOCK_AT + SUPERBLOCK_BYTES) as u64)?;
        let mut parts: Vec<(u64, Part)> = Vec::with_capacity(self.layout.spots.len() * 2);
        for (place, spot) in self.layout.spots.iter().enumerate() {
            parts.push((spot.body.start * SLOT_BYTES, Part::Body(place)));
            parts.extend(spot.blocks.map(|run| (run.start * BLOCK_BYTES, Part::Blocks(place))));
        }
        parts.sort_unstable();
        let mut bytes = Vec::new();
        for (address, part) in parts {
            stream.skip_to(address)?;
            bytes.clear();
            match part {
                Part::Body(place) => {
                    self.body(place, &mut bytes)?;
                    stream.put(&bytes)?;
                }
                Part::Blocks(place) => match &self.inode(place).kind {
                    Kind::Directory(_) => {
                        self.directory(place, &mut bytes);
                        stream.put(&bytes)?;
                    }
                    Kind::Symlink(target) => stream.put(target)?,
                    Kind::File(file) => self.copy(place, file, &mut stream)?,
                    Kind::Character(_) | Kind::Block(_) | Kind::Fifo | Kind::Socket => {}
                },
            }
        }
        stream.finish()?;
        Ok(())
    }

    fn inode(&self, place: Place) -> &Inode {
        self.listing.tree.inode(self.listing.listed()[place].id)
    }

    /// Appends the bytes of an inode and of what lies beside it.
    fn body(&self, place: Place, out: &mut Vec<u8>) -> Result<(), PackError> {
        let (inode, spot, need) = (self.inode(place), self.layout.spots[place], self.layout.needs[place]);
        let Inode { attributes, kind } = inode;
        let size_bytes = match (kind, need.contents) {
            (Kind::File(file), _) => file.size_bytes(),
            (_, Contents::Beside(bytes) | Contents::Blocks(bytes)) => bytes,
            _ => 0,
        };
        let on_disk = OnDisk {
            mode: kind.mode() | attributes.permissions(),
            uid: attributes.uid,
            gid: attributes.gid,
            mtime_s: attributes.mtime_s,
            mtime_ns: attributes.mtime_ns(),
            links: self.listing.links(place),
            size_bytes,
            xattr_bytes: need.xattr_bytes,
            form: spot.form,
        };
        out.extend(on_disk.encode(spot.body.start));
        xattrs::encode(attributes.xattrs(), out);
        match (kind, spot.form) {
            (Kind::File(file), Form::Chunked { bits }) => self.map(place, file, bits, out),
            (Kind::File(file), Form::Inline) => {
                let start = out.len();
                out.resize(start + file.size_bytes() as usize, 0);
                let opened = self.sources.open(self.listing, place)?;
                opened.read(0, &mut out[start..])?;
                opened.finish()?;
            }
            (Kind::Symlink(target), Form::Inline) => out.extend(&target[..]),
            (Kind::Directory(_), Form::Inline) => self.directory(place, out),
            _ => {}
        }
        Ok(())
    }

    /// Appends the addresses of a file's chunks.
    fn map(&self, place: Place, file: &File, bits: u8, out: &mut Vec<u8>) {
        let chunk_blocks = 1_u64 << bits;
        let mut block = self.layout.spots[place].blocks.map_or(0, |run| run.start);
        let mut next = 0;
        let entries = file.size_bytes().div_ceil(chunk_blocks * BLOCK_BYTES);
        for with_data in chunks_with_data(file.data().unwrap_or_default(), chunk_blocks * BLOCK_BYTES) {
            out.extend((next..with_data.start).flat_map(|_| HOLE.to_le_bytes()));
            for _ in with_data.clone() {
                out.extend((block as u32).to_le_bytes());
                block += chunk_blocks;
            }
            next = with_data.end;
        }
        out.extend((next..entries).flat_map(|_| HOLE.to_le_bytes()));
    }

    /// Appends the bytes of a directory.
    fn directory(&self, place: Place, out: &mut Vec<u8>) {
        let listed = self.listing.listed()[place];
        let nid = |place: Place| self.layout.spots[place].body.start;
        let entry = |name: &'_ [u8]| match name {
            b"." => (nid(place), MODE_DIRECTORY),
            b".." => (nid(listed.parent), MODE_DIRECTORY),
            _ => {
                let id = self.listing.tree.child(listed.id, name).expect("one of its names");
                let place = self.listing.place(id).expect("it has this name");
                (nid(place), self.listing.tree.inode(id).kind.mode())
            }
        };
        let entries: Vec<Entry<'_>> = names(self.listing, place)
            .map(|name| {
                let (nid, mode) = entry(name);
                Entry { name, nid, mode }
            })
            .collect();
        directory::encode(&entries, out);
    }

    /// Copies the contents of a file, without the chunks that are holes.
    fn copy(&self, place: Place, file: &File, stream: &mut Filler<'_>) -> Result<(), Ended> {
        let opened = self.sources.open(self.listing, place)?;
        let size = file.size_bytes();
        let ranges: Vec<Range<u64>> = match self.layout.spots[place].form {
            Form::Chunked { bits } => {
                let chunk = BLOCK_BYTES << bits;
                let chunks = chunks_with_data(file.data().unwrap_or_default(), chunk);
                chunks.into_iter().map(|range| range.start * chunk..(range.end * chunk).min(size)).collect()
            }
            _ => std::iter::once(0..size).collect(),
        };
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let room = stream.room(range.end - at)?;
                opened.read(at, room)?;
                at += room.len() as u64;
            }
        }
        opened.finish()?;
        Ok(())
    }
}
