//! The control socket: requests of local programs, and a daemon's replies.
//!
//! Promises: a line is a request or a refusal; a parsed line is written as one line, and parsed
//! again.

use vfield_control::message::{Reply, Request};

/// The input is a line of the control protocol.
pub fn target(bytes: &[u8]) {
    match Request::parse(bytes) {
        Ok(request) => {
            let line = request.line();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(Request::parse(&line), Ok(request));
        }
        Err(reply) => assert!(matches!(reply, Reply::Refused { .. }), "{reply:?}"),
    }
    if let Ok(reply) = Reply::parse(bytes) {
        // Numbers that are no number are equal to nothing.
        let line = reply.line();
        assert_eq!(Reply::parse(&line).map(|again| again.line()).ok(), Some(line));
    }
}

/// All requests, some replies.
pub fn seeds() -> Vec<Vec<u8>> {
    let requests = [
        Request::Status,
        Request::Leave { timeout_ms: 5, force: false, dry_run: false },
        Request::OverlaySave { image: Some("os".to_owned()) },
        Request::OverlayReset { image: None, force: false },
        Request::ReloadKeys,
        Request::Cat { image: "os".to_owned(), offset: 5, length: Some(7) },
    ];
    let wait = br#"{"vfield":1,"op":"wait","until":"covered","timeout_ms":5}"#.to_vec();
    let replies = [
        Reply::Left { handed_over: 5, lost: 0 },
        Reply::Data { bytes: 5 },
        Reply::Keys { ids: vec!["01020304".to_owned()], admission: None },
        Reply::refused("no", "none"),
    ];
    requests.iter().map(Request::line).chain([wait]).chain(replies.iter().map(Reply::line)).collect()
}
