//! A guest of a node: greets it, asks it for chunks, and is no member of its field.
//!
//! The only file here that speaks the nodes' protocol. A guest says nothing of itself in its
//! greeting, so nobody takes it for a member.

use super::socket::{Socket, explain};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use vfield_console::failure::Failure;
use vfield_core::chunk::Chunk;
use vfield_core::greeting::{self, Greeting, Transcript};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::ImageId;
use vfield_core::reach;
use vfield_core::signing::Signatures;
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{self, FrameHeader, Get, HEADER, Kind, Priority, WireError};
use vfield_trust::{KeyRing, NodeKey};

/// A busy node answers late, a hostile one never.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far a node goes for a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It gives what it has; an origin does so whomever it would rather send the guest to.
    Here,
    /// What it has not, it gets from others.
    Field,
}

impl Reach {
    /// As the wire has it, and whether the guest insists.
    const fn on_the_wire(self) -> (reach::Reach, bool) {
        match self {
            Self::Here => (reach::Reach::HOLDER, true),
            Self::Field => (reach::Reach::READER, false),
        }
    }
}

/// What a node answers to a request for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Its bytes, which nobody has verified yet.
    Chunk(&'a [u8]),
    /// It does not give it.
    Refused,
}

/// A connection to a node.
pub struct Guest {
    socket: Socket,
    peer: Identity,
    addr: SocketAddr,
    payload: Vec<u8>,
}

impl Guest {
    /// Greets the node at `addr` as the guest with this key; with the keys of its field if it has
    /// any.
    ///
    /// # Errors
    ///
    /// If no node of this version answers there.
    pub fn greet(addr: SocketAddr, me: &NodeKey, keys: Option<&KeyRing>) -> Result<Self, Failure> {
        let refused = |why: String| Failure::failed(format!("node {addr}: {why}"));
        let (socket, binding) = Socket::node(addr, keys).map_err(|error| {
            // A connection was made, and what it said of the key did not do.
            let proving = matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::UnexpectedEof);
            let hint = if keys.is_some() && proving {
                "check --field-key: `vfield status` on that node shows its key's name, `vfield key id FILE` that \
                 of yours"
            } else {
                "check --peer; `vfield status` on a member lists the nodes of a field"
            };
            refused(explain(&error)).hint(hint)
        })?;
        // Replaced by what it says itself.
        let nobody = Identity { addr, node: NodeId(0), generation: 0, zone: Zone::default() };
        let mut guest = Self { socket, peer: nobody, addr, payload: Vec::new() };
        guest.peer = guest.meet(me, &binding).map_err(|error| {
            let hint = match (&error, keys) {
                // A node of a closed field says nothing to a stranger.
                (GuestError::Io(_) | GuestError::Late, None) => {
                    "for a closed field, give its key: --field-key FILE; else check the address"
                }
                _ => "give the listen address of a node of this version",
            };
            refused(error.to_string()).hint(hint)
        })?;
        Ok(guest)
    }

    /// The identity of the node.
    pub const fn peer(&self) -> &Identity {
        &self.peer
    }

    /// Where it was found, whatever it calls itself.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Exchanges greetings and proofs; the identity of the node.
    fn meet(&mut self, me: &NodeKey, binding: &[u8; 32]) -> Result<Identity, GuestError> {
        let mut nonce = [0; 32];
        rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()).map_err(io::Error::from)?;
        let mine = Greeting { key: me.key(), nonce, member: None, you: self.addr, latest: 0 };
        let mine = greeting::greeting(&mine);
        self.socket.send(&mine)?;
        let mut head = [0; greeting::HEAD];
        self.fill(&mut head)?;
        let mut body = vec![0; greeting::length(&head)?];
        self.fill(&mut body)?;
        let theirs = greeting::decode(&body)?;
        let transcript = Transcript::new(binding, &mine, &[&head[..], &body].concat());
        self.socket.send(transcript.prove(true, me).bytes())?;
        let mut proof = [0; greeting::PROOF];
        self.fill(&mut proof)?;
        let node = transcript.prover(false, &theirs, &proof.into(), me);
        let member = theirs.member.filter(|member| Some(member.identity.node) == node);
        Ok(member.ok_or(GuestError::Impostor)?.identity)
    }

    /// What the node knows of its field; it learns nothing.
    pub fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        self.send(&wire::snapshot_frame(Kind::Sync, 0, Snapshot::default()))?;
        let end = Instant::now() + PATIENCE;
        let header = self.frame(&|| Instant::now() >= end)?.filter(|header| header.kind == Kind::Synced);
        header.ok_or_else(|| self.broken("it sends no member records"))?;
        wire::decode_snapshot(&self.payload).map_err(|error| self.broken(&error.to_string()))
    }

    /// Asks for a chunk.
    pub fn ask(&mut self, request: u64, image: ImageId, chunk: Chunk, reach: Reach) -> Result<(), Failure> {
        let (reach, insists) = reach.on_the_wire();
        self.send(&Get { image, chunk, reach }.frame(request, Priority::Demand, insists))
    }

    /// Sends bytes that the node skips.
    pub fn fill_way(&mut self, filler: &[u8]) -> Result<(), Failure> {
        let header = FrameHeader::new(wire::FILLER, 0, filler.len() as u32);
        self.send(&[&header.encode()[..], filler].concat())
    }

    /// The next answer, to whatever request; `None` if `is_over` said so before it came.
    pub fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<Option<(u64, Reply<'_>)>, Failure> {
        let header = loop {
            let Some(header) = self.frame(is_over)? else { return Ok(None) };
            // It is at work on something, and answers follow; or a later version says more.
            if !matches!(header.kind, Kind::Patience | Kind::Unknown(_)) {
                break header;
            }
        };
        let reply = match header.kind {
            Kind::Data => Reply::Chunk(&self.payload),
            Kind::Refuse | Kind::Redirect => Reply::Refused,
            _ => return Err(self.broken("it breaks the protocol")),
        };
        Ok(Some((header.request, reply)))
    }

    /// Gets one chunk while nothing else is asked for; `None` if the node does not give it.
    pub fn fetch(&mut self, image: ImageId, chunk: Chunk) -> Result<Option<Vec<u8>>, Failure> {
        // An origin would rather send those who do not insist to others.
        for (request, reach) in [Reach::Here, Reach::Field].into_iter().enumerate() {
            self.ask(request as u64, image, chunk, reach)?;
            let end = Instant::now() + PATIENCE;
            match self.answer(&|| Instant::now() >= end)? {
                Some((_, Reply::Chunk(bytes))) => return Ok(Some(bytes.to_owned())),
                Some((_, Reply::Refused)) => {}
                None => return Err(self.broken("no answer")),
            }
        }
        Ok(None)
    }

    /// Reads a frame; its payload is in `self.payload`.
    fn frame(&mut self, is_over: &dyn Fn() -> bool) -> Result<Option<FrameHeader>, Failure> {
        let mut head = [0; HEADER];
        let read = self.socket.fill(&mut head, is_over);
        if !read.map_err(|error| self.broken(&explain(&error)))? {
            return Ok(None);
        }
        let header = FrameHeader::decode(&head).map_err(|error| self.broken(&error.to_string()))?;
        self.payload.resize(header.length as usize, 0);
        let read = self.socket.fill(&mut self.payload, is_over);
        Ok(read.map_err(|error| self.broken(&explain(&error)))?.then_some(header))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.socket.send(bytes).map_err(|error| self.broken(&explain(&error)))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), GuestError> {
        let end = Instant::now() + PATIENCE;
        let all = self.socket.fill(buffer, &|| Instant::now() >= end)?;
        all.then_some(()).ok_or(GuestError::Late)
    }

    fn broken(&self, why: &str) -> Failure {
        Failure::failed(format!("node {}: {why}", self.addr))
    }
}

/// Why a node did not greet.
#[derive(Debug)]
enum GuestError {
    Io(io::Error),
    Wire(WireError),
    Late,
    Impostor,
}

impl From<io::Error> for GuestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<WireError> for GuestError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl std::fmt::Display for GuestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => f.write_str(&explain(error)),
            Self::Wire(error) => write!(f, "{error}"),
            Self::Late => f.write_str("it sends no greeting"),
            Self::Impostor => f.write_str("it did not prove its identity"),
        }
    }
}
