//! Requests and replies come back as they went.

use super::*;
use proptest::prelude::*;
use std::num::NonZeroU64;

fn requests() -> impl Strategy<Value = Request> {
    let until = || prop_oneof![Just(Until::Ready), Just(Until::Filled), any::<NonZeroU64>().prop_map(Until::Covered)];
    prop_oneof![
        Just(Request::Status),
        Just(Request::ReloadKeys),
        Just(Request::Upgrade),
        Just(Request::Collect),
        any::<(String, bool)>().prop_map(|(image, release)| Request::Pin { image, release }),
        Just(Request::Undrain),
        any::<u64>().prop_map(|timeout_ms| Request::Drain { timeout_ms }),
        any::<u64>().prop_map(|duration_ms| Request::Trace { duration_ms }),
        (until(), any::<Option<u64>>()).prop_map(|(until, timeout_ms)| Request::Wait { until, timeout_ms }),
        any::<(u64, usize, bool)>().prop_map(|(after, most, follow)| Request::Events { after, most, follow }),
        any::<(u64, bool, bool)>().prop_map(|(timeout_ms, force, dry_run)| Request::Leave {
            timeout_ms,
            force,
            dry_run
        }),
        any::<(String, Option<String>)>().prop_map(|(image, store)| Request::Add { image, store }),
        any::<(String, String, u64, Option<(String, String)>)>().prop_map(|(path, name, chunk_bytes, proof)| {
            let proof = proof.map(|(statement, signature)| Proof { statement, signature });
            Request::Serve(Serve { path, name, chunk_bytes, proof })
        }),
        any::<(String, bool)>().prop_map(|(image, force)| Request::Drop { image, force }),
        any::<(String, String)>().prop_map(|(image, with)| Request::Compare { image, with }),
        any::<Option<String>>().prop_map(|image| Request::Learned { image }),
        any::<(Option<String>, Option<u64>, bool)>().prop_map(|(image, offset, follow)| Request::Explain {
            image,
            offset,
            follow
        }),
        any::<[Option<String>; 2]>().prop_map(|[up, down]| Request::Limit { up, down }),
        any::<(String, [Option<String>; 2])>().prop_map(|(image, [up, down])| Request::LimitImage { image, up, down }),
        any::<(String, String, String)>().prop_map(|(signer, text, signature)| Request::Tag(SignedTag {
            signer,
            text,
            signature
        })),
        any::<Option<String>>().prop_map(|image| Request::OverlaySave { image }),
        any::<(Option<String>, bool)>().prop_map(|(image, force)| Request::OverlayReset { image, force }),
        (any::<String>(), any::<u64>(), any::<Option<u64>>()).prop_map(|(image, offset, length)| Request::Cat {
            image,
            offset,
            length
        }),
    ]
}

proptest! {
    #[test]
    fn requests_come_back_from_one_line(request in requests()) {
        let line = request.line();
        prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        prop_assert_eq!(Request::parse(&line), Ok(request));
    }

    #[test]
    fn rubbish_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let refused = matches!(Request::parse(&bytes), Err(Reply::Refused { .. }));
        prop_assert!(refused);
        let _ = Reply::parse(&bytes);
    }

    #[test]
    fn damaged_requests_do_no_harm(request in requests(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut line = request.line();
        let at = at.index(line.len());
        line[at] = byte;
        let _ = Request::parse(&line);
    }
}

#[test]
fn the_wire_form_is_as_documented() {
    assert_eq!(Request::parse(br#"{"vfield":1,"op":"status"}"#), Ok(Request::Status));
    assert_eq!(Request::parse(br#"{"vfield":1,"op":"overlay_save"}"#), Ok(Request::OverlaySave { image: None }));
    assert_eq!(
        Request::parse(br#"{"vfield":1,"op":"cat","image":"x","offset":5}"#),
        Ok(Request::Cat { image: "x".to_owned(), offset: 5, length: None })
    );
    let of = |line: &[u8]| match Request::parse(line) {
        Err(Reply::Refused { fact, .. }) => fact,
        other => panic!("{other:?}"),
    };
    assert_eq!(of(br#"{"vfield":2,"op":"status"}"#), "the client speaks control version 2, the daemon 1");
    assert_eq!(of(br#"{"op":"status"}"#), "not a control request: no version");
    assert!(of(br#"{"vfield":1,"op":"reboot"}"#).starts_with("not a control request: unknown variant"));
}
