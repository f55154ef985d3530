//! One answer on its way into a socket: a header, and a chunk straight from the memory file.

use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;
use vfield_core::source::Piece;
use vfield_core::wire::{FrameHeader, Kind, Refusal};

/// How far [`Outgoing::send`] came.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has all of it.
    All,
    /// The socket takes no more for now.
    Some,
}

/// See the module. Keeps the chunk's bytes in place until the kernel has them.
#[derive(Debug)]
pub struct Outgoing {
    /// What goes before the piece, or all there is.
    head: Vec<u8>,
    head_sent: usize,
    piece: Option<Piece>,
    piece_sent: u64,
}

/// A source of zero bytes for chunks that are all zeros: peers know them by their hash and do not ask.
static ZEROS: [u8; 4096] = [0; 4096];

impl Outgoing {
    /// A whole frame.
    pub const fn frame(head: Vec<u8>) -> Self {
        Self { head, head_sent: 0, piece: None, piece_sent: 0 }
    }

    /// A refusal.
    pub fn refusal(request: u64, refusal: Refusal) -> Self {
        Self::frame(FrameHeader::refuse(request, refusal).encode().to_vec())
    }

    /// A chunk.
    pub fn chunk(request: u64, piece: Piece) -> Self {
        let header = FrameHeader::new(Kind::Data, request, piece.len() as u32);
        Self { head: header.encode().to_vec(), head_sent: 0, piece: Some(piece), piece_sent: 0 }
    }

    /// Length of the chunk, 0 without one.
    pub fn payload_bytes(&self) -> u64 {
        self.piece.as_ref().map_or(0, Piece::len)
    }

    /// Hands the kernel what it takes. An error ends the connection: a frame cannot be taken back.
    pub fn send(&mut self, stream: &TcpStream) -> io::Result<Sent> {
        loop {
            match stream.try_io(Interest::WRITABLE, || self.step(stream)) {
                Ok(true) => return Ok(Sent::All),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Some),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One system call; true when all is sent.
    fn step(&mut self, stream: &TcpStream) -> io::Result<bool> {
        let total = self.payload_bytes();
        if self.head_sent < self.head.len() {
            // With more to come the kernel waits for it, so header and chunk share their packets.
            let more = if total > 0 { SendFlags::MORE } else { SendFlags::empty() };
            self.head_sent += send(stream, &self.head[self.head_sent..], more | SendFlags::NOSIGNAL)?;
        } else {
            let left = (total - self.piece_sent) as usize;
            let sent = match &self.piece {
                Some(Piece::File(piece)) => {
                    let mut offset = piece.offset() + self.piece_sent;
                    sendfile(stream, piece.fd(), Some(&mut offset), left)?
                }
                Some(Piece::Bytes(bytes)) => send(stream, &bytes[self.piece_sent as usize..], SendFlags::NOSIGNAL)?,
                Some(Piece::Zero(_)) => send(stream, &ZEROS[..left.min(ZEROS.len())], SendFlags::NOSIGNAL)?,
                None => 0,
            };
            if sent == 0 && left > 0 {
                // Only a source file that was cut short can end before its length.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.piece_sent += sent as u64;
        }
        Ok(self.head_sent == self.head.len() && self.piece_sent == total)
    }
}
