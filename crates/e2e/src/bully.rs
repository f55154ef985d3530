//! A peer made by hand, which greets as a node does and then does what no node would: speaks the
//! wire's bytes, as docs/reference/protocol.md has them, and knows no rules.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Magic and version of a greeting.
const GREETING: &[u8] = b"VFIELD\r\n\x07\0\0\0";
/// Magic and version of gossip.
const GOSSIP: &[u8] = b"VFG\x02";
/// A node that does not answer within this is stuck.
const LIMIT: Duration = Duration::from_secs(10);

/// Kinds of frames.
pub const GET: u8 = 1;
/// Asks which nodes of the field a node knows.
pub const SYNC: u8 = 5;

/// Who somebody claims to be.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// Where it says that it is.
    pub addr: SocketAddr,
    /// The id of its process.
    pub node: u64,
    /// When it says that it started, in milliseconds since 1970.
    pub generation: u64,
}

/// A statement about a node.
#[derive(Debug, Clone, Copy)]
pub enum State {
    /// The node lives.
    Alive = 0,
    /// The node died.
    Down = 2,
    /// It said goodbye.
    Left = 3,
}

impl Name {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        address(self.addr, out);
        number(self.node, out);
        number(self.generation, out);
        // The zone without a name.
        out.push(0);
    }
}

/// Greets a node and waits for its greeting.
///
/// # Errors
/// If it does not answer as a node does.
pub fn greet(to: SocketAddr, name: Name) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut body = Vec::new();
    name.encode(&mut body);
    address(to, &mut body);
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write_all(&[GREETING, &length.to_le_bytes(), &body].concat())?;
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let [.., a, b, c, d] = head;
    stream.read_exact(&mut vec![0; u32::from_le_bytes([a, b, c, d]) as usize])?;
    Ok(stream)
}

/// The header of a frame with demand as its priority.
pub fn header(kind: u8, length: u32, request: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[0] = kind;
    out[4..8].copy_from_slice(&length.to_le_bytes());
    out[8..].copy_from_slice(&request.to_le_bytes());
    out
}

/// Asks for a chunk of an image, given by its id in hexadecimal digits, of whom has it.
pub fn get(image: &str, chunk: u64, request: u64) -> Vec<u8> {
    let mut out = header(GET, 48, request).to_vec();
    out.extend((0..32).map(|at| u8::from_str_radix(&image[2 * at..2 * at + 2], 16).expect("an image's id")));
    out.extend_from_slice(&chunk.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out
}

/// Asks what a node knows, and tells it nothing.
pub fn sync(request: u64) -> Vec<u8> {
    [&header(SYNC, 6, request)[..], &[0; 6]].concat()
}

/// Tells a node, whose id is `node`, by gossip what `from` says of others.
///
/// # Errors
/// If nothing can be sent.
pub fn gossip(to: SocketAddr, node: u64, from: Name, said: &[(Name, u32, State)]) -> io::Result<()> {
    let mut out = GOSSIP.to_vec();
    out.push(0);
    from.encode(&mut out);
    number(0, &mut out);
    number(node, &mut out);
    out.push(0);
    for (name, incarnation, state) in said {
        out.push(0);
        name.encode(&mut out);
        number(u64::from(*incarnation), &mut out);
        out.push(*state as u8);
    }
    UdpSocket::bind((from.addr.ip(), 0))?.send_to(&out, to).map(drop)
}

fn address(addr: SocketAddr, out: &mut Vec<u8>) {
    match addr.ip() {
        IpAddr::V4(ip) => {
            out.push(0);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(1);
            out.extend_from_slice(&ip.octets());
        }
    }
    number(u64::from(addr.port()), out);
}

/// Seven bits a byte, the lowest first.
pub(crate) fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
