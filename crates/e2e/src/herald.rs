//! A false teller: says anything about images in any node's name, by one `Sync` frame of the wire
//! format (docs/reference/protocol.md).

use crate::bully::{self, Name};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc as Shared;
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;
use vfield_core::membership::State;
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{self, Kind};

/// A statement about an image.
#[derive(Debug, Clone)]
pub struct Word<'a> {
    /// In whose name; it is signed with that one's key, or a wrong one.
    pub of: Name,
    /// Of two words of one node about one image the higher version counts.
    pub version: u64,
    /// The image, 64 hexadecimal digits.
    pub image: &'a str,
    /// What it is called.
    pub name: &'a str,
    /// How it is cut; it may be true.
    pub header: [u8; 32],
    /// True if the node says that it has all of it.
    pub origin: bool,
}

impl Word<'_> {
    fn record(&self) -> Record {
        let mut image = ImageId([0; 32]);
        for (at, byte) in image.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&self.image[2 * at..2 * at + 2], 16).expect("an image's id");
        }
        let record = Record {
            node: NodeId(self.of.node),
            version: self.version,
            progress: 0,
            subject: Shared::new(Subject { image, names: self.name.into(), header: self.header }),
            origin: self.origin,
            arc: Arc { start: 0, length: 0 },
            filled: Filled::default(),
            leaving: false,
            signature: Signature::default(),
        };
        record.signed(&self.of.key())
    }
}

/// The header of an image in chunks of 64 KiB that has so many bytes, and so many chunks that are
/// not all zeros.
pub fn header(length_bytes: u64, populated: u64) -> [u8; 32] {
    let mut out = [0; 32];
    out[..8].copy_from_slice(b"V-FIELD\0");
    out[8..12].copy_from_slice(&1u32.to_le_bytes());
    out[12..16].copy_from_slice(&(64u32 << 10).to_le_bytes());
    out[16..24].copy_from_slice(&length_bytes.to_le_bytes());
    out[24..].copy_from_slice(&populated.to_le_bytes());
    out
}

/// Greets a node as `me` and says that `members` live and what they say of images; returns when
/// that was heard.
///
/// # Errors
/// If the node does not answer as a node does.
pub fn proclaim(to: SocketAddr, me: Name, members: &[Name], words: &[Word<'_>]) -> io::Result<()> {
    let members = members.iter().map(|member| member.says(0, State::Alive)).collect();
    let records = words.iter().map(Word::record).collect();
    let mut stream = bully::greet(to, me)?;
    let said = Snapshot { members, records, ..Snapshot::default() };
    stream.write_all(&wire::snapshot_frame(Kind::Sync, 1, said))?;
    // Its answer comes behind what it heard.
    let mut answer = [0; wire::HEADER];
    stream.read_exact(&mut answer)
}
