//! A peer made by hand: greets as a node does, under a key of its own, and then does what no node
//! would. It writes with the core's types and knows no rules.

use rustix::net::{AddressFamily, SocketType};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use vfield_core::greeting::{self, Greeting, HEAD, PROOF, Transcript};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::membership::message::{Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member, State};
use vfield_core::signing::Signatures;
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{self, HEADER};
use vfield_trust::NodeKey;

/// A node that does not answer within this is stuck.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks for a chunk: a kind of frame.
pub const GET: u8 = 1;
/// Asks a node for its snapshot of the field.
pub const SYNC: u8 = 5;
/// The answer to it.
pub const SYNCED: u8 = 6;

/// Who somebody claims to be.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// Where it says that it is.
    pub addr: SocketAddr,
    /// The id that it claims: its own, or another's.
    pub node: u64,
    /// When it says that it started, in milliseconds since 1970.
    pub generation: u64,
    /// Its key is made of this.
    pub seed: u64,
}

impl Name {
    /// Somebody with the key that `seed` makes, and its id.
    pub fn of(addr: SocketAddr, seed: u64) -> Self {
        Self { addr, node: key(seed).node().0, generation: 1, seed }
    }

    /// The key of whoever says this.
    pub fn key(&self) -> NodeKey {
        key(self.seed)
    }

    /// What it says of itself, or of whoever it claims to be, under its own signature.
    pub fn says(&self, incarnation: u32, state: State) -> Member {
        let &Self { addr, node, generation, .. } = self;
        let identity = Identity { addr, node: NodeId(node), generation, zone: Zone::default() };
        Member { state, ..Member::signed(identity, incarnation, state == State::Left, &self.key()) }
    }
}

fn key(seed: u64) -> NodeKey {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    NodeKey::from_seed(&bytes)
}

/// Greets a node, and waits for its greeting and its proof.
///
/// # Errors
/// If it does not answer as a node does.
pub fn greet(to: SocketAddr, name: Name) -> io::Result<TcpStream> {
    greet_over(TcpStream::connect(to)?, to, name, |greeting| greeting)
}

/// Like [`greet`], as a program that speaks the next version too and says more of itself.
///
/// # Errors
/// If the node does not answer as a node does.
pub fn greet_of_tomorrow(to: SocketAddr, name: Name) -> io::Result<TcpStream> {
    const MORE: &[u8] = b"and more";
    greet_over(TcpStream::connect(to)?, to, name, |mut greeting| {
        greeting[8..12].copy_from_slice(&(wire::VERSION + 1).to_le_bytes());
        let length = (greeting.len() - HEAD + MORE.len()) as u16;
        greeting[12..14].copy_from_slice(&length.to_le_bytes());
        greeting.extend_from_slice(MORE);
        greeting
    })
}

/// Like [`greet`], from the address that it claims to be at.
///
/// # Errors
/// If the machine does not have that address, or the node does not answer as a node does.
pub fn greet_from_there(to: SocketAddr, name: Name) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(name.addr.ip(), 0))?;
    rustix::net::connect(&socket, &to)?;
    greet_over(socket.into(), to, name, |greeting| greeting)
}

/// Greets over a connection, with the greeting as `said` changes it.
fn greet_over(
    mut stream: TcpStream,
    to: SocketAddr,
    name: Name,
    said: impl FnOnce(Vec<u8>) -> Vec<u8>,
) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(LIMIT))?;
    let key = name.key();
    let member = Some(name.says(0, State::Alive));
    let mine = Greeting { key: key.key(), nonce: [7; 32], member, you: to, latest: 0 };
    let mine = said(greeting::greeting(&mine));
    stream.write_all(&mine)?;
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let mut theirs = vec![0; greeting::length(&head).map_err(io::Error::other)?];
    stream.read_exact(&mut theirs)?;
    let transcript = Transcript::new(&[0; 32], &mine, &[&head[..], &theirs].concat());
    stream.write_all(transcript.prove(true, &key).bytes())?;
    stream.read_exact(&mut [0; PROOF])?;
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
    wire::snapshot_frame(wire::Kind::Sync, request, Snapshot::default())
}

/// What a node knows of its field.
///
/// # Errors
/// If it does not answer as a node does.
pub fn ask(to: SocketAddr, me: Name) -> io::Result<Snapshot> {
    let mut stream = greet(to, me)?;
    stream.write_all(&sync(1))?;
    let mut head = [0; HEADER];
    stream.read_exact(&mut head)?;
    let header = wire::FrameHeader::decode(&head).map_err(io::Error::other)?;
    let mut body = vec![0; header.length as usize];
    stream.read_exact(&mut body)?;
    wire::decode_snapshot(&body).map_err(io::Error::other)
}

/// Tells a node, whose id is `node`, by gossip what `from` says of others.
///
/// # Errors
/// If nothing can be sent.
pub fn gossip(to: SocketAddr, node: u64, from: Name, said: &[Member]) -> io::Result<()> {
    let (node, purpose) = (NodeId(node), Purpose::News);
    let head = Head { level: Level::Zone, from: NodeId(from.node), life: (from.generation, 0), to: node, purpose };
    let socket = UdpSocket::bind((from.addr.ip(), 0))?;
    for member in said {
        let mut draft = Draft::new(&head);
        draft.add(&Item::Member(*member));
        socket.send_to(&draft.finish(), to)?;
    }
    Ok(())
}
