//! One answer on its way into a socket: a header, and a chunk straight from the memory file or
//! sealed.

use crate::compression::Compressed;
use rustix::fs::sendfile;
use rustix::io::{pread, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::io::{self, IoSlice};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use vfield_block::source::Piece;
use vfield_core::wire::{FrameHeader, Kind, Refusal};
use vfield_trust::record::{CONTENT_MAX, Sealer};

/// Bytes sealed before the socket is tried: a chunk of the usual size goes in one call.
const SEALED_AT_ONCE: usize = 16 * CONTENT_MAX;

/// The result of [`Outgoing::send`].
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has all of it.
    All,
    /// The socket takes no more for now.
    Some,
    /// The allowance is used up.
    Allowed,
}

/// One answer under way. It pins the chunk until the kernel has its bytes.
#[derive(Debug)]
pub struct Outgoing {
    /// The bytes before the piece, or all of the answer.
    head: Vec<u8>,
    head_sent: usize,
    piece: Option<Piece>,
    piece_sent: u64,
    /// If it is a compressed chunk: the bytes that it has plain.
    plain: Option<u64>,
}

/// A source of zero bytes for chunks that are all zeros: peers know them by their hash and do not
/// ask.
static ZEROS: [u8; 4096] = [0; 4096];

impl Outgoing {
    /// A whole frame.
    pub const fn frame(head: Vec<u8>) -> Self {
        Self { head, head_sent: 0, piece: None, piece_sent: 0, plain: None }
    }

    /// A refusal frame.
    pub fn refusal(request: u64, refusal: Refusal) -> Self {
        Self::frame(FrameHeader::refuse(request, refusal).encode().to_vec())
    }

    /// A chunk that became available after `waited`.
    pub fn chunk(request: u64, piece: Piece, waited: Duration) -> Self {
        Self::with(FrameHeader::data(request, piece.len() as u32, waited), piece)
    }

    /// A compressed chunk of `plain` bytes that became available after `waited`.
    pub fn compressed(request: u64, compressed: Compressed, plain: u64, waited: Duration) -> Self {
        let Compressed { codec, bytes } = compressed;
        let header = FrameHeader::compressed(codec, request, bytes.len() as u32, waited);
        Self { plain: Some(plain), ..Self::with(header, Piece::Bytes(bytes)) }
    }

    /// A slice; see [`vfield_core::slice::Slice`] for the content of its piece.
    pub fn slice(request: u64, piece: Piece) -> Self {
        Self::with(FrameHeader::new(Kind::Slice, request, piece.len() as u32), piece)
    }

    fn with(header: FrameHeader, piece: Piece) -> Self {
        Self { head: header.encode().to_vec(), head_sent: 0, piece: Some(piece), piece_sent: 0, plain: None }
    }

    /// Length of the chunk, 0 without one.
    pub fn payload_bytes(&self) -> u64 {
        self.piece.as_ref().map_or(0, Piece::len)
    }

    /// The bytes that a compressed chunk has plain; `None` of anything else.
    pub const fn plain_bytes(&self) -> Option<u64> {
        self.plain
    }

    /// Bytes that the kernel or the seal has.
    pub fn sent_bytes(&self) -> u64 {
        self.head_sent as u64 + self.piece_sent
    }

    /// Bytes that the kernel does not have yet, those of a seal's records not counted.
    pub fn unsent_bytes(&self, sealer: Option<&Sealer>) -> u64 {
        (self.left() + sealer.map_or(0, |sealer| sealer.waiting().len())) as u64
    }

    /// Hands the kernel what it takes, under seal if there is one, and no more than `allowed`
    /// bytes, which it counts down. An error ends the connection: a frame cannot be taken back.
    pub fn send(&mut self, stream: &TcpStream, mut sealer: Option<&mut Sealer>, allowed: &mut u64) -> io::Result<Sent> {
        loop {
            if *allowed == 0 {
                return Ok(Sent::Allowed);
            }
            let most = usize::try_from(*allowed).unwrap_or(usize::MAX);
            let step = || match &mut sealer {
                Some(sealer) => self.sealed_step(stream, sealer, most),
                None => self.step(stream, most),
            };
            match stream.try_io(Interest::WRITABLE, step) {
                Ok(sent) => {
                    *allowed = allowed.saturating_sub(sent as u64);
                    if self.unsent_bytes(sealer.as_deref()) == 0 {
                        return Ok(Sent::All);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Some),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One system call for at most so many bytes; returns the bytes sent.
    fn step(&mut self, stream: &TcpStream, most: usize) -> io::Result<usize> {
        let head = &self.head[self.head_sent..];
        if let (false, Some(Piece::Bytes(bytes))) = (head.is_empty(), &self.piece) {
            let head = &head[..head.len().min(most)];
            let parts = [head, &bytes[..bytes.len().min(most - head.len())]].map(IoSlice::new);
            let sent = sendmsg(stream, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?;
            self.head_sent += sent.min(head.len());
            self.piece_sent += sent.saturating_sub(head.len()) as u64;
            return Ok(sent);
        }
        if !head.is_empty() {
            // With more to come the kernel waits for it, so header and chunk share their packets.
            let more = if self.payload_bytes() > 0 { SendFlags::MORE } else { SendFlags::empty() };
            let sent = send(stream, &head[..head.len().min(most)], more | SendFlags::NOSIGNAL)?;
            self.head_sent += sent;
            return Ok(sent);
        }
        let left = ((self.payload_bytes() - self.piece_sent) as usize).min(most);
        let sent = match &self.piece {
            Some(Piece::File(piece)) => {
                let mut offset = piece.offset() + self.piece_sent;
                sendfile(stream, piece.fd(), Some(&mut offset), left)?
            }
            Some(Piece::Bytes(bytes)) => send(stream, &bytes[self.piece_sent as usize..][..left], SendFlags::NOSIGNAL)?,
            Some(Piece::Zero(_)) => send(stream, &ZEROS[..left.min(ZEROS.len())], SendFlags::NOSIGNAL)?,
            None => 0,
        };
        if sent == 0 && left > 0 {
            // Only a source file that was cut short can end before its length.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.piece_sent += sent as u64;
        Ok(sent)
    }

    /// Seals a batch, then makes one system call for at most so many bytes; returns the bytes sent.
    fn sealed_step(&mut self, stream: &TcpStream, sealer: &mut Sealer, most: usize) -> io::Result<usize> {
        if sealer.waiting().is_empty() {
            sealer.seal_with(self.left().min(SEALED_AT_ONCE), |room| self.fill(room))?;
        }
        let waiting = sealer.waiting();
        let sent = send(stream, &waiting[..waiting.len().min(most)], SendFlags::NOSIGNAL)?;
        sealer.sent(sent);
        Ok(sent)
    }

    /// Bytes that are neither in the kernel nor sealed.
    fn left(&self) -> usize {
        self.head.len() - self.head_sent + (self.payload_bytes() - self.piece_sent) as usize
    }

    /// Puts the next bytes where they are sealed; there are as many.
    fn fill(&mut self, room: &mut [u8]) -> io::Result<()> {
        let (head, mut room) = room.split_at_mut(room.len().min(self.head.len() - self.head_sent));
        head.copy_from_slice(&self.head[self.head_sent..][..head.len()]);
        self.head_sent += head.len();
        while !room.is_empty() {
            let read = match &self.piece {
                Some(Piece::File(piece)) => {
                    retry_on_intr(|| pread(piece.fd(), &mut *room, piece.offset() + self.piece_sent))?
                }
                Some(Piece::Bytes(bytes)) => {
                    room.copy_from_slice(&bytes[self.piece_sent as usize..][..room.len()]);
                    room.len()
                }
                Some(Piece::Zero(_)) => {
                    room.fill(0);
                    room.len()
                }
                None => 0,
            };
            if read == 0 {
                // Only a source file that was cut short can end before its length.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.piece_sent += read as u64;
            room = &mut room[read..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// With a little socket buffer, so that the kernel takes a part as well.
    fn pair() -> (TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sending = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&sending, 8 << 10).unwrap();
        sending.set_nonblocking(true).unwrap();
        (TcpStream::from_std(sending).unwrap(), listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn a_chunk_in_memory_goes_whole_in_whatever_parts() {
        let bytes: Bytes = (0..300_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
        let header = FrameHeader::data(7, bytes.len() as u32, Duration::ZERO).encode();
        for part in [1, header.len() as u64 - 1, header.len() as u64, header.len() as u64 + 1, 5000, u64::MAX] {
            let (stream, mut receiving) = pair();
            let length = header.len() + bytes.len();
            let received = std::thread::spawn(move || {
                let mut received = vec![0; length];
                receiving.read_exact(&mut received).map(|()| received).unwrap()
            });
            let mut outgoing = Outgoing::chunk(7, Piece::Bytes(bytes.clone()), Duration::ZERO);
            // Small parts for the beginning, where header and chunk meet, and then all.
            let mut parts = std::iter::repeat_n(part, 40).chain(std::iter::repeat(u64::MAX));
            let mut allowed = 0;
            loop {
                match outgoing.send(&stream, None, &mut allowed).unwrap() {
                    Sent::All => break,
                    Sent::Some => stream.writable().await.unwrap(),
                    Sent::Allowed => allowed = parts.next().unwrap(),
                }
            }
            assert_eq!(outgoing.sent_bytes(), length as u64);
            let received = received.join().unwrap();
            assert!(received[..header.len()] == header && received[header.len()..] == bytes[..], "parts of {part}");
        }
    }
}
