//! The receive buffer of a connection. Sealed bytes are opened in place and close up to the content
//! before them. So a frame's payload is in one piece with or without a key. It never waits.
//!
//! The buffer has the unread content, then the sealed bytes of an incomplete record. It is as long
//! as the most content that was ever wanted at once, until [`Incoming::shrink`].

use crate::buffers::memory::Memory;
use crate::reading::{self, Taken};
use std::io;
use std::ops::Range;
use tokio::net::TcpStream;
use vfield_trust::record::{self, HEAD, Opener};

/// Bytes to read if no length is known yet: a few answers without a payload, or 64 requests.
pub const FIRST: usize = 4 << 10;

/// The receive buffer of a connection.
#[derive(Debug)]
pub struct Incoming {
    opener: Option<Opener>,
    buffer: Memory,
    content: Range<usize>,
    /// Empty, and of no meaning, without a seal.
    sealed: Range<usize>,
}

impl Incoming {
    /// Nothing has come; under seal if there is an opener.
    pub const fn new(opener: Option<Opener>) -> Self {
        Self { opener, buffer: Memory::empty(), content: 0..0, sealed: 0..0 }
    }

    /// The unread content.
    pub fn content(&self) -> &[u8] {
        &self.buffer[self.content.clone()]
    }

    /// Removes `bytes` from the front of the content.
    pub fn consume(&mut self, bytes: usize) {
        self.content.start += bytes;
        assert!(self.content.start <= self.content.end, "taken is what has come");
    }

    /// Length of the memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Removes `bytes` from the front of the content together with the memory that they lie in.
    /// Returns it, and where in it they are. What follows them goes on in `memory`.
    pub fn detach(&mut self, bytes: usize, mut memory: Memory) -> (Memory, Range<usize>) {
        let front = self.content.start..self.content.start + bytes;
        let (content, sealed) = (front.end..self.content.end, self.sealed.clone());
        let length = content.len() + sealed.len();
        if memory.len() < length {
            memory = vec![0; length].into();
        }
        memory[..content.len()].copy_from_slice(&self.buffer[content.clone()]);
        memory[content.len()..length].copy_from_slice(&self.buffer[sealed]);
        self.content = 0..content.len();
        if self.opener.is_some() {
            self.sealed = content.len()..length;
        }
        (std::mem::replace(&mut self.buffer, memory), front)
    }

    /// True if something has come that was not taken, be it less than a record.
    pub fn is_partial(&self) -> bool {
        !self.content.is_empty() || !self.sealed.is_empty()
    }

    /// Frees the memory of long content, if the buffer is empty.
    pub fn shrink(&mut self) {
        if !self.is_partial() {
            (self.buffer, self.content, self.sealed) = (Memory::empty(), 0..0, 0..0);
        }
    }

    /// Fewest bytes that are missing until there are `content` more bytes of content.
    pub fn lacking(&self, content: usize) -> usize {
        if self.opener.is_none() {
            return content;
        }
        let record = self.record().ok().flatten().unwrap_or(0);
        record::sealed_length(content).max(record).saturating_sub(self.sealed.len())
    }

    /// Reads once: `wanted` bytes of content, or all that is there if that is `None`. With
    /// `unasked`, reads even though the socket has not reported data. The end of the stream is an
    /// error, and so is a broken seal.
    pub fn read(&mut self, stream: &TcpStream, wanted: Option<usize>, unasked: bool) -> io::Result<Taken> {
        if self.opener.is_none() {
            let wanted = wanted.unwrap_or_else(|| FIRST.max(self.buffer.len() - self.content.end));
            self.make_room(wanted);
            let room = &mut self.buffer[self.content.end..][..wanted];
            let taken = reading::take(stream, room, unasked)?;
            self.content.end += taken.bytes;
            return Ok(taken);
        }
        self.make_room(self.lacking(wanted.unwrap_or(FIRST)).max(HEAD));
        // Records do not end where frames do, so there is no better place to stop than the end of
        // the buffer.
        let room = &mut self.buffer[self.sealed.end..];
        let taken = reading::take(stream, room, unasked)?;
        self.sealed.end += taken.bytes;
        self.open()?;
        Ok(taken)
    }

    /// Opens all records that are whole.
    fn open(&mut self) -> io::Result<()> {
        while let Some(record) = self.record()?.filter(|record| *record <= self.sealed.len()) {
            let Some(opener) = &mut self.opener else { return Ok(()) };
            let (from, first) = (self.content.end, self.sealed.start - self.content.end);
            self.content.end += opener.open(&mut self.buffer[from..], first..first + record)?;
            self.sealed.start += record;
        }
        if self.sealed.is_empty() {
            self.sealed = self.content.end..self.content.end;
        }
        Ok(())
    }

    /// Length of the record that begins the sealed bytes, as far as is known.
    fn record(&self) -> io::Result<Option<usize>> {
        let head = self.buffer[self.sealed.clone()].first_chunk();
        Ok(head.map(record::length).transpose()?)
    }

    /// The position of the next byte read.
    fn end(&self) -> usize {
        if self.opener.is_some() { self.sealed.end } else { self.content.end }
    }

    /// Moves the content to the front, or grows the buffer, if `bytes` do not fit behind it.
    fn make_room(&mut self, bytes: usize) {
        if self.end() + bytes <= self.buffer.len() {
            return;
        }
        let (content, sealed) = (self.content.clone(), self.sealed.clone());
        (self.content, self.sealed) = (0..content.len(), content.len()..content.len() + sealed.len());
        if self.content.len() + sealed.len() + bytes <= self.buffer.len() {
            self.buffer.copy_within(content.clone(), 0);
            self.buffer.copy_within(sealed, content.len());
        } else {
            let mut longer = Memory::from(vec![0; self.sealed.end + bytes]);
            longer[self.content.clone()].copy_from_slice(&self.buffer[content]);
            longer[self.sealed.clone()].copy_from_slice(&self.buffer[sealed]);
            self.buffer = longer;
        }
    }
}
