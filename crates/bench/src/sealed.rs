//! A blocking stream to a node of a closed field: the handshake, then bytes under seal.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use vfield_trust::handshake::{Channel, Handshake};
use vfield_trust::{KeyRing, record};

/// Bytes read from the socket at once: four records.
const READ: usize = 64 << 10;

/// A sealed TCP stream to a node of a closed field.
pub struct Sealed {
    stream: TcpStream,
    channel: Channel,
    /// Opened content, and the bytes taken of it.
    content: Vec<u8>,
    taken: usize,
    /// What lacks the rest of its record.
    sealed: Vec<u8>,
}

impl Sealed {
    /// Proves to be a member, with the key that is spoken; the stream must block until then.
    pub fn start(mut stream: TcpStream, keys: &KeyRing) -> io::Result<Self> {
        let mut handshake = Handshake::dial(keys.spoken());
        let refused = |error| io::Error::new(ErrorKind::PermissionDenied, error);
        loop {
            stream.write_all(&handshake.output())?;
            if handshake.is_done() {
                let channel = handshake.finish().map_err(refused)?;
                return Ok(Self { stream, channel, content: Vec::new(), taken: 0, sealed: Vec::new() });
            }
            let mut head = [0; record::HEAD];
            stream.read_exact(&mut head)?;
            let mut record = head.to_vec();
            record.resize(Handshake::record_length(&head).map_err(refused)?, 0);
            stream.read_exact(&mut record[record::HEAD..])?;
            handshake.receive(&record).map_err(refused)?;
        }
    }

    /// A secret of this channel that only its two ends know.
    pub const fn binding(&self) -> [u8; 32] {
        self.channel.binding
    }

    /// Opens the record in front, if it is whole.
    fn open(&mut self) -> io::Result<bool> {
        let Some(head) = self.sealed.first_chunk() else { return Ok(false) };
        let length = record::length(head)?;
        if self.sealed.len() < length {
            return Ok(false);
        }
        let rest = self.sealed.split_off(length);
        self.content = std::mem::replace(&mut self.sealed, rest);
        let content = self.channel.opener.open(&mut self.content, 0..length)?;
        self.content.truncate(content);
        self.taken = 0;
        Ok(true)
    }
}

impl Read for Sealed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.content.len() {
            if !self.open()? {
                let before = self.sealed.len();
                self.sealed.resize(before + READ, 0);
                let read = self.stream.read(&mut self.sealed[before..]);
                self.sealed.truncate(before + read.as_ref().unwrap_or(&0));
                if read? == 0 {
                    return Ok(0);
                }
            }
        }
        let part = buffer.len().min(self.content.len() - self.taken);
        buffer[..part].copy_from_slice(&self.content[self.taken..][..part]);
        self.taken += part;
        Ok(part)
    }
}

impl Write for Sealed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.channel.sealer.seal(bytes)?;
        let sent = self.channel.sealer.waiting().len();
        self.stream.write_all(self.channel.sealer.waiting())?;
        self.channel.sealer.sent(sent);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
