//! The first exchange on a connection between nodes: both say who they are.

use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use vfield_core::identity::Identity;
use vfield_core::wire::{self, Greeting, WireError};

/// How long connecting may take: many times a LAN's delay, and short enough for a reader to wait once.
const CONNECT: Duration = Duration::from_millis(500);
/// How long a greeting may take once connected. A busy machine answers late; a hostile one never.
pub const GREET: Duration = Duration::from_secs(5);

/// After so long without a word the kernel asks whether the other machine is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Why two nodes did not come together.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// No connection.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// Nobody there, or a firewall that says nothing.
    #[error("no answer")]
    TimedOut,
    /// It answers with something else.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The connection leads back to this node.
    #[error("this is the node itself")]
    Myself,
}

/// The operating system's words without its error number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::UnexpectedEof => "not a vfield node".to_owned(),
        _ => error.to_string(),
    }
}

/// Connects to a node and exchanges greetings; returns what the other said.
pub async fn dial(addr: SocketAddr, me: Identity) -> Result<(TcpStream, Greeting), GreetError> {
    let connecting = timeout(CONNECT, TcpStream::connect(addr));
    let mut stream = connecting.await.map_err(|_| GreetError::TimedOut)??;
    set_options(&stream)?;
    let theirs = exchange(&mut stream, me, addr).await?;
    if theirs.identity.node == me.node {
        return Err(GreetError::Myself);
    }
    Ok((stream, theirs))
}

/// Answers a node that connected from `addr`.
pub async fn answer(stream: &mut TcpStream, me: Identity, addr: SocketAddr) -> Result<Greeting, GreetError> {
    set_options(stream)?;
    exchange(stream, me, addr).await
}

/// No delay for small frames; and a machine that vanished without a word does not hold a connection for ever.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_IDLE / 3)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Both sides speak first: a node of another version learns which one this is before it is left.
async fn exchange(stream: &mut TcpStream, identity: Identity, you: SocketAddr) -> Result<Greeting, GreetError> {
    let exchange = async {
        stream.write_all(&wire::greeting(&Greeting { identity, you })).await?;
        let mut head = [0; wire::GREETING_HEAD];
        stream.read_exact(&mut head).await?;
        let mut body = vec![0; wire::greeting_length(&head)?];
        stream.read_exact(&mut body).await?;
        Ok(wire::decode_greeting(&body)?)
    };
    timeout(GREET, exchange).await.map_err(|_| GreetError::TimedOut)?
}
