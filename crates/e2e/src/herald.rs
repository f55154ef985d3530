//! A false teller: says anything about images in any node's name, by one `Sync` frame of the wire
//! format (docs/reference/protocol.md).

use crate::bully::{self, Name, SYNC, number};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;

/// A claim about an image.
#[derive(Debug, Clone)]
pub struct Word<'a> {
    /// In whose name: the id of a process.
    pub node: u64,
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
    let mut body = Vec::new();
    number(words.len() as u64, &mut body);
    for word in words {
        let digit = |at: usize| u8::from_str_radix(&word.image[2 * at..2 * at + 2], 16).expect("an image's id");
        body.extend((0..32).map(digit));
        number(word.name.len() as u64, &mut body);
        body.extend_from_slice(word.name.as_bytes());
        body.extend_from_slice(&word.header);
    }
    number(members.len() as u64, &mut body);
    for member in members {
        member.encode(&mut body);
        // Its first incarnation, alive.
        body.extend_from_slice(&[0, 0]);
    }
    number(words.len() as u64, &mut body);
    for (subject, word) in words.iter().enumerate() {
        number(word.node, &mut body);
        number(subject as u64, &mut body);
        number(word.version, &mut body);
        // It holds an arc of no length, of which nothing is filled, and is not about to leave.
        body.extend_from_slice(&[u8::from(word.origin), 0, 0, 0, 0, 0]);
    }
    // No gateways, nothing of other zones, not between two gateways.
    body.extend_from_slice(&[0, 0, 0]);
    let mut stream = bully::greet(to, me)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write_all(&[&bully::header(SYNC, length, 1)[..], &body].concat())?;
    // Its answer comes behind what it heard.
    let mut answer = [0; 16];
    stream.read_exact(&mut answer)
}
