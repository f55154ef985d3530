//! Signatures and public keys in minisign's format.
//!
//! Promises: only signed content and its signed comment are believed; an accepted key is a key.

use std::io::Cursor;
use std::sync::LazyLock;
use vfield_trust::signature::{Signed, TrustedKeys};

/// The signed content.
const CONTENT: &[u8] = b"vfield-image 1\nname os\n";

/// A key of this process, its public half as it is written, and its signature of the content.
struct Signer {
    public: String,
    signature: String,
    trusted: TrustedKeys,
    signed: Signed,
}

static SIGNER: LazyLock<Signer> = LazyLock::new(|| {
    let keys = minisign::KeyPair::generate_unencrypted_keypair().expect("randomness");
    let comment = Some("timestamp:1700000000\tfile:os");
    let signature =
        minisign::sign(Some(&keys.pk), &keys.sk, Cursor::new(CONTENT), comment, Some("os")).expect("a signature");
    let public = keys.pk.to_base64();
    let trusted = TrustedKeys::read(std::slice::from_ref(&public)).expect("a key").expect("one");
    let signed = Signed { key: public.clone(), timestamp: 1_700_000_000 };
    Signer { public, signature: signature.into_string(), trusted, signed }
});

/// The first byte: a signature, changes to a good one, or a public key.
pub fn target(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            assert!(SIGNER.trusted.verify(CONTENT, text).is_err(), "a signature of nobody's");
        }
        1 => {
            let mut changed = SIGNER.signature.clone().into_bytes();
            for change in bytes.chunks_exact(3) {
                let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
                changed[place] = change[2];
            }
            let Ok(text) = String::from_utf8(changed) else { return };
            if let Ok(signed) = SIGNER.trusted.verify(CONTENT, &text) {
                // The first line is a comment that is not signed, and may say anything.
                assert_eq!(signed, SIGNER.signed, "a comment was changed");
                let signed_part = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(signed_part(&text), signed_part(&SIGNER.signature));
            }
        }
        _ => {
            // A path is no key; nothing of this length is one that would be looked for.
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if text.len() == SIGNER.public.len()
                && !text.contains(['/', '\0'])
                && let Ok(Some(keys)) = TrustedKeys::read(&[text.to_owned()])
            {
                assert!(text == SIGNER.public || keys.verify(CONTENT, &SIGNER.signature).is_err(), "{text}");
            }
        }
    }
}

/// Signatures and keys that are none, and a good one with and without changes.
pub fn seeds() -> Vec<Vec<u8>> {
    let text = "untrusted comment: x\nRUQ\ntrusted comment: timestamp:5\nAAAA\n";
    // Made with the `minisign` tool.
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let marked = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    vec![
        marked(0, text.as_bytes()),
        marked(1, b""),
        marked(1, &[30, 0, 65]),
        marked(1, &[200, 0, 50]),
        marked(2, key.as_bytes()),
    ]
}
