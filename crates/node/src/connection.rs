//! A connection to a peer after the greeting: its two halves, each with a seal if the field has a
//! key.
//!
//! [`crate::greet`] makes it; the serving and the asking side take it apart. It knows bytes, not
//! frames.

use crate::incoming::Incoming;
use crate::segments::Dialled;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use vfield_core::wire::VERSION_LEAST;
use vfield_trust::KeyId;
use vfield_trust::handshake::Channel;
use vfield_trust::record::Sealer;

/// A greeted connection to a peer.
#[derive(Debug)]
pub struct Connection {
    /// The TCP socket.
    pub stream: TcpStream,
    /// The receiving half.
    pub incoming: Incoming,
    /// The seal of the sending half, if the field has a key.
    pub sealer: Option<Sealer>,
    /// The key that both sides proved to have.
    pub key: Option<KeyId>,
    /// The latest version of the protocol that both sides speak, once they have greeted.
    pub version: u32,
    /// How this node made it; `None` if the other side did.
    pub dialled: Option<Dialled>,
}

impl Connection {
    /// Without a seal.
    pub const fn open(stream: TcpStream) -> Self {
        Self { stream, incoming: Incoming::new(None), sealer: None, key: None, version: VERSION_LEAST, dialled: None }
    }

    /// A connection sealed by two nodes that have proved themselves.
    pub fn sealed(stream: TcpStream, channel: Channel) -> Self {
        let Channel { sealer, opener, key, binding: _ } = channel;
        let (incoming, version) = (Incoming::new(Some(opener)), VERSION_LEAST);
        Self { stream, incoming, sealer: Some(sealer), key: Some(key), version, dialled: None }
    }

    /// Sends all of `bytes`.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = bytes.to_vec();
        while write(&self.stream, self.sealer.as_mut(), &mut out)? == Written::Some {
            self.stream.writable().await?;
        }
        Ok(())
    }

    /// Receives this many bytes.
    pub async fn receive(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        while self.incoming.content().len() < bytes {
            let missing = bytes - self.incoming.content().len();
            if self.incoming.read(&self.stream, Some(missing), false)?.bytes == 0 {
                self.stream.readable().await?;
            }
        }
        let taken = self.incoming.content()[..bytes].to_vec();
        self.incoming.consume(bytes);
        Ok(taken)
    }
}

/// The half that asks a peer: small frames, gathered until the socket takes them.
#[derive(Debug)]
pub struct Outbound {
    /// The socket to write to.
    pub stream: Arc<TcpStream>,
    /// The seal, if there is one.
    pub sealer: Option<Sealer>,
}

impl Outbound {
    /// Sends the front of `out`; a connection that is broken takes everything.
    pub fn send(&mut self, out: &mut Vec<u8>) -> Written {
        write(&self.stream, self.sealer.as_mut(), out).unwrap_or_else(|_| {
            // Noticed by the side that reads, also if it was the seal that failed.
            let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Both);
            out.clear();
            Written::All
        })
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The kernel has all of it.
    All,
    /// The socket takes no more for now.
    Some,
}

/// Hands the kernel what it takes of `out`, through the seal if there is one.
fn write(stream: &TcpStream, mut sealer: Option<&mut Sealer>, out: &mut Vec<u8>) -> io::Result<Written> {
    if let Some(sealer) = &mut sealer
        && !out.is_empty()
    {
        sealer.seal(out)?;
        out.clear();
    }
    loop {
        let waiting = sealer.as_ref().map_or(&out[..], |sealer| sealer.waiting());
        if waiting.is_empty() {
            if let Some(sealer) = sealer {
                sealer.rest();
            }
            return Ok(Written::All);
        }
        match stream.try_write(waiting) {
            Ok(written) => match &mut sealer {
                Some(sealer) => sealer.sent(written),
                None => drop(out.drain(..written)),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Written::Some),
            Err(error) => return Err(error),
        }
    }
}
