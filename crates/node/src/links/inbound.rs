//! The answers on a lane: a stream cut into frames, in one buffer that has each payload in one
//! piece. It reads the available bytes and never waits.
//!
//! A chunk comes in many packets, and a wake-up for each costs more than all other work on it. So
//! while a payload is under way, the low-water mark of the socket is the rest of it
//! ([`crate::low_water`]). One read takes that rest with the header that follows. Invariant: the
//! mark is never above the missing bytes of the frame under way. The kernel acknowledges bytes
//! below a mark, and ends the wait when no more fit. The buffer is bounded by one frame and a
//! header, and a record under seal.

use crate::buffers::{Buffer, Buffers};
use crate::incoming::{FIRST, Incoming};
use crate::low_water;
use std::sync::Arc;
use tokio::net::TcpStream;
use vfield_core::chunk::ChunkSize;
use vfield_core::wire::{FrameHeader, HEADER, Kind, WireError};

/// A rest below this is not worth a mark: it comes in one or two packets.
const MARK_MIN: usize = 4 << 10;

/// A complete answer.
#[derive(Debug)]
pub enum Came {
    /// A whole frame: its header; its payload is [`Inbound::payload`] until the next read.
    Frame(FrameHeader),
    /// Nothing more for now; true if some bytes did come.
    Nothing(bool),
    /// The allowance is used up; more may have come.
    Allowed,
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
    incoming: Incoming,
    /// Header of the frame in front, once it is all here.
    header: Option<FrameHeader>,
    /// Length of the frame in front if it has been given out.
    given: usize,
    /// The socket's low-water mark.
    mark: usize,
}

impl Inbound {
    /// The frames of a stream of which nothing was taken yet.
    pub const fn new(incoming: Incoming) -> Self {
        Self { incoming, header: None, given: 0, mark: 1 }
    }

    /// The payload of the frame that [`Inbound::read`] returned last.
    pub fn payload(&self) -> &[u8] {
        &self.incoming.content()[HEADER..self.given]
    }

    /// The payload of the frame that [`Inbound::read`] returned last, in memory of its own.
    pub fn detach(&mut self, buffers: &Arc<Buffers>) -> Buffer {
        let length = self.payload().len();
        // A long frame may have left much more room than a chunk needs.
        if self.incoming.memory_bytes() > length + length / 4 + FIRST {
            return buffers.copy(self.payload());
        }
        let (memory, frame) = self.incoming.detach(self.given, buffers.take(length + FIRST));
        self.given = 0;
        buffers.own(memory, frame.start + HEADER..frame.end)
    }

    /// True if the socket does not tell of every byte that comes.
    pub const fn is_quiet(&self) -> bool {
        self.mark > 1
    }

    /// True if a part of a frame has come.
    pub fn is_under_way(&self) -> bool {
        self.header.is_some() || self.incoming.content().len() > self.given
    }

    /// Reads the available bytes, up to the end of a frame. With `unasked`, reads even though the
    /// socket has not reported data.
    ///
    /// For each header of an unusually long chunk, `longest` gives the length of the longest
    /// possible one. It begins no read when `allowed` bytes have come, and counts them down; the
    /// last read may exceed it by a record of the seal.
    pub fn read(
        &mut self,
        stream: &TcpStream,
        unasked: bool,
        longest: impl Fn() -> u64,
        allowed: &mut u64,
    ) -> Result<Came, Broken> {
        self.incoming.consume(std::mem::take(&mut self.given));
        let (mut some, mut emptied) = (false, false);
        loop {
            let missing = self.missing(&longest)?;
            if let (Some(header), 0) = (self.header, missing) {
                self.header = None;
                self.given = HEADER + header.length as usize;
                return Ok(Came::Frame(header));
            }
            if emptied {
                self.set_mark(stream, missing);
                return Ok(Came::Nothing(some));
            }
            if *allowed == 0 {
                return Ok(Came::Allowed);
            }
            // The rest of a frame, and the header of the next.
            let wanted = self.header.is_some().then_some(missing + HEADER);
            let wanted = wanted.map(|wanted| wanted.min(usize::try_from(*allowed).unwrap_or(usize::MAX)));
            let taken = self.incoming.read(stream, wanted, unasked).map_err(|_| Broken::Lost)?;
            *allowed = allowed.saturating_sub(taken.bytes as u64);
            some |= taken.bytes > 0;
            emptied = taken.all;
        }
    }

    /// The missing bytes of the frame in front, as far as they are known.
    fn missing(&mut self, longest: impl Fn() -> u64) -> Result<usize, Broken> {
        let came = self.incoming.content();
        if let (None, Some(head)) = (self.header, came.first_chunk()) {
            let header = answer(head)?;
            let length = u64::from(header.length);
            if header.is_chunk() && length > ChunkSize::DEFAULT.bytes() && length > longest() {
                return Err(WireError::Length { length: header.length, max: longest() as u32 }.into());
            }
            self.header = Some(header);
        }
        let length = HEADER + self.header.map_or(0, |header| header.length as usize);
        Ok(length.saturating_sub(came.len()))
    }

    /// Sets the low-water mark to the end of the frame.
    fn set_mark(&mut self, stream: &TcpStream, missing: usize) {
        let lacking = self.incoming.lacking(missing);
        let mark = if lacking >= MARK_MIN { lacking } else { 1 };
        if mark != self.mark {
            self.mark = mark;
            low_water::wake_reader_at(stream, mark);
        }
    }
}

/// Reads the header of an answer.
fn answer(head: &[u8; HEADER]) -> Result<FrameHeader, WireError> {
    let header = FrameHeader::decode(head)?;
    let known = header.is_chunk()
        || matches!(header.kind, Kind::Refuse | Kind::Redirect | Kind::Synced | Kind::Patience)
        || matches!(header.kind, Kind::AdmissionList | Kind::Slice);
    // A later version may say more.
    if !known && !matches!(header.kind, Kind::Unknown(_)) {
        return Err(WireError::Field("kind"));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;
    use vfield_core::wire::Refusal;

    /// A frame with a chunk in it.
    fn data(request: u64, length: usize) -> Vec<u8> {
        let mut frame = FrameHeader::new(Kind::Data, request, length as u32).encode().to_vec();
        frame.extend((0..length).map(|at| (at as u64 * 31 + request) as u8));
        frame
    }

    /// No chunk is longer.
    const fn longest() -> u64 {
        1 << 20
    }

    /// An allowance without an end.
    const fn all() -> u64 {
        u64::MAX
    }

    async fn pair() -> (std::net::TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sending = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sending, listener.accept().await.unwrap().0)
    }

    /// The next frame, waiting for it as a lane does.
    async fn next(inbound: &mut Inbound, stream: &TcpStream) -> Vec<u8> {
        loop {
            if let Came::Frame(header) = inbound.read(stream, false, longest, &mut all()).unwrap() {
                return [&header.encode()[..], inbound.payload()].concat();
            }
            tokio::time::timeout(Duration::from_secs(20), stream.readable()).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn frames_are_cut_however_they_come() {
        let refuse = |request| FrameHeader::refuse(request, Refusal::NotHeld).encode().to_vec();
        let frames = [
            refuse(1),
            data(2, 64 << 10),
            data(3, 1),
            refuse(4),
            refuse(5),
            data(6, 1 << 20),
            data(7, 5000),
            data(8, 0),
            data(9, 64 << 10),
            data(10, 64 << 10),
            refuse(11),
        ];
        for step in [1 << 22, 65_552, 16_000, 1448, 997] {
            let (mut sending, stream) = pair().await;
            let bytes = frames.concat();
            let sender = std::thread::spawn(move || {
                for part in bytes.chunks(step) {
                    sending.write_all(part).unwrap();
                }
                sending
            });
            let mut inbound = Inbound::new(Incoming::new(None));
            for frame in &frames {
                assert!(next(&mut inbound, &stream).await == *frame, "in steps of {step}");
            }
            drop(sender.join().unwrap());
            stream.readable().await.unwrap();
            assert!(matches!(inbound.read(&stream, false, longest, &mut all()), Err(Broken::Lost)));
        }
    }

    /// A header alone does not make a node wait, with room for it, for what no image has.
    #[tokio::test]
    async fn what_is_longer_than_any_chunk_is_not_waited_for() {
        for length in [(64 << 10) + 1, 1 << 20, (1 << 20) + 1, u32::MAX] {
            let (mut sending, stream) = pair().await;
            let mut header = FrameHeader::new(Kind::Data, 1, 0).encode();
            header[4..8].copy_from_slice(&length.to_le_bytes());
            sending.write_all(&header).unwrap();
            stream.readable().await.unwrap();
            let came = Inbound::new(Incoming::new(None)).read(&stream, false, || 64 << 10, &mut all());
            assert!(matches!(came, Err(Broken::Wire(WireError::Length { .. }))), "{length} bytes: {came:?}");
        }
    }

    #[tokio::test]
    async fn a_trickling_chunk_is_seen_to_progress() {
        let (mut sending, stream) = pair().await;
        let (mut inbound, frame) = (Inbound::new(Incoming::new(None)), data(1, 64 << 10));
        sending.write_all(&frame[..20_000]).unwrap();
        stream.readable().await.unwrap();
        while !inbound.is_quiet() {
            assert!(matches!(inbound.read(&stream, false, longest, &mut all()), Ok(Came::Nothing(_))));
            tokio::task::yield_now().await;
        }
        // More bytes, fewer than awaited: no wake-up, but a read finds them.
        sending.write_all(&frame[20_000..30_000]).unwrap();
        while !matches!(inbound.read(&stream, true, longest, &mut all()), Ok(Came::Nothing(true))) {
            tokio::task::yield_now().await;
        }
        assert!(inbound.is_quiet());
        sending.write_all(&frame[30_000..]).unwrap();
        assert!(next(&mut inbound, &stream).await == frame);
    }
}
