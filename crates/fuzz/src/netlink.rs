//! What the kernel answers over netlink.
//!
//! Promises: a walk over messages and attributes ends, stays within the received bytes, and finds
//! the content.

use vfield_export::nbd::kernel::message::{Message, attribute, next_message};

/// The received bytes.
pub fn target(bytes: &[u8]) {
    let (mut rest, mut messages) = (bytes, 0);
    while let Some((_, body, later)) = next_message(rest) {
        assert!(body.len() <= rest.len() && later.len() < rest.len(), "it goes on");
        messages += 1;
        for wanted in 0..8 {
            let found = body.get(4..).and_then(|body| attribute(body, wanted));
            assert!(found.is_none_or(|found| found.len() <= body.len()));
        }
        rest = later;
    }
    assert!(messages * 16 <= bytes.len());
    let Some((payload, _)) = bytes.split_at_checked(bytes.len().min(200)) else { return };
    let mut message = Message::new(31, 2);
    message.attribute(7, payload);
    message.attribute(3, b"behind it");
    let made = message.finish();
    let (kind, body, rest) = next_message(&made).expect("it was just made");
    assert_eq!((kind, rest), (31, &[][..]));
    assert_eq!(attribute(&body[4..], 7), Some(payload));
    assert_eq!(attribute(&body[4..], 3), Some(&b"behind it"[..]));
}

/// An answer, two of them, and an error.
pub fn seeds() -> Vec<Vec<u8>> {
    let answer = || {
        let mut message = Message::new(31, 1);
        message.attribute(1, &5_u32.to_ne_bytes());
        message.attribute(2, b"nbd\0");
        message.finish()
    };
    let error = Message::new(2, 0).finish();
    vec![answer(), [answer(), answer()].concat(), [answer(), error].concat()]
}
