//! The first exchange on a connection between nodes: each proves its membership if the field has a
//! key, and in any field who it is ([`vfield_core::greeting`]).
//!
//! If the knock is invalid, the node closes the connection silently, before any public-key
//! operation. So the dialling side can only guess why a connection failed.

use crate::connection::Connection;
use crate::segments::{Carrying, Dialled, Segments};
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use vfield_core::admission::Admission;
use vfield_core::greeting::{self, Greeting, HEAD, MAGIC, MAGIC_STARTING, PROOF, Transcript};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::membership::Member;
use vfield_core::signing::{PublicKey, Signature, Signatures};
use vfield_core::wire::WireError;
use vfield_trust::handshake::{Channel, Handshake, HandshakeError};
use vfield_trust::{KeyRing, NodeKey, record};

/// Timeout for connecting: many times a LAN's delay, and short enough for a reader to wait once.
const CONNECT: Duration = Duration::from_millis(500);
/// Timeout for a greeting on an open connection. A busy machine answers late; a hostile one never.
pub const GREET: Duration = Duration::from_secs(5);

/// Idle time after which the kernel probes whether the other machine is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// How long sent data may remain unacknowledged before the connection ends: as long as a peer may
/// take no byte of an answer, so that short stops of a machine cost no connection. Without it a
/// flow whose packets are dropped silently would hold its memory until the kernel gives up after 15
/// minutes.
const UNACKNOWLEDGED: Duration = crate::server::TAKEN_WITHIN;

/// The reason why two nodes could not connect.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The connection failed.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// No answer, or a silent firewall.
    #[error("no answer")]
    TimedOut,
    /// The node is starting, and does not take part yet.
    #[error("not ready yet: hashing, {0} %")]
    Starting(u32),
    /// The answer is no valid greeting.
    #[error(transparent)]
    Wire(WireError),
    /// It does not have the key that its greeting names.
    #[error("it did not prove its identity")]
    Impostor,
    /// The connection leads back to this node, or to another process with its key.
    #[error("this is the node itself")]
    Myself {
        /// The generation of the process there.
        generation: u64,
    },
    /// Another process uses this node's identity.
    #[error("another process uses this node's identity at {0}")]
    Twin(SocketAddr),
    /// This node's admission list does not admit it.
    #[error("this node's admission list does not admit its identity")]
    NotAdmitted,
    /// It hung up instead of proving its identity.
    #[error("it hung up after the greeting: its admission list does not admit this node's identity")]
    Unwelcome,
    /// It closed the connection where a member would have answered.
    #[error("it hung up: {}", hung_up(*.with_key))]
    HungUp {
        /// True if this node has a key.
        with_key: bool,
    },
    /// It greets in the clear: its field has no key.
    #[error("its field is open, and this node was given a field key")]
    OpenField,
    /// It has no key of the field, or another one.
    #[error(transparent)]
    Stranger(#[from] HandshakeError),
}

impl From<WireError> for GreetError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Starting { percent } => Self::Starting(percent),
            other => Self::Wire(other),
        }
    }
}

impl GreetError {
    /// True if the other side has just been started.
    pub const fn is_starting(&self) -> bool {
        matches!(self, Self::Starting(_))
    }

    /// The address of another process with this node's identity.
    pub const fn twin(&self) -> Option<SocketAddr> {
        match self {
            Self::Twin(addr) => Some(*addr),
            _ => None,
        }
    }

    /// True if a retry may help: a node that does not answer may be about to start.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Io(_) | Self::TimedOut | Self::Starting(_))
    }
}

const fn hung_up(with_key: bool) -> &'static str {
    if with_key {
        "not a vfield node, or its field has another key"
    } else {
        "not a vfield node, or its field has a key and this node was given none"
    }
}

/// The operating system's message without its error number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        // In its own network a machine that is off seems so too.
        io::ErrorKind::HostUnreachable => "the machine is off, or a firewall rejects this".to_owned(),
        io::ErrorKind::NetworkUnreachable => "no network of this machine leads there".to_owned(),
        _ => error.to_string(),
    }
}

/// What this node shows of itself in a greeting.
#[derive(Debug, Clone)]
pub struct Me {
    /// Its statement about itself.
    pub member: Member,
    /// The latest generation of a member that it knows.
    pub latest: u64,
    /// The key of this node, with which it signs.
    pub key: Arc<NodeKey>,
    /// The keys of its field, if it has some.
    pub keys: Option<KeyRing>,
    /// The nodes that are admitted.
    pub admission: Arc<Admission>,
    /// The segments that carry to others.
    pub carrying: Arc<Carrying>,
    /// True to say nothing of itself.
    pub guest: bool,
}

/// The other side of a connection, which has proved who it is.
#[derive(Debug)]
pub struct Greeted {
    /// The connection to it.
    pub connection: Connection,
    /// Its id, which it has proved.
    pub node: NodeId,
    /// Its public key.
    pub key: PublicKey,
    /// Its statement about itself; `None` for a guest.
    pub member: Option<Member>,
    /// The latest generation of a member that it knows.
    pub latest: u64,
}

impl Greeted {
    /// Its identity. A guest, which says nothing of itself, lives where it called from, in `zone`,
    /// and began before all others.
    pub fn identity(&self, addr: SocketAddr, zone: Zone) -> Identity {
        let guest = Identity { addr, node: self.node, generation: 0, zone };
        self.member.map_or(guest, |member| member.identity)
    }
}

/// Connects to a member and exchanges greetings.
///
/// # Errors
///
/// If nobody answers there, or not as a member of this field.
pub async fn dial(addr: SocketAddr, me: Me) -> Result<(Greeted, Member), GreetError> {
    dial_within(CONNECT, addr, me).await
}

/// The same, with another bound for connecting.
pub async fn dial_within(bound: Duration, addr: SocketAddr, me: Me) -> Result<(Greeted, Member), GreetError> {
    dial_with(None, bound, addr, me).await
}

/// The same, with such segments; `None` for those that are known to carry.
pub async fn dial_by(segments: Option<Segments>, addr: SocketAddr, me: Me) -> Result<(Greeted, Member), GreetError> {
    dial_with(segments, CONNECT, addr, me).await
}

async fn dial_with(
    segments: Option<Segments>,
    bound: Duration,
    addr: SocketAddr,
    me: Me,
) -> Result<(Greeted, Member), GreetError> {
    let segments = segments.unwrap_or_else(|| me.carrying.to(addr));
    let connecting = timeout(bound, segments.connect(addr));
    let stream = connecting.await.map_err(|_| GreetError::TimedOut)??;
    set_options(&stream)?;
    let with_key = me.keys.is_some();
    let met = async {
        let handshake = me.keys.as_ref().map(|ring| Handshake::dial(ring.spoken()));
        let (mut connection, binding) = prove(stream, handshake).await?;
        connection.dialled = Some(Dialled::new(addr, segments, Arc::clone(&me.carrying)));
        meet(connection, &me, addr, true, &binding).await
    };
    let met = timeout(GREET, met).await.map_err(|_| GreetError::TimedOut)?;
    let met = met.map_err(|error| match error {
        GreetError::Io(error) if is_end(&error) => GreetError::HungUp { with_key },
        other => other,
    })?;
    if met.node == me.member.identity.node {
        let generation = met.member.map_or(0, |member| member.identity.generation);
        return Err(GreetError::Myself { generation });
    }
    // Guests dial; they are not dialled.
    let member = met.member.ok_or(GreetError::Wire(WireError::Payload))?;
    Ok((met, member))
}

/// Answers a node that connected from `addr`.
///
/// # Errors
///
/// If it does not greet as a node of this field.
pub async fn answer(stream: TcpStream, me: Me, addr: SocketAddr) -> Result<Greeted, GreetError> {
    set_options(&stream)?;
    let met = async {
        let (connection, binding) = prove(stream, me.keys.clone().map(Handshake::answer)).await?;
        meet(connection, &me, addr, false, &binding).await
    };
    timeout(GREET, met).await.map_err(|_| GreetError::TimedOut)?
}

/// Tells a node that connected that this one is not ready.
pub async fn put_off(stream: TcpStream, keys: Option<KeyRing>, percent: u32) -> Result<(), GreetError> {
    set_options(&stream)?;
    let said = async {
        let (mut connection, _) = prove(stream, keys.map(Handshake::answer)).await?;
        connection.send(&greeting::starting(percent)).await?;
        // Unread bytes would cause a reset, which may overtake the sent ones.
        let head = connection.receive(HEAD).await?;
        let body = greeting::length(head.first_chunk().expect("as long as was asked for"))?;
        connection.receive(body).await?;
        Ok(())
    };
    timeout(GREET, said).await.map_err(|_| GreetError::TimedOut)?
}

/// True for the ways in which a connection is ended by the other side.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Sets no delay for small frames, and keep-alive, so that a vanished machine holds no connection
/// for ever.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_IDLE / 3)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED.as_millis() as u32)?;
    Ok(())
}

/// Both sides prove that they have the field's key; without one there is nothing to prove. Returns
/// a secret of the channel as well.
async fn prove(mut stream: TcpStream, handshake: Option<Handshake>) -> Result<(Connection, [u8; 32]), GreetError> {
    let Some(mut handshake) = handshake else { return Ok((Connection::open(stream), [0; 32])) };
    loop {
        stream.write_all(&handshake.output()).await?;
        if handshake.is_done() {
            let channel: Channel = handshake.finish()?;
            let binding = channel.binding;
            return Ok((Connection::sealed(stream, channel), binding));
        }
        // Exactly one record: what follows the handshake is not for it.
        let mut head = [0; record::HEAD];
        stream.read_exact(&mut head).await?;
        if MAGIC.starts_with(&head) || MAGIC_STARTING.starts_with(&head) {
            return Err(GreetError::OpenField);
        }
        let mut record = head.to_vec();
        record.resize(Handshake::record_length(&head)?, 0);
        stream.read_exact(&mut record[record::HEAD..]).await?;
        handshake.receive(&record)?;
    }
}

/// A greeting of each side, and what both sign.
struct Greetings {
    theirs: Greeting,
    transcript: Transcript,
}

/// Both sides speak first, so a node of another version learns which one this is before it is left.
async fn exchange(
    connection: &mut Connection,
    me: &Me,
    you: SocketAddr,
    dials: bool,
    binding: &[u8; 32],
) -> Result<Greetings, GreetError> {
    let mut nonce = [0; 32];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()).map_err(io::Error::from)?;
    let (key, member, latest) = (me.key.key(), Some(me.member).filter(|_| !me.guest), me.latest);
    let mine = greeting::greeting(&Greeting { key, nonce, member, you, latest });
    connection.send(&mine).await?;
    let head = connection.receive(HEAD).await?;
    let head_bytes = head.first_chunk().expect("as long as was asked for");
    let length = greeting::length(head_bytes)?;
    connection.version = greeting::version(head_bytes);
    let body = connection.receive(length).await?;
    let theirs = greeting::decode(&body)?;
    let whole = [head, body].concat();
    let (dialled, answered) = if dials { (&mine, &whole) } else { (&whole, &mine) };
    Ok(Greetings { theirs, transcript: Transcript::new(binding, dialled, answered) })
}

/// Both sides greet, and then prove that they have the key of their greeting.
async fn meet(
    mut connection: Connection,
    me: &Me,
    you: SocketAddr,
    dials: bool,
    binding: &[u8; 32],
) -> Result<Greeted, GreetError> {
    let Greetings { theirs, transcript } = exchange(&mut connection, me, you, dials, binding).await?;
    // A node that is not admitted hears nothing more. To claim another key would need its proof.
    if !me.admission.admits(&theirs.key) {
        return Err(GreetError::NotAdmitted);
    }
    connection.send(transcript.prove(dials, &*me.key).bytes()).await?;
    let proof = connection.receive(PROOF).await.map_err(|error| match error {
        error if dials && is_end(&error) => GreetError::Unwelcome,
        error => GreetError::Io(error),
    })?;
    let proof = Signature::from(*proof.first_chunk().expect("as long as was asked for"));
    let node = transcript.prover(!dials, &theirs, &proof, &*me.key).ok_or(GreetError::Impostor)?;
    Ok(Greeted { connection, node, key: theirs.key, member: theirs.member, latest: theirs.latest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::server;
    use vfield_core::wire::{self, FrameHeader, HEADER, Kind};
    use vfield_trust::FieldKey;

    async fn node(ring: Option<KeyRing>) -> (Arc<Driver>, SocketAddr) {
        let (driver, listener) = Driver::alone(ring).await;
        let addr = listener.local_addr().unwrap();
        tokio::spawn(server::accept(Arc::clone(&driver), listener));
        (driver, addr)
    }

    /// The first frame comes in one packet with the proof, and nothing comes after it.
    #[tokio::test]
    async fn a_frame_that_comes_with_the_proof_is_answered() {
        for ring in [None, Some(KeyRing::new([FieldKey::new([1; 32])]).unwrap())] {
            let (one, _) = node(ring.clone()).await;
            let (_other, addr) = node(ring).await;
            let me = one.me();
            let stream = TcpStream::connect(addr).await.unwrap();
            let handshake = me.keys.as_ref().map(|ring| Handshake::dial(ring.spoken()));
            let (mut connection, binding) = prove(stream, handshake).await.unwrap();
            let frame = wire::snapshot_frame(Kind::Sync, 7, one.look(|core| core.question(core.me())));
            let greetings = exchange(&mut connection, &me, addr, true, &binding).await.unwrap();
            let proof = greetings.transcript.prove(true, &*me.key);
            connection.send(&[proof.bytes(), &frame].concat()).await.unwrap();
            connection.receive(PROOF).await.unwrap();
            let head = timeout(GREET, connection.receive(HEADER)).await.expect("it is answered").unwrap();
            let header = FrameHeader::decode(head.first_chunk().unwrap()).unwrap();
            assert_eq!((header.kind, header.request), (Kind::Synced, 7));
        }
    }
}
