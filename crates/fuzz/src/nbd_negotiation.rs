//! The handshake of NBD, as clients begin it.
//!
//! Promises: a stream in parts is parsed as a whole one; output is well formed; with certificates
//! no export is told before TLS; agreements in the clear do not outlive it; at most one option of a
//! client is buffered.

use std::sync::{Arc, LazyLock};
use vfield_export::nbd::codec::negotiation::Step;
use vfield_export::nbd::codec::option::{contexts, request as option, wanted as go};
use vfield_export::nbd::codec::{Chosen, Negotiation, OPTION_BYTES_MAX, Offer, flag, magic};

static OFFERS: LazyLock<Arc<[Offer]>> = LazyLock::new(|| {
    let offer = |name: &str, writable| Offer {
        name: name.to_owned(),
        description: "an image".to_owned(),
        size_bytes: 1 << 30,
        preferred_bytes: 65536,
        writable,
    };
    [offer("a", false), offer("b", true)].into()
});

/// The outcome of a negotiation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    written: Vec<u8>,
    used: usize,
    chosen: Option<Chosen>,
    refused: Option<&'static str>,
    tls: bool,
}

/// The first byte: with TLS or not, and in parts of how many bytes it comes the second time. Then
/// what a client sends.
pub fn target(bytes: &[u8]) {
    let Some((how, stream)) = bytes.split_first() else { return };
    let tls = how & 1 == 1;
    let whole = negotiate(stream, tls, stream.len());
    assert_eq!(negotiate(stream, tls, usize::from(how >> 1) % 29 + 1), whole);
    check_replies(&whole.written);
    if tls {
        assert!(whole.chosen.is_none() || whole.tls, "chosen in the clear");
        assert!(whole.tls || !whole.written.windows(8).any(|part| part == b"an image"), "told in the clear");
    }
}

fn negotiate(stream: &[u8], tls: bool, part: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let mut negotiation = Negotiation::start(OFFERS.clone(), tls, &mut outcome.written);
    let mut arrived = 0;
    loop {
        let rest = &stream[outcome.used..arrived];
        let (used, step) = negotiation.step(rest, &mut outcome.written);
        assert!(used <= rest.len());
        outcome.used += used;
        match step {
            Step::More if arrived == stream.len() => {
                assert!(stream.len() - outcome.used <= OPTION_BYTES_MAX as usize + 16, "it waits for too much");
                return outcome;
            }
            Step::More => arrived = stream.len().min(arrived + part.max(1)),
            Step::Answered => {}
            Step::StartTls => {
                assert!(tls && !outcome.tls, "TLS begins once");
                outcome.tls = true;
            }
            Step::Serve(chosen) => {
                assert!(chosen.offer < OFFERS.len() && (chosen.structured || !chosen.allocation), "{chosen:?}");
                outcome.chosen = Some(chosen);
                return outcome;
            }
            Step::Left => return outcome,
            Step::Refused(why) => {
                outcome.refused = Some(why);
                return outcome;
            }
        }
    }
}

/// The greeting, then replies; at the end perhaps the answer to `EXPORT_NAME`, which has no frame.
fn check_replies(written: &[u8]) {
    let greeting = [&magic::GREETING.to_be_bytes()[..], &magic::OPTION.to_be_bytes(), &[0, 3]].concat();
    let mut rest = written.strip_prefix(&greeting[..]).expect("a greeting comes first");
    while let Some(reply) = rest.strip_prefix(&magic::OPTION_REPLY.to_be_bytes()) {
        let (head, data) = reply.split_first_chunk::<12>().expect("whole replies");
        let length = u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
        rest = data.get(length..).expect("whole replies");
    }
    assert!(matches!(rest.len(), 0 | 10 | 134), "{} bytes follow the replies", rest.len());
    if rest.len() == 10 {
        let flags = u16::from_be_bytes([rest[8], rest[9]]);
        assert!(flags & flag::HAS_FLAGS != 0);
    }
}

/// Flags of a client that knows everything.
pub(crate) const FLAGS: [u8; 4] = [0, 0, 0, 3];

/// Each option, as clients begin with it.
pub fn seeds() -> Vec<Vec<u8>> {
    let stream = |how: u8, flags: [u8; 4], options: &[Vec<u8>]| [&[how][..], &flags, &options.concat()].concat();
    vec![
        stream(6, FLAGS, &[option(1, b"a")]),
        stream(6, [0; 4], &[option(1, b"")]),
        stream(0, FLAGS, &[option(3, b""), option(2, b"")]),
        stream(
            8,
            FLAGS,
            &[option(8, b""), option(10, &contexts(b"b", &[b"base:allocation"])), option(7, &go(b"b", &[3, 1, 2]))],
        ),
        stream(
            0,
            FLAGS,
            &[option(8, b""), option(9, &contexts(b"a", &[b"base:", b"qemu:"])), option(6, &go(b"a", &[3]))],
        ),
        stream(1, FLAGS, &[option(3, b""), option(5, b""), option(8, b""), option(7, &go(b"", &[]))]),
        stream(0, FLAGS, &[option(11, b""), option(99, b"abc"), option(7, &go(b"none", &[]))]),
        stream(0, [0, 0, 0, 4], &[]),
    ]
}
