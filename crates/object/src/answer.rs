//! The judgement of a server's answer to a request for a range: its head only.
//!
//! A pure function of status and headers. Invariant: [`Part`] means that the body has exactly the
//! asked bytes of an object of the named length. Everything else is an error in one line, by the
//! words that a person needs: a page instead of bytes, no ranges, too short, refused.

use hyper::StatusCode;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
    RETRY_AFTER,
};
use std::time::{Duration, SystemTime};
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;

/// Most bytes of a server's own words that are repeated. A head may have 400 KiB, and a line of the
/// log or of `status` is for people.
const WORDS_MAX: usize = 80;
/// Longest pause that a server may ask for: a wrong clock must not stop an origin for a day.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// What tells one state of an object from another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pin {
    pub length_bytes: u64,
    pub etag: Option<String>,
    pub modified: Option<String>,
}

impl Pin {
    /// How it shows that `now` is another state, in words; `None` if nothing shows it.
    pub fn differs(&self, now: &Self) -> Option<String> {
        if self.length_bytes != now.length_bytes {
            return Some(format!("it had {} bytes and has {}", self.length_bytes, now.length_bytes));
        }
        match (&self.etag, &now.etag) {
            (Some(before), Some(now)) => {
                (before != now).then(|| format!("its ETag was {} and is {}", shown(before), shown(now)))
            }
            _ => match (&self.modified, &now.modified) {
                (Some(before), Some(now)) if before != now => {
                    Some(format!("it was written at {}, and again at {}", shown(before), shown(now)))
                }
                _ => None,
            },
        }
    }
}

/// A range that a server is asked for, which is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// All of it.
    All(Extent),
    /// The part of it before the object's end.
    UpToEnd(Extent),
}

impl Asked {
    /// The range, whichever part of it is asked for.
    pub const fn extent(self) -> Extent {
        match self {
            Self::All(extent) | Self::UpToEnd(extent) => extent,
        }
    }
}

/// A head that announces the asked bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The state of the object.
    pub pin: Pin,
    /// Number of the bytes.
    pub bytes: u64,
}

/// Judges the answer of `host` to a request for `asked`.
///
/// # Errors
/// If the body does not have these bytes.
pub fn judge(host: &str, asked: Asked, status: StatusCode, headers: &HeaderMap) -> Result<Part, ObjectError> {
    match status {
        StatusCode::PARTIAL_CONTENT => part(host, asked, headers),
        StatusCode::RANGE_NOT_SATISFIABLE => Err(too_short(asked.extent(), total(headers).unwrap_or_default())),
        StatusCode::OK if is_page(headers) => Err(ObjectError::passing(format!(
            "{host} answers with a page ({}) instead of bytes: a proxy's or a login's?",
            shown(text(headers, &CONTENT_TYPE).unwrap_or_default())
        ))),
        StatusCode::OK => {
            Err(ObjectError::lasting(format!("{host} has no range support: it answers with all of the object (200)")))
        }
        status => Err(refusal(host, status, headers)),
    }
}

/// The error of `host` that its status tells.
pub fn refusal(host: &str, status: StatusCode, headers: &HeaderMap) -> ObjectError {
    let why = format!("{} from {host}", words(status));
    if is_passing(status) {
        ObjectError::Failed { why, after: retry_after(headers, SystemTime::now()), lasting: false }
    } else {
        ObjectError::lasting(why)
    }
}

fn part(host: &str, asked: Asked, headers: &HeaderMap) -> Result<Part, ObjectError> {
    let (may_end, asked) = (matches!(asked, Asked::UpToEnd(_)), asked.extent());
    let broken = |why: &str| ObjectError::passing(format!("{host} answers with {why}"));
    if text(headers, &CONTENT_ENCODING).is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        return Err(broken("compressed bytes that were not asked for"));
    }
    let range = text(headers, &CONTENT_RANGE).and_then(content_range);
    let Some((given, total)) = range else { return Err(broken("a part that does not say which (Content-Range)")) };
    let Some(length_bytes) = total else { return Err(broken("a part of an object of unknown length")) };
    if given.start() != asked.start() || given.end() > asked.end() {
        return Err(broken(&format!("bytes {given:?} in place of {asked:?}")));
    }
    if given.end() < asked.end() {
        // Right at the end of the object, and a mistake anywhere else.
        let ends = given.end() == length_bytes;
        if !ends {
            return Err(broken(&format!("bytes {given:?} in place of {asked:?}")));
        }
        if !may_end {
            return Err(too_short(asked, length_bytes));
        }
    }
    let length = text(headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length != given.len()) {
        return Err(broken("a body of another length than it says"));
    }
    let own = |name| text(headers, name).map(str::to_owned);
    let pin = Pin { length_bytes, etag: own(&ETAG), modified: own(&LAST_MODIFIED) };
    Ok(Part { pin, bytes: given.len() })
}

fn too_short(asked: Extent, length_bytes: u64) -> ObjectError {
    match length_bytes {
        0 => ObjectError::Changed("the object is empty".to_owned()),
        _ => ObjectError::Changed(format!("the object ends after {length_bytes} bytes, before byte {}", asked.end())),
    }
}

/// True for what passes by itself: too many requests, a server or gateway in trouble.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

fn words(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

fn is_page(headers: &HeaderMap) -> bool {
    text(headers, &CONTENT_TYPE).is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}

/// The length of the object in the answer that a range lies behind its end.
fn total(headers: &HeaderMap) -> Option<u64> {
    text(headers, &CONTENT_RANGE)?.strip_prefix("bytes */")?.trim().parse().ok()
}

/// The range and the object's length, if it is known, of a header `Content-Range`.
fn content_range(text: &str) -> Option<(Extent, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (number(first)?, number(last)?);
    let total = if total == "*" { None } else { Some(number(total)?) };
    let given = Extent::from(first..last.checked_add(1)?);
    let fits = !given.is_empty() && total.is_none_or(|total| given.end() <= total);
    fits.then_some((given, total))
}

/// Digits only: no sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The pause that a server asks for: seconds, or the date after it.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = text(headers, &RETRY_AFTER)?.trim();
    let pause = match number(text) {
        Some(seconds) => Duration::from_secs(seconds),
        None => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(pause.min(RETRY_AFTER_MAX))
}

/// A server's words, which are ASCII, for one line.
fn shown(words: &str) -> String {
    words.chars().take(WORDS_MAX).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use std::time::UNIX_EPOCH;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    const EXTENT: std::ops::Range<u64> = 100..200;

    fn judged(status: u16, lines: &[(&'static str, &str)]) -> Result<Part, ObjectError> {
        judge("host", Asked::All(EXTENT.into()), StatusCode::from_u16(status).unwrap(), &headers(lines))
    }

    #[test]
    fn the_asked_part_is_taken() {
        let lines = [("content-range", "bytes 100-199/1000"), ("content-length", "100"), ("etag", "\"a\"")];
        let pin = Pin { length_bytes: 1000, etag: Some("\"a\"".to_owned()), modified: None };
        assert_eq!(judged(206, &lines), Ok(Part { pin, bytes: 100 }));
    }

    #[test]
    fn a_range_may_go_on_behind_the_end() {
        let judged = |status, lines: &[(&'static str, &str)]| {
            judge("host", Asked::UpToEnd(EXTENT.into()), StatusCode::from_u16(status).unwrap(), &headers(lines))
        };
        let short = judged(206, &[("content-range", "bytes 100-149/150"), ("content-length", "50")]).unwrap();
        assert_eq!((short.bytes, short.pin.length_bytes), (50, 150));
        assert_eq!(judged(206, &[("content-range", "bytes 100-199/1000")]).unwrap().bytes, 100);
        for (status, range) in [(206, "bytes 100-149/1000"), (206, "bytes 90-149/150"), (416, "bytes */100")] {
            assert!(judged(status, &[("content-range", range)]).is_err(), "{range}");
        }
    }

    #[test]
    fn anything_else_is_refused_in_words() {
        let range = |text| vec![("content-range", text)];
        let page = vec![("content-type", "Text/HTML; charset=utf-8")];
        for (status, lines, says) in [
            (200, page, "a page (Text/HTML; charset=utf-8) instead of bytes"),
            (200, vec![], "no range support"),
            (206, vec![], "Content-Range"),
            (206, range("bytes 0-99/1000"), "in place of"),
            (206, range("bytes 100-299/1000"), "in place of"),
            (206, range("bytes 100-149/1000"), "in place of"),
            (206, range("bytes 100-149/150"), "ends after 150 bytes"),
            (206, range("bytes 100-199/*"), "unknown length"),
            (206, range("bytes 100-199/150"), "Content-Range"),
            (206, range("bytes 100-18446744073709551615/*"), "Content-Range"),
            (206, range("bytes +100-199/1000"), "Content-Range"),
            (206, vec![("content-range", "bytes 100-199/1000"), ("content-length", "7")], "another length"),
            (206, vec![("content-range", "bytes 100-199/1000"), ("content-encoding", "gzip")], "compressed"),
            (416, range("bytes */150"), "ends after 150 bytes"),
            (416, vec![], "empty"),
            (403, vec![], "403 Forbidden from host"),
            (404, vec![], "404 Not Found from host"),
            (503, vec![], "503 Service Unavailable from host"),
            (599, vec![], "599 from host"),
        ] {
            let refused = judged(status, &lines).unwrap_err();
            assert!(refused.to_string().contains(says), "{status} {lines:?}: {refused}");
            let lasting = (400..500).contains(&status) && status != 416 || refused.to_string().contains("no range");
            let changed = matches!(refused, ObjectError::Changed(_));
            assert_eq!(refused.may_pass(), !lasting && !changed, "{status} {lines:?}: {refused}");
        }
    }

    #[test]
    fn a_servers_words_are_one_short_line() {
        let long = format!("text/html\t{}", "x".repeat(9000));
        let refused = judged(200, &[("content-type", &long)]).unwrap_err().to_string();
        assert!(refused.len() < 200 && !refused.contains(char::is_control), "{refused}");
        let pin = |etag: &str| Pin { length_bytes: 1, etag: Some(etag.to_owned()), modified: None };
        let differs = pin(&"a".repeat(9000)).differs(&pin(&"b".repeat(9000))).unwrap();
        assert!(differs.len() < 200, "{differs}");
    }

    #[test]
    fn a_pause_that_is_asked_for_is_bounded() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, pause) in [
            ("7", Some(7)),
            ("99999999999", Some(120)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let asked = retry_after(&headers(&[("retry-after", text)]), now);
            assert_eq!(asked, pause.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn a_new_state_shows() {
        let pin = |length_bytes, etag: &str, modified: &str| {
            let own = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            Pin { length_bytes, etag: own(etag), modified: own(modified) }
        };
        let before = pin(10, "a", "1");
        for (now, differs) in [
            (pin(10, "a", "1"), false),
            (pin(10, "b", "1"), true),
            (pin(11, "a", "1"), true),
            // Written again with the same bytes.
            (pin(10, "a", "2"), false),
            (pin(10, "", "2"), true),
            (pin(10, "", ""), false),
        ] {
            assert_eq!(before.differs(&now).is_some(), differs, "{now:?}");
        }
    }
}
