//! Gossip under seal.
//!
//! Promises: only datagrams sealed with a key of the ring open, byte for byte, and each opens once.
//! Inputs are sealed datagrams that were tampered with, since no fuzzer finds a seal.

use arbitrary::{Result, Unstructured};
use std::sync::LazyLock;
use std::time::Duration;
use vfield_trust::envelope::{EnvelopeError, Opening, Sealing};
use vfield_trust::{FieldKey, KeyRing};

static RING: LazyLock<KeyRing> =
    LazyLock::new(|| KeyRing::new([FieldKey::new([1; 32]), FieldKey::new([2; 32])]).expect("two keys"));

/// All of it comes at once.
const NOW: Duration = Duration::ZERO;

/// Datagrams of two members and of a stranger, each as it was sent or not, in any order and any
/// number of times.
pub fn target(bytes: &[u8]) {
    // A missing part was not to be read.
    let _ = take(&mut Unstructured::new(bytes));
}

fn take(input: &mut Unstructured<'_>) -> Result<()> {
    let mut opening = Opening::default();
    let keys = [[1; 32], [2; 32], [3; 32]].map(FieldKey::new);
    let mut senders = [(0, 7), (1, 7), (0, 8), (2, 7)].map(|(key, salt)| (key, Sealing::new(&keys[key], [salt; 8])));
    let mut sent: Vec<(usize, Vec<u8>, Vec<u8>, bool)> = Vec::new();
    while !input.is_empty() {
        match input.arbitrary::<u8>()? % 4 {
            0 => {
                let (key, sealing) = &mut senders[usize::from(input.arbitrary::<u8>()? % 4)];
                let length = usize::from(input.arbitrary::<u8>()? % 16);
                let plain = input.bytes(length.min(input.len()))?.to_vec();
                let sealed = sealing.seal(&plain, [0; 4]);
                sent.push((*key, plain, sealed, false));
            }
            1 if !sent.is_empty() => {
                let at = usize::from(input.arbitrary::<u8>()?) % sent.len();
                let overtaken = at + 64 < sent.len();
                let (key, plain, sealed, heard) = &mut sent[at];
                let opened = opening.open(&RING, &mut sealed.clone(), NOW).map(<[u8]>::to_vec);
                match opened {
                    Ok(opened) => assert!(opened == *plain && !*heard && *key < 2, "opened what it must not"),
                    Err(EnvelopeError::Stranger) => assert_eq!(*key, 2, "a member is no stranger"),
                    Err(EnvelopeError::Repeated) => assert!(*heard || overtaken, "taken for another"),
                    Err(EnvelopeError::Ahead) => panic!("as many can be sent at once"),
                }
                *heard |= *key < 2;
            }
            2 if !sent.is_empty() => {
                let at = usize::from(input.arbitrary::<u8>()?) % sent.len();
                let mut changed = sent[at].2.clone();
                let place = usize::from(input.arbitrary::<u8>()?) % changed.len();
                let by = input.arbitrary::<u8>()?;
                if input.arbitrary::<bool>()? {
                    changed.truncate(place);
                } else {
                    changed[place] ^= by.max(1);
                }
                assert_eq!(opening.open(&RING, &mut changed, NOW), Err(EnvelopeError::Stranger));
            }
            _ => {
                let length = usize::from(input.arbitrary::<u8>()?);
                let mut rubbish = input.bytes(length.min(input.len()))?.to_vec();
                assert_eq!(opening.open(&RING, &mut rubbish, NOW), Err(EnvelopeError::Stranger));
            }
        }
    }
    Ok(())
}

/// Sent and heard; heard twice; changed, cut; rubbish.
pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        b"\x00\x00\x04news\x01\x00".to_vec(),
        b"\x00\x01\x04news\x01\x00\x01\x00".to_vec(),
        b"\x00\x03\x04news\x01\x00\x02\x00\x05\x01\x00".to_vec(),
        b"\x00\x02\x04news\x02\x00\x15\x01\x01\x03\x04\x00\x00\x00\x00".to_vec(),
    ]
}
