//! The first exchange on a connection between nodes: each proves its membership if the field has a
//! key, and says its identity.
//!
//! If the knock is invalid, the node closes the connection silently, before any public-key
//! operation. So the dialling side can only guess why a connection failed.

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
    /// The connection leads back to this node.
    #[error("this is the node itself")]
    Myself,
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
        // Unread bytes would cause a reset, which may overtake the sent ones.
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
