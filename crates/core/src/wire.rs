//! The TCP protocol between nodes: a greeting, then frames. Parsing only; no sockets.
//!
//! Both sides begin with a greeting ([`crate::greeting`]). After it the dialling side sends
//! requests and the other answers. Many requests are in flight, and answers come in any order. A
//! frame is a [`FrameHeader`] of 16 bytes and a payload. Its kind bounds the payload's length, so
//! no peer can make a node allocate more than a chunk. All integers are little-endian. The format
//! is in docs/reference/protocol.md.

mod accounts;
mod codec;
mod dialling;
mod here;
mod lists;
mod prefetch;
mod proofs;
mod slices;
mod unanswered;

pub use accounts::{ACCOUNTS_SINCE, account_frame, account_question_frame, decode_account, decode_account_question};
pub use codec::Codec;
pub use dialling::{DialledBack, decode_dial_back, decode_dialled_back, dial_back_frame, dialled_back_frame};
pub use here::{HERE_CHUNKS_MAX, decode_here, here_frame};
pub use lists::{
    ListQuestion, SIGNERS_MAX, SignedList, decode_list, decode_list_question, list_frame, list_question_frame,
};
pub use prefetch::{
    PREFETCH_SINCE, decode_prefetch_lists, decode_prefetch_question, prefetch_lists_frame, prefetch_question_frame,
};
pub use proofs::{
    Proof, decode_header, decode_header_proof, decode_proof, decode_prove, header_frame, header_proof_frame,
    proof_frame, prove_frame,
};
pub use slices::{GET_SLICE_FRAME, GetSlice, SLICES_SINCE};
pub use unanswered::{decode_speed, gossip_frame, speed_frame};

use crate::chunk::{Chunk, ChunkSize};
use crate::header_proof::HeaderProof;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::reach::Reach;
use crate::slice::ANSWER_BYTES_MAX;
use crate::snapshot::{self, Snapshot};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vfield_block::source::Urgency;

/// The latest version of the protocol that this program speaks. Nodes speak the latest version that
/// both know.
pub const VERSION: u32 = 12;
/// The first version that it speaks.
pub const VERSION_LEAST: u32 = 8;
/// Longest snapshot: 4 000 nodes with an image each.
const SNAPSHOT_MAX: u32 = 1 << 20;
/// Longest proof: a statement, a signature, and their lengths.
const PROOF_MAX: u32 = 4 << 10;
/// Length of a frame's header.
pub const HEADER: usize = 16;
/// Length of a request with its header.
pub const GET_FRAME: usize = HEADER + GET_PAYLOAD;
const GET_PAYLOAD: usize = 48;
const REDIRECT_PAYLOAD: u32 = 8;
const PROVE_PAYLOAD: u32 = 32;
const DIAL_BACK_PAYLOAD: u32 = 1;
const HEADER_PAYLOAD: u32 = 32;
/// A kind that no version gives a meaning, so every node skips its frames. Whoever measures the way
/// to a node fills it with them.
pub const FILLER: Kind = Kind::Unknown(u8::MAX);
/// Set in the byte of the priority by an asker that insists.
const INSISTS: u8 = 0x80;

/// A violation of the protocol in bytes from a peer. The peer is at fault in each case; the
/// connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side does not speak this protocol at all.
    #[error("not a vfield node")]
    NotVfield,
    /// No version of it that both speak.
    #[error("speaks protocol version {theirs}, this node speaks {}", versions())]
    Version {
        /// The latest version of the other side.
        theirs: u32,
    },
    /// The node is still starting; neither side is at fault.
    #[error("not ready yet: hashing, {percent} %")]
    Starting {
        /// The hashed share of its files, 0 to 100.
        percent: u32,
    },
    /// A field with an impossible value.
    #[error("a frame with a bad {0}")]
    Field(&'static str),
    /// Longer than its kind allows.
    #[error("a frame of {length} bytes, at most {max} are possible")]
    Length {
        /// The announced length in bytes.
        length: u32,
        /// The greatest allowed length in bytes.
        max: u32,
    },
    /// A payload that does not parse.
    #[error("an invalid payload")]
    Payload,
}

/// The versions that this program speaks, in words.
fn versions() -> String {
    if VERSION_LEAST == VERSION { VERSION.to_string() } else { format!("{VERSION_LEAST} to {VERSION}") }
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Asks for a chunk: a [`Get`].
    Get,
    /// A chunk's bytes.
    Data,
    /// No chunk: a [`Refusal`] instead.
    Refuse,
    /// No chunk: ask that node, which got it recently. A node id of 8 bytes.
    Redirect,
    /// The asker no longer wants an answer; may come too late.
    Cancel,
    /// The sender's [`Snapshot`] of the field, with a request for the other's.
    Sync,
    /// The answer to [`Kind::Sync`].
    Synced,
    /// Asks for the signature of an image. Its id of 32 bytes.
    Prove,
    /// The answer to [`Kind::Prove`]: a [`Proof`].
    Proof,
    /// Nothing to send yet, but the requests are in hand. This tells a holder that waits itself
    /// from a stopped one.
    Patience,
    /// Connect to the address of the sender's greeting, and report the result. One byte: 1 if the
    /// sender cannot connect to the address of the other's greeting.
    DialBack,
    /// The answer to [`Kind::DialBack`]: a [`DialledBack`] of one byte.
    DialledBack,
    /// Asks for the header of an image. The image's id of 32 bytes.
    Header,
    /// The answer to [`Kind::Header`]: a [`HeaderProof`].
    HeaderProof,
    /// Asks for a later admission list: a [`ListQuestion`].
    AdmissionQuestion,
    /// The answer to [`Kind::AdmissionQuestion`]: a [`SignedList`].
    AdmissionList,
    /// The speed at which the receiver's answers come to the sender: one byte, see
    /// [`crate::speed::Speed`]. It is not answered.
    Speed,
    /// Asks for a slice of a chunk: a [`GetSlice`].
    GetSlice,
    /// The answer to [`Kind::GetSlice`]; see [`crate::slice::Slice`].
    Slice,
    /// A chunk's bytes, compressed. It answers [`Kind::Get`] in place of [`Kind::Data`], to peers
    /// whose version has the codec ([`Codec::since`]).
    Compressed(Codec),
    /// Asks why a chunk has not come to the receiver: image id and chunk. Only `explain` asks.
    AccountQuestion,
    /// The answer to [`Kind::AccountQuestion`]: an [`crate::pursuit::Account`].
    Account,
    /// Chunks of data that the sender has: see [`crate::node::Input::Here`]. It is not answered.
    Here,
    /// Asks what machines read first of an image. Its id of 32 bytes.
    PrefetchQuestion,
    /// The answer to [`Kind::PrefetchQuestion`]: lists by node, see [`crate::prefetch`].
    PrefetchLists,
    /// A message of gossip, as in a datagram. It is not answered.
    Gossip,
    /// A kind of a later version, to be skipped with its payload.
    Unknown(u8),
}

/// The reason why a request for a chunk was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Not here, and not obtainable from here.
    NotHeld,
    /// This node does not take part in that image.
    NoSuchImage,
    /// This node is the image's origin and its file no longer has those bytes.
    SourceChanged,
    /// The node has too many requests.
    Busy,
    /// No slice of this chunk: the asker is to request the whole chunk. See [`crate::sliced`].
    Whole,
}

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of the frame.
    pub kind: Kind,
    /// For [`Kind::Get`]: how soon, see [`Priority`].
    pub priority: Priority,
    /// For [`Kind::Get`], to an origin: its advice to ask another node did not help.
    pub insists: bool,
    /// The reason, for [`Kind::Refuse`].
    pub refusal: Option<Refusal>,
    /// For [`Kind::Data`] and [`Kind::Compressed`]: for how long the sender waited for it itself,
    /// in milliseconds; all of a minute if longer.
    pub waited_ms: u16,
    /// Bytes of payload that follow.
    pub length: u32,
    /// The asker's number for the request, given back in the answer.
    pub request: u64,
}

/// The order in which requests are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A reader waits.
    Demand,
    /// A reader will probably come.
    ReadAhead,
    /// A store fills.
    Fill,
}

impl From<Urgency> for Priority {
    fn from(urgency: Urgency) -> Self {
        match urgency {
            Urgency::Now => Self::Demand,
            Urgency::Soon => Self::ReadAhead,
        }
    }
}

impl FrameHeader {
    /// A header without the fields that only some kinds use.
    pub const fn new(kind: Kind, request: u64, length: u32) -> Self {
        Self { kind, priority: Priority::Demand, insists: false, refusal: None, waited_ms: 0, length, request }
    }

    /// The header of a chunk for which its sender has waited.
    pub fn data(request: u64, length: u32, waited: Duration) -> Self {
        let waited_ms = u16::try_from(waited.as_millis()).unwrap_or(u16::MAX);
        Self { waited_ms, ..Self::new(Kind::Data, request, length) }
    }

    /// The header of a compressed chunk of this many bytes, for which its sender has waited.
    pub fn compressed(codec: Codec, request: u64, length: u32, waited: Duration) -> Self {
        Self { kind: Kind::Compressed(codec), ..Self::data(request, length, waited) }
    }

    /// True for a chunk, compressed or not.
    pub const fn is_chunk(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Compressed(_))
    }

    /// The header of a refusal.
    pub const fn refuse(request: u64, refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::new(Kind::Refuse, request, 0) }
    }

    /// Kind, priority with insistence, zero and refusal or milliseconds waited (2), length (4),
    /// request (8).
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0] = match self.kind {
            Kind::Get => 1,
            Kind::Data => 2,
            Kind::Refuse => 3,
            Kind::Cancel => 4,
            Kind::Sync => 5,
            Kind::Synced => 6,
            Kind::Redirect => 7,
            Kind::Patience => 8,
            Kind::Prove => 9,
            Kind::Proof => 10,
            Kind::DialBack => 11,
            Kind::DialledBack => 12,
            Kind::Header => 13,
            Kind::HeaderProof => 14,
            Kind::AdmissionQuestion => 15,
            Kind::AdmissionList => 16,
            Kind::Speed => 17,
            Kind::GetSlice => 18,
            Kind::Slice => 19,
            Kind::Compressed(Codec::Lz4) => 20,
            Kind::AccountQuestion => 21,
            Kind::Account => 22,
            Kind::Here => 23,
            Kind::PrefetchQuestion => 24,
            Kind::PrefetchLists => 25,
            Kind::Compressed(Codec::Zstd) => 26,
            Kind::Gossip => 27,
            Kind::Unknown(number) => number,
        };
        out[1] = match self.priority {
            Priority::Demand => 0,
            Priority::ReadAhead => 1,
            Priority::Fill => 2,
        };
        if self.insists {
            out[1] |= INSISTS;
        }
        out[3] = match self.refusal {
            None => 0,
            Some(Refusal::NotHeld) => 1,
            Some(Refusal::NoSuchImage) => 2,
            Some(Refusal::SourceChanged) => 3,
            Some(Refusal::Busy) => 4,
            Some(Refusal::Whole) => 5,
        };
        if self.is_chunk() {
            out[2..4].copy_from_slice(&self.waited_ms.to_le_bytes());
        }
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..].copy_from_slice(&self.request.to_le_bytes());
        out
    }

    /// The inverse of [`FrameHeader::encode`]; checks every field, and the length against the kind.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, WireError> {
        let (kind, max) = match bytes[0] {
            1 => (Kind::Get, GET_PAYLOAD as u32),
            2 => (Kind::Data, ChunkSize::MAX.bytes() as u32),
            3 => (Kind::Refuse, 0),
            4 => (Kind::Cancel, 0),
            5 => (Kind::Sync, SNAPSHOT_MAX),
            6 => (Kind::Synced, SNAPSHOT_MAX),
            7 => (Kind::Redirect, REDIRECT_PAYLOAD),
            8 => (Kind::Patience, 0),
            9 => (Kind::Prove, PROVE_PAYLOAD),
            10 => (Kind::Proof, PROOF_MAX),
            11 => (Kind::DialBack, DIAL_BACK_PAYLOAD),
            12 => (Kind::DialledBack, DIAL_BACK_PAYLOAD),
            13 => (Kind::Header, HEADER_PAYLOAD),
            14 => (Kind::HeaderProof, HeaderProof::BYTES_MAX as u32),
            15 => (Kind::AdmissionQuestion, lists::QUESTION_MAX),
            16 => (Kind::AdmissionList, SNAPSHOT_MAX),
            17 => (Kind::Speed, unanswered::SPEED_PAYLOAD),
            18 => (Kind::GetSlice, slices::GET_SLICE_PAYLOAD),
            19 => (Kind::Slice, ANSWER_BYTES_MAX as u32),
            20 => (Kind::Compressed(Codec::Lz4), ChunkSize::MAX.bytes() as u32),
            21 => (Kind::AccountQuestion, accounts::QUESTION_PAYLOAD),
            22 => (Kind::Account, accounts::ACCOUNT_MAX),
            23 => (Kind::Here, here::HERE_MAX),
            24 => (Kind::PrefetchQuestion, prefetch::QUESTION_PAYLOAD),
            25 => (Kind::PrefetchLists, prefetch::LISTS_PAYLOAD_MAX),
            26 => (Kind::Compressed(Codec::Zstd), ChunkSize::MAX.bytes() as u32),
            27 => (Kind::Gossip, unanswered::GOSSIP_MAX),
            other => (Kind::Unknown(other), SNAPSHOT_MAX),
        };
        if let Kind::Unknown(_) = kind {
            let length = bounded(u32_at(bytes, 4), max)? as u32;
            return Ok(Self::new(kind, u64_at(bytes, 8), length));
        }
        let get = kind == Kind::Get;
        let insists = get && bytes[1] & INSISTS != 0;
        let priority = match if get { bytes[1] & !INSISTS } else { bytes[1] } {
            0 => Priority::Demand,
            1 => Priority::ReadAhead,
            2 => Priority::Fill,
            _ => return Err(WireError::Field("priority")),
        };
        let refusal = match (kind, bytes[2], bytes[3]) {
            (Kind::Refuse, 0, 1) => Some(Refusal::NotHeld),
            (Kind::Refuse, 0, 2) => Some(Refusal::NoSuchImage),
            (Kind::Refuse, 0, 3) => Some(Refusal::SourceChanged),
            (Kind::Refuse, 0, 4) => Some(Refusal::Busy),
            (Kind::Refuse, 0, 5) => Some(Refusal::Whole),
            (Kind::Refuse, ..) => return Err(WireError::Field("refusal")),
            (Kind::Data | Kind::Compressed(_), ..) | (_, 0, 0) => None,
            _ => return Err(WireError::Field("refusal")),
        };
        let waits = matches!(kind, Kind::Data | Kind::Compressed(_));
        let waited_ms = if waits { u16::from_le_bytes([bytes[2], bytes[3]]) } else { 0 };
        let length = bounded(u32_at(bytes, 4), max)? as u32;
        // Of these kinds only the greatest length is valid.
        let fixed = matches!(
            kind,
            Kind::Get
                | Kind::GetSlice
                | Kind::Redirect
                | Kind::Prove
                | Kind::DialBack
                | Kind::DialledBack
                | Kind::Header
                | Kind::Speed
                | Kind::AccountQuestion
                | Kind::PrefetchQuestion
        );
        if fixed && length != max {
            return Err(WireError::Field("length"));
        }
        Ok(Self { kind, priority, insists, refusal, waited_ms, length, request: u64_at(bytes, 8) })
    }
}

/// Asks for one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Get {
    /// The image it belongs to.
    pub image: ImageId,
    /// The chunk; the receiver checks whether the image has it.
    pub chunk: Chunk,
    /// The reach: how far the request may be passed on.
    pub reach: Reach,
}

impl Get {
    /// A whole request frame.
    pub fn frame(&self, request: u64, priority: Priority, insists: bool) -> [u8; GET_FRAME] {
        let header = FrameHeader { priority, insists, ..FrameHeader::new(Kind::Get, request, GET_PAYLOAD as u32) };
        let mut out = [0; GET_FRAME];
        out[..HEADER].copy_from_slice(&header.encode());
        out[HEADER..HEADER + 32].copy_from_slice(&self.image.0);
        out[HEADER + 32..HEADER + 40].copy_from_slice(&self.chunk.0.to_le_bytes());
        out[HEADER + 40..].copy_from_slice(&self.reach.0.to_le_bytes());
        out
    }

    /// Reads the payload of a [`Kind::Get`] frame.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let payload: &[u8; GET_PAYLOAD] = payload.try_into().map_err(|_| WireError::Payload)?;
        let mut image = [0; 32];
        image.copy_from_slice(&payload[..32]);
        Ok(Self { image: ImageId(image), chunk: Chunk(u64_at(payload, 32)), reach: Reach(u64_at(payload, 40)) })
    }
}

/// A whole frame that sends an asker to another node.
pub fn redirect_frame(request: u64, node: NodeId) -> Vec<u8> {
    let mut out = FrameHeader::new(Kind::Redirect, request, REDIRECT_PAYLOAD).encode().to_vec();
    out.extend_from_slice(&node.0.to_le_bytes());
    out
}

/// Reads the payload of a [`Kind::Redirect`] frame.
pub fn decode_redirect(payload: &[u8]) -> Result<NodeId, WireError> {
    let payload: &[u8; REDIRECT_PAYLOAD as usize] = payload.try_into().map_err(|_| WireError::Payload)?;
    Ok(NodeId(u64_at(payload, 0)))
}

/// A whole frame that carries a snapshot; records that do not fit are left out (they will be
/// gossiped).
pub fn snapshot_frame(kind: Kind, request: u64, mut snapshot: Snapshot) -> Vec<u8> {
    snapshot.records.truncate(snapshot::RECORDS_MAX);
    snapshot.outside.truncate(snapshot::RECORDS_MAX);
    let mut body = encode(&snapshot);
    while body.len() > SNAPSHOT_MAX as usize {
        snapshot.members.truncate(snapshot.members.len() / 2);
        snapshot.records.truncate(snapshot.records.len() / 2);
        snapshot.gateways.truncate(snapshot.gateways.len() / 2);
        snapshot.outside.truncate(snapshot.outside.len() / 2);
        snapshot.known.truncate(snapshot.known.len() / 2);
        body = encode(&snapshot);
    }
    let mut out = FrameHeader::new(kind, request, body.len() as u32).encode().to_vec();
    out.extend_from_slice(&body);
    out
}

/// Reads the payload of a [`Kind::Sync`] or [`Kind::Synced`] frame.
pub fn decode_snapshot(payload: &[u8]) -> Result<Snapshot, WireError> {
    decode(payload)
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain data without maps or unsized sequences always encodes")
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(WireError::Payload),
    }
}

pub(crate) fn bounded(length: u32, max: u32) -> Result<usize, WireError> {
    if length <= max { Ok(length as usize) } else { Err(WireError::Length { length, max }) }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
