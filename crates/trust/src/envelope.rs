//! Gossip under seal: each datagram encrypted, authentic, and accepted once.
//!
//! A process seals under a key of its own, made of the field's key and a random salt that travels
//! in the clear, and numbers its datagrams. So no number is used twice under one key, and a
//! repeated datagram is recognised. A virtual machine that is resumed twice goes on twice under one
//! salt, with the same numbers. Random bytes of each datagram keep the nonces of the two apart: of
//! 2^32 pairs one meets. Datagrams of processes before this one was started can be
//! repeated to it once each; membership takes them as old news. Strangers get no answer. Its memory
//! is bounded.
//!
//! All members have the field's key, so each can seal under the salt of another and use up its
//! numbers. A sender whose datagrams are no longer accepted draws another salt ([`Sealing::new`]).
//! Until then the possible traffic bounds the numbers ([`crate::replay`]).
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | name of the field's key |
//! | 4..12 | salt of the sender |
//! | 12..20 | number, little-endian |
//! | 20..24 | four random bytes of this datagram alone |
//! | rest | ChaCha20-Poly1305 of the datagram; the bytes before it are authentic too |

use crate::derive::{self, derive};
use crate::field_key::{FieldKey, KeyId};
use crate::key_ring::KeyRing;
use crate::replay::{NotTaken, Window};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::collections::BTreeMap;
use std::time::Duration;
use zeroize::Zeroizing;

const HEAD: usize = 24;
const TAG: usize = 16;
/// Bytes that a seal adds to a datagram.
pub const OVERHEAD: usize = HEAD + TAG;
/// Most remembered senders: a node hears few others than its partners, and all of a room while it
/// starts.
const SENDERS_MAX: usize = 4096;

/// Why a datagram is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not sealed with any key of this field.
    #[error("sealed by a stranger")]
    Stranger,
    /// Heard before, or too late to tell.
    #[error("repeated")]
    Repeated,
    /// The number is beyond the possible traffic of its sender.
    #[error("numbered beyond the possible traffic")]
    Ahead,
}

/// Random bytes that name a process.
type Salt = [u8; 8];

/// Seals outgoing datagrams.
#[derive(Debug)]
pub struct Sealing {
    id: KeyId,
    salt: Salt,
    key: LessSafeKey,
    next: u64,
}

impl Sealing {
    /// Under a key; `salt` is random and of this process alone.
    pub fn new(key: &FieldKey, salt: [u8; 8]) -> Self {
        Self { id: key.id(), salt, key: key_of(key, salt), next: 0 }
    }

    /// The sealed form; `drawn` are random bytes for it alone.
    pub fn seal(&mut self, datagram: &[u8], drawn: [u8; 4]) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        let mut out = Vec::with_capacity(datagram.len() + OVERHEAD);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&drawn);
        out.extend_from_slice(datagram);
        let (head, body) = out.split_at_mut(HEAD);
        let tag = self.key.seal_in_place_separate_tag(nonce(number, drawn), Aad::from(&*head), body);
        out.extend_from_slice(tag.expect("a datagram is within the algorithm's bounds").as_ref());
        out
    }
}

/// The state of a sender.
#[derive(Debug)]
struct Sender {
    key: LessSafeKey,
    window: Window,
    /// When it was last heard, counted in datagrams.
    heard: u64,
}

/// Opens incoming datagrams.
#[derive(Debug, Default)]
pub struct Opening {
    senders: BTreeMap<(KeyId, Salt), Sender>,
    heard: u64,
}

impl Opening {
    /// Opens a datagram in place and returns its content; `now` is a time since some fixed moment.
    pub fn open<'a>(
        &mut self,
        ring: &KeyRing,
        datagram: &'a mut [u8],
        now: Duration,
    ) -> Result<&'a [u8], EnvelopeError> {
        let (head, body) = datagram.split_at_mut_checked(HEAD).ok_or(EnvelopeError::Stranger)?;
        let (id, salt) = (KeyId(part(head, 0)), part(head, 4));
        let number = u64::from_le_bytes(part(head, 12));
        let key = ring.find(id).ok_or(EnvelopeError::Stranger)?;
        let sender = self.senders.get(&(id, salt));
        let made = sender.is_none().then(|| key_of(key, salt));
        let sealed = made.as_ref().or(sender.map(|sender| &sender.key)).expect("one of the two");
        let nonce = nonce(number, part(head, 20));
        let opened = sealed.open_in_place(nonce, Aad::from(&*head), body);
        let length = opened.map_err(|_| EnvelopeError::Stranger)?.len();
        // Only now: nobody without the key makes this grow.
        if let Some(key) = made {
            self.make_room();
            self.senders.insert((id, salt), Sender { key, window: Window::default(), heard: 0 });
        }
        self.heard += 1;
        let sender = self.senders.get_mut(&(id, salt)).expect("it is there by now");
        sender.heard = self.heard;
        match sender.window.take(number, now) {
            Ok(()) => Ok(&body[..length]),
            Err(NotTaken::Old) => Err(EnvelopeError::Repeated),
            Err(NotTaken::Ahead) => Err(EnvelopeError::Ahead),
        }
    }

    /// Forgets the senders under keys that are not in the ring any more.
    pub fn keep(&mut self, ring: &KeyRing) {
        self.senders.retain(|(id, _), _| ring.find(*id).is_some());
    }

    /// Forgets the least recently heard sender.
    fn make_room(&mut self) {
        if self.senders.len() >= SENDERS_MAX {
            let oldest = self.senders.iter().min_by_key(|(_, sender)| sender.heard).map(|(name, _)| *name);
            oldest.map(|name| self.senders.remove(&name));
        }
    }
}

fn key_of(key: &FieldKey, salt: Salt) -> LessSafeKey {
    let mut material = Zeroizing::new([0; 40]);
    material[..32].copy_from_slice(&*key.derive(derive::GOSSIP));
    material[32..].copy_from_slice(&salt);
    let own = Zeroizing::new(derive(derive::GOSSIP_OF, &*material));
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &*own).expect("a key of its algorithm's length"))
}

fn nonce(number: u64, drawn: [u8; 4]) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&drawn);
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn part<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    head[at..at + N].try_into().expect("a slice of that length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(7);

    fn key(byte: u8) -> FieldKey {
        FieldKey::new([byte; 32])
    }

    fn ring(bytes: &[u8]) -> KeyRing {
        KeyRing::new(bytes.iter().map(|byte| key(*byte))).unwrap()
    }

    #[test]
    fn members_hear_each_other_once() {
        let mut opening = Opening::default();
        let mut sealing = Sealing::new(&key(1), [7; 8]);
        let (first, second) = (sealing.seal(b"news", [0; 4]), sealing.seal(b"more news", [0; 4]));
        assert_eq!(first.len(), 4 + OVERHEAD);
        assert_eq!(opening.open(&ring(&[2, 1]), &mut second.clone(), NOW), Ok(&b"more news"[..]));
        assert_eq!(opening.open(&ring(&[2, 1]), &mut first.clone(), NOW), Ok(&b"news"[..]));
        assert_eq!(opening.open(&ring(&[2, 1]), &mut first.clone(), NOW), Err(EnvelopeError::Repeated));
        assert_eq!(opening.open(&ring(&[2]), &mut second.clone(), NOW), Err(EnvelopeError::Stranger));
        let mut other = Sealing::new(&key(1), [8; 8]);
        assert_eq!(opening.open(&ring(&[1]), &mut other.seal(b"news", [0; 4]), NOW), Ok(&b"news"[..]));
    }

    /// A virtual machine is resumed twice: both go on with one salt and one number.
    #[test]
    fn of_a_copied_process_no_two_datagrams_have_one_nonce() {
        let sealed = |drawn| Sealing::new(&key(1), [7; 8]).seal(b"news", drawn);
        let (one, other) = (sealed([1; 4]), sealed([2; 4]));
        assert_eq!(one[..20], other[..20]);
        assert_ne!(one[24..28], other[24..28], "the same keystream");
        for mut bytes in [one, other] {
            assert_eq!(Opening::default().open(&ring(&[1]), &mut bytes, NOW), Ok(&b"news"[..]));
        }
    }

    /// A member says something under the salt of another, with a number that the other reaches
    /// after a while.
    #[test]
    fn whose_numbers_were_used_up_is_heard_under_another_salt() {
        let (mut opening, ring) = (Opening::default(), ring(&[1]));
        let mut victim = Sealing::new(&key(1), [7; 8]);
        opening.open(&ring, &mut victim.seal(b"news", [0; 4]), NOW).unwrap();
        let mut attacker = Sealing { next: 5000, ..Sealing::new(&key(1), [7; 8]) };
        opening.open(&ring, &mut attacker.seal(b"lies", [0; 4]), NOW).unwrap();
        assert_eq!(opening.open(&ring, &mut victim.seal(b"news", [0; 4]), NOW), Err(EnvelopeError::Repeated));
        let mut victim = Sealing::new(&key(1), [8; 8]);
        assert_eq!(opening.open(&ring, &mut victim.seal(b"news", [0; 4]), NOW), Ok(&b"news"[..]));
        let mut attacker = Sealing { next: u64::MAX - 2, ..Sealing::new(&key(1), [8; 8]) };
        assert_eq!(opening.open(&ring, &mut attacker.seal(b"lies", [0; 4]), NOW), Err(EnvelopeError::Ahead));
        assert_eq!(opening.open(&ring, &mut victim.seal(b"news", [0; 4]), NOW), Ok(&b"news"[..]));
    }

    #[test]
    fn forgotten_keys_are_not_understood_and_not_remembered() {
        let mut opening = Opening::default();
        let mut sealing = Sealing::new(&key(1), [7; 8]);
        opening.open(&ring(&[2, 1]), &mut sealing.seal(b"news", [0; 4]), NOW).unwrap();
        opening.keep(&ring(&[2]));
        assert!(opening.senders.is_empty());
        assert_eq!(opening.open(&ring(&[2]), &mut sealing.seal(b"news", [0; 4]), NOW), Err(EnvelopeError::Stranger));
    }

    #[test]
    fn memory_is_bounded_and_the_silent_go_first() {
        let (mut opening, ring) = (Opening::default(), ring(&[1]));
        let mut steady = Sealing::new(&key(1), [255; 8]);
        let repeated = steady.seal(b"x", [0; 4]);
        opening.open(&ring, &mut repeated.clone(), NOW).unwrap();
        for number in 0..SENDERS_MAX as u64 * 2 {
            opening.open(&ring, &mut Sealing::new(&key(1), number.to_le_bytes()).seal(b"x", [0; 4]), NOW).unwrap();
            opening.open(&ring, &mut steady.seal(b"x", [0; 4]), NOW).unwrap();
        }
        assert_eq!(opening.senders.len(), SENDERS_MAX);
        assert_eq!(opening.open(&ring, &mut repeated.clone(), NOW), Err(EnvelopeError::Repeated));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
            prop_assert_eq!(Opening::default().open(&ring(&[1]), &mut bytes, NOW), Err(EnvelopeError::Stranger));
        }

        #[test]
        fn a_changed_bit_is_found(bit in 0_usize..(4 + OVERHEAD) * 8) {
            let mut bytes = Sealing::new(&key(1), [7; 8]).seal(b"news", [0; 4]);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut opening = Opening::default();
            prop_assert_eq!(opening.open(&ring(&[1]), &mut bytes, NOW), Err(EnvelopeError::Stranger));
            prop_assert!(opening.senders.is_empty());
        }
    }
}
