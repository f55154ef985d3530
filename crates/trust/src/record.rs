//! TLS 1.3 records (RFC 8446, section 5) of application data, sealed and opened in place.
//!
//! rustls does the handshake and hands over the keys of both directions, as it does for a kernel
//! with TLS. This module does that kernel's part. The record layer of rustls would copy each chunk
//! three to four times. This one copies it once on the way out and not at all on the way in.
//! Padding is accepted and not sent. Each side replaces its sealing key before that is worn out,
//! and announces it (section 4.6.3); the connection goes on. Neither asks the other to: each counts
//! for itself.

use crate::traffic::{IV, Traffic};
use ring::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce};
use rustls::ConnectionTrafficSecrets;
use std::ops::Range;

/// Type, version, length.
pub const HEAD: usize = 5;
/// The inner type and the tag.
const TAIL: usize = 1 + TAG;
const TAG: usize = 16;
/// Bytes that a record adds to its content.
pub const OVERHEAD: usize = HEAD + TAIL;
/// Most content of a record.
pub const CONTENT_MAX: usize = 1 << 14;
/// Longest record of the protocol without its head: content, inner type and up to 255 bytes of
/// expansion.
pub const RECORD_MAX: usize = CONTENT_MAX + 256;
/// The head of a sealed record: application data of TLS 1.2, for the sake of middleboxes.
const SEALED: [u8; 3] = [23, 3, 3];
/// Inner types: data, the alert that ends a connection, and handshake messages.
const DATA: u8 = 23;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// Key update, of one byte: the other side need not do the same.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
/// Most records under one key: beyond, AES-GCM's margin shrinks (RFC 8446, section 5.5). 256 GiB of
/// chunks.
const RECORDS_MAX: u64 = 1 << 24;
/// Records under a key that this side seals with, its farewell among them. In a program that is
/// built for tests a MiB, so that all of them meet it.
const RECORDS_SEALED: u64 = if cfg!(debug_assertions) { 64 } else { RECORDS_MAX };
/// Fewest records opened with a key before its replacement. An earlier one wastes the receiver's
/// time, which is that of ten small records for each new key.
const RECORDS_OPENED_MIN: u64 = 32;

const _: () = assert!(RECORDS_OPENED_MIN <= RECORDS_SEALED && RECORDS_SEALED <= RECORDS_MAX);

/// Why a stream cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not a record, or one of an impossible length.
    #[error("not a TLS record")]
    NotARecord,
    /// It is damaged, or not from the other side of the handshake.
    #[error("a record with a broken seal")]
    Broken,
    /// Neither data nor the end.
    #[error("a record of kind {0}")]
    Kind(u8),
    /// The other side has ended it.
    #[error("ended by the other side")]
    Ended,
    /// The other side has sealed more with a key than it may.
    #[error("the key is used up")]
    WornOut,
}

impl From<RecordError> for std::io::Error {
    fn from(error: RecordError) -> Self {
        let kind = match error {
            RecordError::Ended | RecordError::WornOut => std::io::ErrorKind::UnexpectedEof,
            _ => std::io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// A key with its place in the sequence, and what its successor is made of.
struct Key {
    algorithm: &'static Algorithm,
    traffic: Traffic,
    key: LessSafeKey,
    iv: [u8; IV],
    records: u64,
}

impl Key {
    /// The cipher of a suite after this many records. The keys that rustls made of the same secret
    /// tell the suite.
    fn new((records, suite): (u64, ConnectionTrafficSecrets), traffic: Traffic) -> Self {
        let algorithm = match suite {
            ConnectionTrafficSecrets::Aes128Gcm { .. } => &AES_128_GCM,
            ConnectionTrafficSecrets::Chacha20Poly1305 { .. } => &CHACHA20_POLY1305,
            _ => unreachable!("no other suites are offered"),
        };
        Self { algorithm, key: traffic.key(algorithm), iv: traffic.iv(), traffic, records }
    }

    /// Gives way to its successor.
    fn advance(&mut self) {
        self.traffic.advance();
        (self.key, self.iv, self.records) = (self.traffic.key(self.algorithm), self.traffic.iv(), 0);
    }

    /// The nonce of the next record; a number that is never used twice.
    fn nonce(&mut self) -> Result<Nonce, RecordError> {
        if self.records >= RECORDS_MAX {
            return Err(RecordError::WornOut);
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.records.to_be_bytes()) {
            *byte ^= number;
        }
        self.records += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

fn head(length: usize) -> [u8; HEAD] {
    let [a, b] = u16::try_from(length).expect("bounded by RECORD_MAX").to_be_bytes();
    let [kind, major, minor] = SEALED;
    [kind, major, minor, a, b]
}

/// Seals outgoing bytes, and keeps them until they are sent.
pub struct Sealer {
    key: Key,
    /// Records that each key seals, its farewell among them.
    records_max: u64,
    /// As long as the most bytes sealed at once; the sealed bytes are at `waiting`.
    buffer: Vec<u8>,
    waiting: Range<usize>,
}

impl Sealer {
    pub(crate) fn new(suite: (u64, ConnectionTrafficSecrets), traffic: Traffic) -> Self {
        Self { key: Key::new(suite, traffic), records_max: RECORDS_SEALED, buffer: Vec::new(), waiting: 0..0 }
    }

    /// Sealed bytes that have not gone yet.
    pub fn waiting(&self) -> &[u8] {
        &self.buffer[self.waiting.clone()]
    }

    /// Notes that `bytes` of them are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.waiting.start += bytes;
        assert!(self.waiting.start <= self.waiting.end, "more has gone than there was");
        if self.waiting.is_empty() {
            self.waiting = 0..0;
        }
    }

    /// Frees unused memory.
    pub fn rest(&mut self) {
        if self.waiting.is_empty() {
            self.buffer = Vec::new();
        }
    }

    /// Seals `content` behind the waiting bytes.
    pub fn seal(&mut self, mut content: &[u8]) -> Result<(), RecordError> {
        let length = content.len();
        self.seal_with(length, |room| {
            let (now, later) = content.split_at(room.len());
            room.copy_from_slice(now);
            content = later;
            Ok::<(), RecordError>(())
        })
    }

    /// Seals `length` bytes behind the waiting ones; `fill` writes them, in order, where they are
    /// sealed. After an error of `fill` the stream cannot go on.
    pub fn seal_with<E: From<RecordError>>(
        &mut self,
        length: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = self.waiting.end + length + length.div_ceil(CONTENT_MAX) * OVERHEAD + self.updates_bytes(length);
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        let mut left = length;
        while left > 0 {
            if self.key.records + 1 >= self.records_max {
                let farewell = |room: &mut [u8]| {
                    room.copy_from_slice(&KEY_UPDATE);
                    Ok::<(), RecordError>(())
                };
                self.record(HANDSHAKE, KEY_UPDATE.len(), farewell)?;
                self.key.advance();
            }
            let content = left.min(CONTENT_MAX);
            self.record(DATA, content, &mut fill)?;
            left -= content;
        }
        Ok(())
    }

    /// Seals one record, for which there is room; `fill` puts its content where it is sealed.
    fn record<E: From<RecordError>>(
        &mut self,
        kind: u8,
        content: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let record = &mut self.buffer[self.waiting.end..][..content + OVERHEAD];
        let (record_head, body) = record.split_at_mut(HEAD);
        record_head.copy_from_slice(&head(content + TAIL));
        let (inner, tag) = body.split_at_mut(content + 1);
        fill(&mut inner[..content])?;
        inner[content] = kind;
        let nonce = self.key.nonce()?;
        let sealed = self.key.key.seal_in_place_separate_tag(nonce, Aad::from(&*record_head), inner);
        tag.copy_from_slice(sealed.expect("a record is within every algorithm's bounds").as_ref());
        self.waiting.end += content + OVERHEAD;
        Ok(())
    }

    /// Most bytes of key updates among the records of `length` bytes of content.
    fn updates_bytes(&self, length: usize) -> usize {
        let records = self.key.records + length.div_ceil(CONTENT_MAX) as u64;
        (records / (self.records_max - 1)) as usize * (KEY_UPDATE.len() + OVERHEAD)
    }
}

/// Opens incoming records.
pub struct Opener {
    key: Key,
}

impl Opener {
    pub(crate) fn new(suite: (u64, ConnectionTrafficSecrets), traffic: Traffic) -> Self {
        Self { key: Key::new(suite, traffic) }
    }

    /// Opens the complete record at `buffer[record]`, and puts its content at the front of
    /// `buffer`. Returns the content's length, which is 0 for a key update.
    pub fn open(&mut self, buffer: &mut [u8], record: Range<usize>) -> Result<usize, RecordError> {
        let (first, body) = (record.start, record.start + HEAD);
        let record_head: [u8; HEAD] = buffer[first..body].try_into().expect("a slice of that length");
        let nonce = self.key.nonce()?;
        let opened = self.key.key.open_within(nonce, Aad::from(&record_head), &mut buffer[..record.end], body..);
        let inner = opened.map_err(|_| RecordError::Broken)?;
        // The last byte that is not zero is the type; zeros behind it are padding.
        let length = inner.iter().rposition(|byte| *byte != 0).ok_or(RecordError::Broken)?;
        match inner[length] {
            DATA => Ok(length),
            ALERT => Err(RecordError::Ended),
            HANDSHAKE if inner[..length] == KEY_UPDATE && self.key.records >= RECORDS_OPENED_MIN => {
                self.key.advance();
                Ok(0)
            }
            other => Err(RecordError::Kind(other)),
        }
    }
}

/// Length of the sealed record that begins so, its head included.
pub fn length(head: &[u8; HEAD]) -> Result<usize, RecordError> {
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let possible = head[..3] == SEALED && (TAIL..=RECORD_MAX).contains(&length);
    if possible { Ok(HEAD + length) } else { Err(RecordError::NotARecord) }
}

/// Fewest bytes of records for `content` bytes.
pub const fn sealed_length(content: usize) -> usize {
    content + content.div_ceil(CONTENT_MAX) * OVERHEAD
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

/// The length, with its head, of a handshake record of any kind.
pub(crate) fn handshake_length(head: &[u8; HEAD]) -> Result<usize, RecordError> {
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let possible = (20..=23).contains(&head[0]) && head[1] == 3 && (1..=RECORD_MAX).contains(&length);
    if possible { Ok(HEAD + length) } else { Err(RecordError::NotARecord) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::crypto::cipher::{AeadKey, Iv};

    fn pair(records: u64) -> (Sealer, Opener) {
        // Only their kind matters: the sealing keys are made of the secret.
        let (key, iv) = (|| AeadKey::from([0; 32]), || Iv::from([0; 12]));
        let suite = || (records, ConnectionTrafficSecrets::Chacha20Poly1305 { key: key(), iv: iv() });
        let traffic = || Traffic::new(&[3; 32]).unwrap();
        (Sealer::new(suite(), traffic()), Opener::new(suite(), traffic()))
    }

    /// Opens all records of a stream, one after the other, in place.
    fn open_all(opener: &mut Opener, stream: &mut [u8]) -> Result<Vec<u8>, RecordError> {
        let (mut end, mut at) = (0, 0);
        while at < stream.len() {
            let head = stream[at..].first_chunk().ok_or(RecordError::NotARecord)?;
            let record = at - end..at - end + length(head)?;
            let next = end + record.end;
            if next > stream.len() {
                return Err(RecordError::NotARecord);
            }
            end += opener.open(&mut stream[end..], record)?;
            at = next;
        }
        Ok(stream[..end].to_vec())
    }

    #[test]
    fn every_changed_bit_is_found_and_order_matters() {
        let (mut sealer, _) = pair(0);
        sealer.seal(b"a word").unwrap();
        let first = sealer.waiting().to_vec();
        sealer.seal(b"another").unwrap();
        let both = sealer.waiting().to_vec();
        assert_eq!(open_all(&mut pair(0).1, &mut both.clone()).unwrap(), b"a wordanother");
        for bit in 0..first.len() * 8 {
            let mut wrong = first.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(open_all(&mut pair(0).1, &mut wrong).is_err(), "bit {bit}");
        }
        let mut swapped = [&both[first.len()..], &first].concat();
        assert_eq!(open_all(&mut pair(0).1, &mut swapped), Err(RecordError::Broken));
        let mut twice = [&first[..], &first].concat();
        assert_eq!(open_all(&mut pair(0).1, &mut twice), Err(RecordError::Broken));
    }

    /// The stream of this many bytes at the other end, sealed in parts with keys that last for
    /// `records_max` records.
    fn through(records_max: u64, length: usize, part: usize) -> Result<bool, RecordError> {
        let (mut sealer, mut opener) = pair(0);
        sealer.records_max = records_max;
        let plain: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        for part in plain.chunks(part) {
            sealer.seal(part)?;
        }
        let mut stream = sealer.waiting().to_vec();
        Ok(open_all(&mut opener, &mut stream)? == plain)
    }

    #[test]
    fn megabytes_go_through_under_keys_that_last_for_one() {
        for part in [1000, CONTENT_MAX, 3 * CONTENT_MAX + 1, 5 << 20] {
            assert_eq!(through(64, 5 << 20, part), Ok(true), "parts of {part}");
        }
        // A farewell goes before a record, never behind the last.
        let (mut sealer, _) = pair(0);
        sealer.records_max = 64;
        sealer.seal(&[1; 63 * CONTENT_MAX]).unwrap();
        assert_eq!(sealer.waiting().len(), sealed_length(63 * CONTENT_MAX));
        sealer.seal(&[1]).unwrap();
        let farewell = KEY_UPDATE.len() + OVERHEAD;
        assert_eq!(sealer.waiting().len(), sealed_length(63 * CONTENT_MAX) + farewell + sealed_length(1));
    }

    #[test]
    fn a_key_that_was_replaced_seals_and_opens_nothing_more() {
        let (mut sealer, mut opener) = pair(0);
        sealer.records_max = 64;
        sealer.seal(&[1; 63 * CONTENT_MAX]).unwrap();
        open_all(&mut opener, &mut sealer.waiting().to_vec()).unwrap();
        let mut late = Opener { key: opener.key };
        sealer.sent(sealer.waiting().len());
        sealer.seal(b"farewell before this").unwrap();
        let all = sealer.waiting().to_vec();
        let farewell = KEY_UPDATE.len() + OVERHEAD;
        assert_eq!(open_all(&mut late, &mut all.clone()).unwrap(), b"farewell before this");
        // A repeated farewell is one of a key that is gone.
        assert_eq!(open_all(&mut late, &mut all[..farewell].to_vec()), Err(RecordError::Broken));
    }

    #[test]
    fn keys_that_change_too_often_or_too_rarely_end_the_connection() {
        assert_eq!(through(RECORDS_OPENED_MIN, 1 << 20, CONTENT_MAX), Ok(true));
        assert_eq!(through(RECORDS_OPENED_MIN - 1, 1 << 20, CONTENT_MAX), Err(RecordError::Kind(HANDSHAKE)));
        let (mut sealer, mut opener) = pair(RECORDS_MAX - 1);
        sealer.records_max = 2 * RECORDS_MAX;
        sealer.seal(b"the last").unwrap();
        let last = sealer.waiting().to_vec();
        assert_eq!(open_all(&mut opener, &mut last.clone()).unwrap(), b"the last");
        assert_eq!(sealer.seal(b"x"), Err(RecordError::WornOut));
        assert_eq!(open_all(&mut opener, &mut last.clone()), Err(RecordError::WornOut));
    }

    /// The counters begin shortly before 256 GiB of chunks. The key's successor comes in the stream
    /// itself, so nothing waits for an answer.
    #[test]
    fn at_256_gib_the_next_record_has_a_new_key() {
        assert_eq!(RECORDS_MAX * CONTENT_MAX as u64, 256 << 30);
        let (mut sealer, mut opener) = pair(RECORDS_MAX - 40);
        sealer.records_max = RECORDS_MAX;
        let mut extra = Vec::new();
        for number in 0..200_u8 {
            sealer.seal(&[number; CONTENT_MAX]).unwrap();
            let mut stream = sealer.waiting().to_vec();
            sealer.sent(stream.len());
            extra.push(stream.len() - sealed_length(CONTENT_MAX));
            assert_eq!(open_all(&mut opener, &mut stream).unwrap(), [number; CONTENT_MAX]);
        }
        let farewell = KEY_UPDATE.len() + OVERHEAD;
        assert_eq!((extra.remove(39), extra.iter().sum::<usize>()), (farewell, 0), "the 40th record changes the key");
        assert_eq!((sealer.key.records, opener.key.records), (161, 161));
    }

    #[test]
    fn memory_is_given_back_when_all_has_gone() {
        let (mut sealer, _) = pair(0);
        sealer.seal(&[1; 100_000]).unwrap();
        let length = sealer.waiting().len();
        assert_eq!(length, sealed_length(100_000));
        sealer.sent(length - 1);
        sealer.rest();
        assert_eq!(sealer.waiting().len(), 1);
        sealer.sent(1);
        sealer.rest();
        assert_eq!(sealer.buffer.capacity(), 0);
    }

    proptest! {
        #[test]
        fn streams_come_out_as_they_went_in(parts in prop::collection::vec(0_usize..40_000, 0..6)) {
            let (mut sealer, mut opener) = pair(0);
            let mut plain = Vec::new();
            for (number, length) in parts.iter().enumerate() {
                let part: Vec<u8> = (0..*length).map(|at| (at * 7 + number) as u8).collect();
                sealer.seal(&part).unwrap();
                plain.extend(part);
            }
            let mut stream = sealer.waiting().to_vec();
            prop_assert_eq!(open_all(&mut opener, &mut stream).unwrap(), plain);
        }

        #[test]
        fn any_bytes_are_records_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = open_all(&mut pair(0).1, &mut bytes);
        }
    }
}
