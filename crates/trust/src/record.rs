//! TLS 1.3 records (RFC 8446, section 5) of application data, sealed and opened where they lie.
//!
//! rustls does the handshake and hands over the keys of both directions, as it does for a kernel that knows
//! TLS; here is what such a kernel would do with them. Its own record layer would copy each chunk three to four times,
//! this one copies it once on the way out and not at all on the way in. Padding is understood and not sent. Neither
//! side changes keys: a connection that has used one up ends, and another is made.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use std::ops::Range;

/// Type, version, length.
pub const HEAD: usize = 5;
/// The inner type and the tag.
const TAIL: usize = 1 + TAG;
const TAG: usize = 16;
/// What a record adds to its content.
pub const OVERHEAD: usize = HEAD + TAIL;
/// Most content of a record.
pub const CONTENT_MAX: usize = 1 << 14;
/// Longest record of the protocol without its head: content, inner type and up to 255 bytes of expansion.
pub const RECORD_MAX: usize = CONTENT_MAX + 256;
/// What the head says that a sealed record is: application data of TLS 1.2, for the sake of what is in between.
const SEALED: [u8; 3] = [23, 3, 3];
/// Inner types: data, and the word with which a connection ends.
const DATA: u8 = 23;
const ALERT: u8 = 21;
/// Most records under one key: beyond, AES-GCM's margin shrinks (RFC 8446, section 5.5). 256 GiB of chunks.
const RECORDS_MAX: u64 = 1 << 24;

/// Why a stream cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not a record, or one of an impossible length.
    #[error("not a TLS record")]
    NotARecord,
    /// Damaged on the way, or not from whom the keys were agreed with.
    #[error("a record with a broken seal")]
    Broken,
    /// Neither data nor the end.
    #[error("a record of kind {0}")]
    Kind(u8),
    /// The other side has ended it.
    #[error("ended by the other side")]
    Ended,
    /// A key has sealed as much as it may.
    #[error("the keys are used up")]
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

/// A key with its place in the sequence.
struct Key {
    key: LessSafeKey,
    iv: [u8; 12],
    records: u64,
}

impl Key {
    fn new((records, secrets): (u64, ConnectionTrafficSecrets)) -> Self {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => unreachable!("no other suites are offered"),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).expect("a key of its algorithm's length");
        let iv = iv.as_ref().try_into().expect("TLS 1.3 has one length for all");
        Self { key: LessSafeKey::new(key), iv, records }
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

/// Seals what goes out, and keeps it until it has gone.
pub struct Sealer {
    key: Key,
    /// As long as what was sealed at once at most; sealed bytes lie in `waiting`.
    buffer: Vec<u8>,
    waiting: Range<usize>,
}

impl Sealer {
    pub(crate) fn new(secrets: (u64, ConnectionTrafficSecrets)) -> Self {
        Self { key: Key::new(secrets), buffer: Vec::new(), waiting: 0..0 }
    }

    /// Sealed bytes that have not gone yet.
    pub fn waiting(&self) -> &[u8] {
        &self.buffer[self.waiting.clone()]
    }

    /// So many of them have gone.
    pub fn sent(&mut self, bytes: usize) {
        self.waiting.start += bytes;
        assert!(self.waiting.start <= self.waiting.end, "more has gone than there was");
        if self.waiting.is_empty() {
            self.waiting = 0..0;
        }
    }

    /// Gives the memory back that nothing lies in.
    pub fn rest(&mut self) {
        if self.waiting.is_empty() {
            self.buffer = Vec::new();
        }
    }

    /// Seals `content` behind what waits.
    pub fn seal(&mut self, mut content: &[u8]) -> Result<(), RecordError> {
        let length = content.len();
        self.seal_with(length, |room| {
            let (now, later) = content.split_at(room.len());
            room.copy_from_slice(now);
            content = later;
            Ok::<(), RecordError>(())
        })
    }

    /// Seals `length` bytes behind what waits; `fill` puts them, in order, where they are sealed. After an error of
    /// `fill` the stream cannot go on.
    pub fn seal_with<E: From<RecordError>>(
        &mut self,
        length: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = self.waiting.end + length + length.div_ceil(CONTENT_MAX) * OVERHEAD;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        let mut left = length;
        while left > 0 {
            let content = left.min(CONTENT_MAX);
            let record = &mut self.buffer[self.waiting.end..][..content + OVERHEAD];
            let (record_head, body) = record.split_at_mut(HEAD);
            record_head.copy_from_slice(&head(content + TAIL));
            let (inner, tag) = body.split_at_mut(content + 1);
            fill(&mut inner[..content])?;
            inner[content] = DATA;
            let nonce = self.key.nonce()?;
            let sealed = self.key.key.seal_in_place_separate_tag(nonce, Aad::from(&*record_head), inner);
            tag.copy_from_slice(sealed.expect("a record is within every algorithm's bounds").as_ref());
            self.waiting.end += content + OVERHEAD;
            left -= content;
        }
        Ok(())
    }
}

/// Opens what comes in.
pub struct Opener {
    key: Key,
}

impl Opener {
    pub(crate) fn new(secrets: (u64, ConnectionTrafficSecrets)) -> Self {
        Self { key: Key::new(secrets) }
    }

    /// Opens the record at `buffer[record]`, which is whole, and puts its content at the front of `buffer`; returns the
    /// content's length.
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

/// At least so many bytes of records are needed for so much content.
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

/// A record of the handshake, whatever its kind, as long as it is one: its length with its head.
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
        let secrets = || {
            let (key, iv) = (AeadKey::from([3; 32]), Iv::from([5; 12]));
            (records, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv })
        };
        (Sealer::new(secrets()), Opener::new(secrets()))
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

    #[test]
    fn a_key_ends_before_it_is_worn_out() {
        let (mut sealer, _) = pair(RECORDS_MAX - 2);
        assert_eq!(sealer.seal(&[1; CONTENT_MAX * 2]), Ok(()));
        assert_eq!(sealer.seal(&[1]), Err(RecordError::WornOut));
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
