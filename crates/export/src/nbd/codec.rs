//! The NBD protocol as bytes: parsing and writing, without sockets, clocks or tasks.
//!
//! Owns the numbers of the specification (`doc/proto.md` of the NBD project, quoted here by section
//! name), the negotiation and the two directions of the transmission phase. Invariant: whatever the
//! bytes are and however they are cut, parsing neither panics nor allocates more than
//! [`OPTION_BYTES_MAX`]; a cut at any byte gives the same result as no cut. Called by the
//! connection task, the client, property tests and fuzzers. It does not read images and decides
//! nothing about time.

pub mod negotiation;
pub mod option;
pub mod reply;
pub mod request;

pub use negotiation::{Chosen, Negotiation, Offer, Step};
pub use request::{Command, Next, Request, Requests, Violation};

/// Longest string of the protocol (section "Values", maximum string length).
pub const STRING_BYTES_MAX: usize = 4096;

/// Largest payload of a request or of a reply: 2^25, what every client of today may assume (section
/// "Size constraints"). A longer read is refused with an error, a longer write ends the connection.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// Longest option that is parsed. An export name and seven context queries of full length fit; real
/// clients send less than 100 bytes. Longer ones up to [`PAYLOAD_BYTES_MAX`] are refused with an
/// error.
pub const OPTION_BYTES_MAX: u32 = 32 << 10;

/// Unit to which the device size is rounded up: the smallest sector that a kernel client can have.
pub const SECTOR_BYTES: u64 = 512;

/// The id that the server gives to the one metadata context it knows.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;
/// Name of that context (section "Metadata querying").
pub const ALLOCATION_CONTEXT: &[u8] = b"base:allocation";

/// Magic numbers, by their names in the specification.
pub mod magic {
    /// `NBDMAGIC`, first in the greeting.
    pub const GREETING: u64 = 0x4e42_444d_4147_4943;
    /// `IHAVEOPT`, second in the greeting and before each option.
    pub const OPTION: u64 = 0x4948_4156_454f_5054;
    /// Before each reply to an option.
    pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
    /// Before each request.
    pub const REQUEST: u32 = 0x2560_9513;
    /// Before a simple reply.
    pub const SIMPLE_REPLY: u32 = 0x6744_6698;
    /// Before a chunk of a structured reply.
    pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;
}

/// Flags of both phases.
pub mod flag {
    /// Handshake, both directions: fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// Handshake, both directions: no 124 zeros after `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 2;

    /// Export: the flags field is in use.
    pub const HAS_FLAGS: u16 = 1;
    /// Export: writes fail.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Export: `FLUSH` is understood (a read-only one never has anything to flush).
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Export: changes may ask to be durable when they are answered.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Export: `TRIM` is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Export: `WRITE_ZEROES` is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Export: the "do not fragment" flag is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// Export: several connections see the same bytes.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Export: `CACHE` is understood.
    pub const SEND_CACHE: u16 = 1 << 10;

    /// Request: answer only when the change is durable.
    pub const FUA: u16 = 1;
    /// Request: zeros are to take up room.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Request: answer a read with one chunk.
    pub const DF: u16 = 1 << 2;
    /// Request: one extent of block status is enough.
    pub const REQ_ONE: u16 = 1 << 3;

    /// Chunk of a structured reply: the last one.
    pub const DONE: u16 = 1;

    /// Block status: reading gives zeros because nothing is stored.
    pub const STATE_HOLE: u32 = 1;
    /// Block status: reading gives zeros.
    pub const STATE_ZERO: u32 = 2;
}

/// Errors of requests, as numbers on the wire (section "Error values").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not allowed on a read-only export.
    Perm = 1,
    /// The bytes could not be had.
    Io = 5,
    /// The request makes no sense.
    Invalid = 22,
    /// There is no room for the change, or it goes past the end.
    NoSpace = 28,
    /// Too long to be answered in one piece.
    Overflow = 75,
    /// The server is leaving.
    Shutdown = 108,
}

/// Splits `N` bytes off the front; `None` if there are fewer, which leaves `bytes` as it is.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    take(bytes).map(u16::from_be_bytes)
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_be_bytes)
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_be_bytes)
}
