//! The handshake of nodes against a stranger without the key, and against a stranger between two
//! members.
//!
//! Promises: it is never done with anybody but a member; a stranger is not answered with a word
//! before it has knocked; bytes are taken up to a bound.

use std::sync::LazyLock;
use vfield_trust::handshake::Handshake;
use vfield_trust::record::HEAD;
use vfield_trust::{FieldKey, KeyRing};

static RING: LazyLock<KeyRing> = LazyLock::new(|| KeyRing::new([FieldKey::new([1; 32])]).expect("a key"));

/// The first byte chooses the victim: the answering side, the dialling side, or both.
pub fn target(bytes: &[u8]) {
    let Some((to, stream)) = bytes.split_first() else { return };
    match to % 3 {
        0 => {
            let mut member = Handshake::answer(RING.clone());
            let heard = hear(&mut member, stream);
            assert!(member.output().is_empty(), "a stranger got an answer");
            assert!(!member.is_done() && heard < 64 << 10);
        }
        1 => {
            let mut member = Handshake::dial(&FieldKey::new([1; 32]));
            let _ = member.output();
            hear(&mut member, stream);
            assert!(!member.is_done(), "done with a stranger");
        }
        _ => between(stream),
    }
}

/// Gives it whole records for as long as it takes them; how many bytes.
fn hear(member: &mut Handshake, stream: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = stream[at..].first_chunk::<HEAD>() {
        let Ok(length) = Handshake::record_length(head) else { break };
        let Some(record) = stream[at..].get(..length) else { break };
        if member.receive(record).is_err() {
            break;
        }
        at += length;
    }
    at
}

/// Changes single bytes of what two members say, one a turn: a place and what it is changed by.
fn between(changes: &[u8]) {
    let mut ends = [Handshake::dial(&FieldKey::new([1; 32])), Handshake::answer(RING.clone())];
    let mut changes = changes.chunks_exact(3);
    let mut changed = false;
    for turn in 0..8 {
        let mut said = ends[turn % 2].output();
        if let Some(change) = changes.next()
            && !said.is_empty()
        {
            let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % said.len();
            if counts(&said, place) {
                said[place] ^= change[2];
                changed |= change[2] != 0;
            }
        }
        hear(&mut ends[1 - turn % 2], &said);
    }
    let done = ends.iter().filter(|end| end.is_done()).count();
    // Whoever speaks last believes the other before that one has heard it.
    assert!(if changed { done < 2 } else { done == 2 }, "changed: {changed}, done: {done}");
}

/// True for bytes that TLS 1.3 relies on: neither kind and version in the head of a record nor a
/// change of ciphers, which are for the sake of middleboxes (RFC 8446, section 5).
fn counts(said: &[u8], place: usize) -> bool {
    const CHANGE_OF_CIPHERS: u8 = 20;
    let mut at = 0;
    while let Some(head) = said[at..].first_chunk::<HEAD>() {
        let end = at + Handshake::record_length(head).expect("members speak in records");
        if place < end {
            return head[0] != CHANGE_OF_CIPHERS && place - at >= 3;
        }
        at = end;
    }
    false
}

/// What a member says first, and changes to it.
pub fn seeds() -> Vec<Vec<u8>> {
    let hello = Handshake::dial(&FieldKey::new([2; 32])).output();
    let marked = |to: u8, bytes: &[u8]| [&[to], bytes].concat();
    vec![
        marked(0, &hello),
        marked(0, b"GET / HTTP/1.1\r\n\r\n"),
        marked(1, &hello),
        marked(2, b""),
        marked(2, &[9, 0, 1]),
        marked(2, &[0, 0, 0, 200, 0, 1]),
    ]
}
