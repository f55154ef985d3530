//! The first exchange on a connection between nodes: both prove that they belong, if the field has a key, and say who
//! they are.
//!
//! A stranger is left without a word, and without having cost a signature. What the dialling side says about a
//! connection that did not come about is its own guess: it was told nothing.

use crate::connection::Connection;
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use vfield_core::identity::Identity;
use vfield_core::wire::{self, Greeting, MAGIC, MAGIC_STARTING, WireError};
use vfield_trust::handshake::{Channel, Handshake, HandshakeError};
use vfield_trust::{KeyRing, record};

/// How long connecting may take: many times a LAN's delay, and short enough for a reader to wait once.
const CONNECT: Duration = Duration::from_millis(500);
/// How long a greeting may take once connected. A busy machine answers late; a hostile one never.
pub const GREET: Duration = Duration::from_secs(5);

/// After so long without a word the kernel asks whether the other machine is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// What was sent and not acknowledged for so long ends a connection: as long as a peer may take no byte of an answer
/// (a machine that is stopped for a moment keeps its connections). Otherwise a flow whose packets are dropped silently
/// would hold its memory until the kernel has tried for a quarter of an hour.
const UNACKNOWLEDGED: Duration = crate::server::TAKEN_WITHIN;

/// Why two nodes did not come together.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// No connection.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// Nobody there, or a firewall that says nothing.
    #[error("no answer")]
    TimedOut,
    /// It has just been started, and does not take part in anything yet.
    #[error("not ready yet: hashing, {0} %")]
    Starting(u32),
    /// It answers with something else.
    #[error(transparent)]
    Wire(WireError),
    /// The connection leads back to this node.
    #[error("this is the node itself")]
    Myself,
    /// It ended the connection where a member would have answered.
    #[error("it hung up: {}", hung_up(*.with_key))]
    HungUp {
        /// True if this node has a key.
        with_key: bool,
    },
    /// It greets in the clear.
    #[error("its field is open, and this node was given a field key")]
    OpenField,
    /// It does not have the field's key, or not this one.
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

    /// True if trying again may help: whoever does not answer may be about to start.
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

/// The operating system's words without its error number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Connects to a node and exchanges greetings; returns what the other said. `keys` are the field's.
pub async fn dial(addr: SocketAddr, me: Identity, keys: Option<KeyRing>) -> Result<(Connection, Greeting), GreetError> {
    dial_within(CONNECT, addr, me, keys).await
}

/// The same, with another bound for connecting.
pub async fn dial_within(
    bound: Duration,
    addr: SocketAddr,
    me: Identity,
    keys: Option<KeyRing>,
) -> Result<(Connection, Greeting), GreetError> {
    let connecting = timeout(bound, TcpStream::connect(addr));
    let stream = connecting.await.map_err(|_| GreetError::TimedOut)??;
    set_options(&stream)?;
    let with_key = keys.is_some();
    let met = async {
        let handshake = keys.map(|ring| Handshake::dial(ring.spoken()));
        let mut connection = prove(stream, handshake).await?;
        let theirs = exchange(&mut connection, me, addr).await?;
        Ok((connection, theirs))
    };
    let met = timeout(GREET, met).await.map_err(|_| GreetError::TimedOut)?;
    let (connection, theirs) = met.map_err(|error| match error {
        GreetError::Io(error) if is_end(&error) => GreetError::HungUp { with_key },
        other => other,
    })?;
    if theirs.identity.node == me.node {
        return Err(GreetError::Myself);
    }
    Ok((connection, theirs))
}

/// Answers a node that connected from `addr`.
pub async fn answer(
    stream: TcpStream,
    me: Identity,
    addr: SocketAddr,
    keys: Option<KeyRing>,
) -> Result<(Connection, Greeting), GreetError> {
    set_options(&stream)?;
    let met = async {
        let mut connection = prove(stream, keys.map(Handshake::answer)).await?;
        let theirs = exchange(&mut connection, me, addr).await?;
        Ok((connection, theirs))
    };
    timeout(GREET, met).await.map_err(|_| GreetError::TimedOut)?
}

/// Tells a node that connected that this one is not ready.
pub async fn put_off(stream: TcpStream, keys: Option<KeyRing>, percent: u32) -> Result<(), GreetError> {
    set_options(&stream)?;
    let said = async {
        let mut connection = prove(stream, keys.map(Handshake::answer)).await?;
        connection.send(&wire::starting(percent)).await?;
        // What was not read would be answered with a reset, which may overtake what was sent.
        let head = connection.receive(wire::GREETING_HEAD).await?;
        let body = wire::greeting_length(head.first_chunk().expect("as long as was asked for"))?;
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

/// No delay for small frames; and a machine that vanished without a word does not hold a connection for ever.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_IDLE / 3)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED.as_millis() as u32)?;
    Ok(())
}

/// Both sides prove that they have the field's key; without one there is nothing to prove.
async fn prove(mut stream: TcpStream, handshake: Option<Handshake>) -> Result<Connection, GreetError> {
    let Some(mut handshake) = handshake else { return Ok(Connection::open(stream)) };
    loop {
        stream.write_all(&handshake.output()).await?;
        if handshake.is_done() {
            let channel: Channel = handshake.finish()?;
            return Ok(Connection::sealed(stream, channel));
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

/// Both sides speak first: a node of another version learns which one this is before it is left.
async fn exchange(connection: &mut Connection, identity: Identity, you: SocketAddr) -> Result<Greeting, GreetError> {
    connection.send(&wire::greeting(&Greeting { identity, you })).await?;
    let head = connection.receive(wire::GREETING_HEAD).await?;
    let head = head.first_chunk().expect("as long as was asked for");
    let body = connection.receive(wire::greeting_length(head)?).await?;
    Ok(wire::decode_greeting(&body)?)
}
