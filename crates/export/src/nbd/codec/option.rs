//! Options of the handshake as bytes: their numbers, the client's frames and the server's replies.
//!
//! Owns the layout of an option in both directions. The negotiation and the client call it. What an
//! option means is the negotiation's.

use super::{magic, take, take_u16, take_u32, take_u64};

/// Choose an export and begin; no error reply exists for it.
pub const EXPORT_NAME: u32 = 1;
/// End the negotiation.
pub const ABORT: u32 = 2;
/// List the exports.
pub const LIST: u32 = 3;
/// Start the TLS handshake.
pub const STARTTLS: u32 = 5;
/// Describe an export.
pub const INFO: u32 = 6;
/// Describe an export, choose it and begin.
pub const GO: u32 = 7;
/// Use structured replies.
pub const STRUCTURED_REPLY: u32 = 8;
/// List metadata contexts.
pub const LIST_META_CONTEXT: u32 = 9;
/// Choose metadata contexts.
pub const SET_META_CONTEXT: u32 = 10;

/// Kinds of replies to options; those from [`ERROR`](answer::ERROR) up refuse.
pub mod answer {
    /// The option succeeded.
    pub const ACK: u32 = 1;
    /// An export, after `LIST`.
    pub const SERVER: u32 = 2;
    /// A fact about an export; [`super::info`] says which.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Bit of every refusal.
    pub const ERROR: u32 = 1 << 31;
    /// The server does not know the option.
    pub const ERR_UNSUP: u32 = ERROR | 1;
    /// The option's data break the protocol.
    pub const ERR_INVALID: u32 = ERROR | 3;
    /// TLS is required first.
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    /// No export has the name.
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    /// The server takes no new clients, since it is about to end.
    pub const ERR_SHUTDOWN: u32 = ERROR | 7;
    /// The option is too long.
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// Kinds of facts about an export.
pub mod info {
    /// Its size and flags.
    pub const EXPORT: u16 = 0;
    /// The export's name.
    pub const NAME: u16 = 1;
    /// A line for people.
    pub const DESCRIPTION: u16 = 2;
    /// Sizes of requests: smallest, preferred, largest.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Length of the header of a reply.
pub const REPLY_HEADER_BYTES: usize = 20;

/// The header of a reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The option's number.
    pub option: u32,
    /// One of [`answer`].
    pub kind: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl ReplyHeader {
    /// Parses a header; `None` if the magic number is missing.
    pub fn parse(bytes: &[u8; REPLY_HEADER_BYTES]) -> Option<Self> {
        let mut rest = &bytes[..];
        take_u64(&mut rest).filter(|found| *found == magic::OPTION_REPLY)?;
        let (option, kind) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
        Some(Self { option, kind, length: take_u32(&mut rest)? })
    }
}

/// An option as a client sends it.
pub fn request(option: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    [&magic::OPTION.to_be_bytes()[..], &option.to_be_bytes(), &length, data].concat()
}

/// Data of [`GO`] and [`INFO`]: an export's name and the [`info`] kinds that are wanted.
pub fn wanted(name: &[u8], infos: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(infos.len() as u16).to_be_bytes());
    data.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    data
}

/// Data of [`LIST_META_CONTEXT`] and [`SET_META_CONTEXT`]: an export's name and queries.
pub fn contexts(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}

/// Size in bytes and flags of an export, from the data of an [`answer::INFO`]; `None` for other
/// facts.
pub fn size_and_flags(mut data: &[u8]) -> Option<(u64, u16)> {
    take_u16(&mut data).filter(|kind| *kind == info::EXPORT)?;
    Some((take_u64(&mut data)?, take_u16(&mut data)?))
}

/// Appends a reply as a server sends it.
pub(in crate::nbd) fn reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&magic::OPTION_REPLY.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A string with its length before it.
fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text].concat()
}

/// Splits a string with its length before it off `data`; `None` leaves `data` as it is.
pub(super) fn take_string<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = *data;
    let length = u32::from_be_bytes(take(&mut rest)?) as usize;
    let (string, rest) = rest.split_at_checked(length)?;
    *data = rest;
    Some(string)
}
