//! Answers of the transmission phase: from values to bytes, and back for clients.
//!
//! Owns the layout of simple replies and of the chunks of structured ones. Each function appends a
//! whole header, so a buffer never ends inside one. The session and the outbox call it. Data that
//! follows a header is not its business, only its length.

use super::{ALLOCATION_CONTEXT_ID, Errno, flag, magic, take_u16, take_u32, take_u64};

/// Chunk types (section "Structured reply types").
pub mod kind {
    /// A chunk without content.
    pub const NONE: u16 = 0;
    /// Bytes of the image, after their offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeros: their offset and their length.
    pub const OFFSET_HOLE: u16 = 2;
    /// Runs of allocation.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error number and a message.
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// Longest message in an error chunk; ours are shorter, and longer ones are cut at a character.
const MESSAGE_BYTES_MAX: usize = 512;

/// The header of an answer, as a client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A simple reply; the data of a read that succeeded follow.
    Simple {
        /// An error number; 0 for success.
        error: u32,
        /// The request's number.
        cookie: u64,
    },
    /// A chunk of a structured reply.
    Chunk {
        /// [`flag::DONE`] in the last one.
        flags: u16,
        /// One of [`kind`].
        kind: u16,
        /// The request's number.
        cookie: u64,
        /// Bytes of content that follow.
        length: u32,
    },
}

impl Header {
    /// The header at the front of `bytes`, and its length. `Ok(None)` if bytes are missing.
    ///
    /// # Errors
    /// The first four bytes, if no answer begins with them.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, u32> {
        let mut rest = bytes;
        let header = match take_u32(&mut rest) {
            None => return Ok(None),
            Some(magic::SIMPLE_REPLY) => simple_header(&mut rest),
            Some(magic::STRUCTURED_REPLY) => chunk_header(&mut rest),
            Some(found) => return Err(found),
        };
        Ok(header.map(|header| (header, bytes.len() - rest.len())))
    }
}

fn simple_header(rest: &mut &[u8]) -> Option<Header> {
    Some(Header::Simple { error: take_u32(rest)?, cookie: take_u64(rest)? })
}

fn chunk_header(rest: &mut &[u8]) -> Option<Header> {
    let (flags, kind) = (take_u16(rest)?, take_u16(rest)?);
    Some(Header::Chunk { flags, kind, cookie: take_u64(rest)?, length: take_u32(rest)? })
}

/// A simple reply; after a successful read its data follows.
pub fn simple(out: &mut Vec<u8>, cookie: u64, error: Option<Errno>) {
    let mut header = [0; 16];
    header[..4].copy_from_slice(&magic::SIMPLE_REPLY.to_be_bytes());
    header[4..8].copy_from_slice(&error.map_or(0, |errno| errno as u32).to_be_bytes());
    header[8..].copy_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&header);
}

fn chunk(out: &mut Vec<u8>, cookie: u64, kind: u16, done: bool, length: u32) {
    let mut header = [0; 20];
    header[..4].copy_from_slice(&magic::STRUCTURED_REPLY.to_be_bytes());
    header[4..6].copy_from_slice(&(if done { flag::DONE } else { 0 }).to_be_bytes());
    header[6..8].copy_from_slice(&kind.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&header);
}

/// The header of a data chunk; `length` bytes of the image from `offset` on follow.
pub fn offset_data(out: &mut Vec<u8>, cookie: u64, done: bool, offset: u64, length: u32) {
    chunk(out, cookie, kind::OFFSET_DATA, done, length.saturating_add(8));
    out.extend_from_slice(&offset.to_be_bytes());
}

/// A chunk that says that `length` bytes from `offset` on are zeros.
pub fn offset_hole(out: &mut Vec<u8>, cookie: u64, done: bool, offset: u64, length: u32) {
    chunk(out, cookie, kind::OFFSET_HOLE, done, 12);
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
}

/// A last chunk without content: the answer to a read of no bytes.
pub fn none(out: &mut Vec<u8>, cookie: u64) {
    chunk(out, cookie, kind::NONE, true, 0);
}

/// A last chunk that says what went wrong, for the client's log as well.
pub fn error(out: &mut Vec<u8>, cookie: u64, errno: Errno, message: &str) {
    let message = &message.as_bytes()[..cut(message, MESSAGE_BYTES_MAX)];
    chunk(out, cookie, kind::ERROR, true, 6 + message.len() as u32);
    out.extend_from_slice(&(errno as u32).to_be_bytes());
    out.extend_from_slice(&(message.len() as u16).to_be_bytes());
    out.extend_from_slice(message);
}

/// The answer to a block status request: runs of (length in bytes, [`flag`] `STATE_` bits).
pub fn block_status(out: &mut Vec<u8>, cookie: u64, runs: &[(u32, u32)]) {
    chunk(out, cookie, kind::BLOCK_STATUS, true, 4 + 8 * runs.len() as u32);
    out.extend_from_slice(&ALLOCATION_CONTEXT_ID.to_be_bytes());
    for (length, state) in runs {
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&state.to_be_bytes());
    }
}

/// The largest place up to `limit` where `text` can be cut (the standard library's is younger than
/// the oldest compiler this project supports).
fn cut(text: &str, limit: usize) -> usize {
    (0..=limit.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}
