//! Answers of object stores to a request for a range: heads, bodies, errors.
//!
//! Promises: a read gives as many bytes as were asked for, as they stand in the answer. A failure
//! is told in one short line. A redirect never leaves TLS. A read ends with its connection.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;
use vfield_object::{Over, read_over};

/// A read may take so long that has nothing to wait for.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Longest line about a failure: a server's words in it are cut.
const LINE_MAX: usize = 400;
/// The store that is asked. The input is the answer inside of TLS.
const URL: &str = "https://store.example/images/x.img";

/// The first byte: how many bytes are asked for; the second one: from where. Then the answer.
pub fn target(bytes: &[u8]) {
    let [length, start, answer @ ..] = bytes else { return };
    let start = u64::from(*start);
    let asked = Extent::from(start..start + u64::from(*length % 64) + 1);
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let read = runtime.block_on(async {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let store = async {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(far.read_u8().await.expect("a request has an end"));
            }
            // A store that is hung up on has said enough.
            let _ = far.write_all(answer).await;
            drop(far);
        };
        let reading = tokio::time::timeout(TIME_MAX, read_over(near, URL, asked));
        tokio::join!(reading, store).0.expect("a read ends with its connection")
    });
    match read {
        Ok(Over::Bytes(read)) => {
            assert_eq!(read.len() as u64, asked.len());
            let is_chunked = answer.to_ascii_lowercase().windows(7).any(|part| part == b"chunked");
            assert!(is_chunked || answer.windows(read.len()).any(|part| part == read), "bytes of nowhere");
        }
        Ok(Over::Redirect(to)) => assert!(to.starts_with("https://"), "a redirect left TLS: {to}"),
        Err(error) => {
            let line = error.to_string();
            let is_line = line.len() <= LINE_MAX && !line.contains(char::is_control);
            assert!(is_line && !line.is_empty(), "{} bytes: {line:?}", line.len());
            let after = if let ObjectError::Failed { after, .. } = error { after } else { None };
            assert!(after.is_none_or(|after| after <= Duration::from_secs(120)), "a pause of {after:?}");
        }
    }
}

/// The bytes, refusals of several kinds, a page, a redirect, and the greeting of another protocol.
pub fn seeds() -> Vec<Vec<u8>> {
    let xml = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>no</Message></Error>";
    let given = "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 2-5/100\r\netag: \"a\"\r\n";
    let answers = [
        format!("{given}content-length: 4\r\n\r\nbody"),
        format!("{given}transfer-encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"),
        format!("{given}\r\nbo"),
        format!("{given}content-encoding: gzip\r\ncontent-length: 4\r\n\r\nbody"),
        format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n{xml}", xml.len()),
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 416 Range Not Satisfiable\r\ncontent-range: bytes */3\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>".to_owned(),
        "HTTP/1.1 302 Found\r\nlocation: https://a.example/x?s=1\r\n\r\n".to_owned(),
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: ../y\r\n\r\n".to_owned(),
        "SSH-2.0-x\r\n".to_owned(),
    ];
    answers.map(|answer| [&[3, 2], answer.as_bytes()].concat()).into()
}
