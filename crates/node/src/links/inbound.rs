//! Answers as they come in on a lane: frames cut out of a stream, payloads read straight into a chunk's
//! buffer. Reads what is there and never waits; bounded by one chunk.

use std::io;
use tokio::net::TcpStream;
use vfield_core::wire::{FrameHeader, HEADER, Kind, WireError};

/// What came.
#[derive(Debug)]
pub enum Came {
    /// A whole frame: its header; its payload is [`Inbound::payload`].
    Frame(FrameHeader),
    /// Nothing more for now; true if some bytes did come.
    Nothing(bool),
}

/// Why a lane ends.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection ended or failed.
    #[error("connection lost")]
    Lost,
    /// The peer broke the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// A stream of frames, cut as it comes.
pub struct Inbound {
    head: [u8; HEADER],
    got_head: usize,
    header: Option<FrameHeader>,
    /// Reused from frame to frame; as long as the longest so far.
    payload: Vec<u8>,
    got_payload: usize,
}

impl Inbound {
    /// Nothing has come.
    pub const fn new() -> Self {
        Self { head: [0; HEADER], got_head: 0, header: None, payload: Vec::new(), got_payload: 0 }
    }

    /// The payload of the frame that [`Inbound::read`] returned last.
    pub fn payload(&self) -> &[u8] {
        &self.payload[..self.got_payload]
    }

    /// Reads what is there, up to the end of a frame.
    pub fn read(&mut self, stream: &TcpStream) -> Result<Came, Broken> {
        let mut some = false;
        let header = loop {
            if let Some(header) = self.header {
                break header;
            }
            match fill(stream, &mut self.head, &mut self.got_head)? {
                Fill::Empty => return Ok(Came::Nothing(some)),
                Fill::Some => some = true,
                Fill::Full => {
                    let header = FrameHeader::decode(&self.head)?;
                    if !matches!(
                        header.kind,
                        Kind::Data | Kind::Refuse | Kind::Redirect | Kind::Synced | Kind::Patience
                    ) {
                        return Err(WireError::Field("kind").into());
                    }
                    let length = header.length as usize;
                    if self.payload.len() < length {
                        self.payload.resize(length, 0);
                    }
                    self.got_payload = 0;
                    self.header = Some(header);
                }
            }
        };
        loop {
            let length = header.length as usize;
            match fill(stream, &mut self.payload[..length], &mut self.got_payload)? {
                Fill::Empty => return Ok(Came::Nothing(some)),
                Fill::Some => some = true,
                Fill::Full => {
                    (self.header, self.got_head) = (None, 0);
                    return Ok(Came::Frame(header));
                }
            }
        }
    }
}

enum Fill {
    Full,
    Some,
    Empty,
}

fn fill(stream: &TcpStream, buffer: &mut [u8], got: &mut usize) -> Result<Fill, Broken> {
    if *got == buffer.len() {
        return Ok(Fill::Full);
    }
    match stream.try_read(&mut buffer[*got..]) {
        Ok(0) => Err(Broken::Lost),
        Ok(read) => {
            *got += read;
            Ok(if *got == buffer.len() { Fill::Full } else { Fill::Some })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Fill::Empty),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Fill::Some),
        Err(_) => Err(Broken::Lost),
    }
}
