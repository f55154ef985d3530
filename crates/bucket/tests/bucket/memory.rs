//! A bucket in memory behind HTTP, as far as S3 goes here: ranges, lists, parts, conditions.
//!
//! It has a clock of its own, and a hook that sees each request before it is answered. Signatures
//! are not compared; `scripts/test-objects` has a store for that.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use vfield_object::Bucket;

/// Objects of one list: few, so that lists have parts.
const LIST_MAX: usize = 3;

/// The state of a bucket.
#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Stored>,
    uploads: BTreeMap<u64, BTreeMap<u32, Vec<u8>>>,
    numbers: u64,
    /// In seconds since 1970.
    pub now_s: u64,
    /// Method and key of each request that was answered.
    pub log: Vec<(String, String)>,
    /// True once a request is held.
    pub is_holding: bool,
    /// True for a store as some are.
    pub ignores_conditions: bool,
    hook: Option<Hook>,
}

/// Sees each request; an answer is given in place of the store's.
type Hook = Box<dyn FnMut(&mut State, &str, &str) -> Act + Send>;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It is answered.
    Answer,
    /// It is refused with this status and code.
    Refuse(u16, &'static str),
    /// It is done, and the connection ends without an answer.
    DoAndCut,
    /// It waits until [`Memory::release`], and is answered then.
    Hold,
}

/// An object, with its state.
#[derive(Clone)]
pub struct Stored {
    pub bytes: Vec<u8>,
    pub etag: String,
    pub written_s: u64,
}

impl State {
    pub fn put(&mut self, key: &str, bytes: Vec<u8>) -> String {
        self.numbers += 1;
        let etag = format!("\"e&{}\"", self.numbers);
        self.objects.insert(key.to_owned(), Stored { bytes, etag: etag.clone(), written_s: self.now_s });
        etag
    }

    /// Keys below a prefix.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        self.objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }
}

/// A running store with the bucket `images`.
pub struct Memory {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// True once held requests may go on.
    released: Mutex<bool>,
    release: Condvar,
}

impl Memory {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.state.lock().unwrap().now_s = 1_700_000_000;
        let of_connections = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&of_connections);
                // A client may hang up at any time.
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Self { addr, shared }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Lets held requests go on.
    pub fn release(&self) {
        *self.shared.released.lock().unwrap() = true;
        self.shared.release.notify_all();
    }

    /// Has each request seen from now on.
    pub fn hook(&self, hook: impl FnMut(&mut State, &str, &str) -> Act + Send + 'static) {
        self.state().hook = Some(Box::new(hook));
    }

    pub fn no_hook(&self) {
        self.state().hook = None;
    }

    pub fn bucket(&self, url: &str) -> Arc<Bucket> {
        let endpoint = format!("http://{}", self.addr);
        let variable = move |name: &str| match name {
            "AWS_ENDPOINT_URL_S3" => Some(endpoint.clone()),
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("x".to_owned()),
            _ => None,
        };
        Arc::new(Bucket::parse(url, &variable).unwrap())
    }
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    fn refusal(status: u16, code: &str) -> Self {
        Self::new(status, format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>"))
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut to = stream.try_clone()?;
    let mut from = BufReader::new(stream);
    while let Some(request) = read(&mut from)? {
        let mut state = shared.state.lock().unwrap();
        let mut hook = state.hook.take();
        let act = hook.as_mut().map_or(Act::Answer, |hook| hook(&mut state, &request.method, &request.key));
        if state.hook.is_none() {
            state.hook = hook;
        }
        if act == Act::Hold {
            state.is_holding = true;
            drop(state);
            let released = shared.released.lock().unwrap();
            drop(shared.release.wait_while(released, |released| !*released).unwrap());
            state = shared.state.lock().unwrap();
        }
        let answer = match act {
            Act::Refuse(status, code) => Answer::refusal(status, code),
            Act::Answer | Act::DoAndCut | Act::Hold => answer(&mut state, &request),
        };
        state.log.push((request.method.clone(), request.key.clone()));
        drop(state);
        if act == Act::DoAndCut {
            return Ok(());
        }
        let Answer { status, headers, body } = answer;
        let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        to.write_all(format!("{head}\r\n").as_bytes())?;
        if request.method != "HEAD" {
            to.write_all(&body)?;
        }
    }
    Ok(())
}

fn read(from: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let mut first = lines[0].split(' ');
    let (method, target) = (first.next().unwrap().to_owned(), first.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(name), decode(value))
    };
    let header = |line: &String| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: BTreeMap<String, String> = lines[1..].iter().map(header).collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let query = query.split('&').filter(|part| !part.is_empty()).map(pair).collect();
    Ok(Some(Request { method, key: decode(path), query, headers, body }))
}

fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let is_coded = first == b'%';
        bytes.push(if is_coded {
            u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap()
        } else {
            first
        });
        rest = if is_coded { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap()
}

fn answer(state: &mut State, request: &Request) -> Answer {
    let Some(key) = request.key.strip_prefix("/images").map(|key| key.trim_start_matches('/').to_owned()) else {
        return Answer::refusal(404, "NoSuchBucket");
    };
    let query = |name: &str| request.query.get(name);
    let upload = query("uploadId").map(|number| number.parse::<u64>().unwrap());
    let there = state.objects.get(&key).cloned();
    let holds = match (request.headers.get("if-match"), request.headers.get("if-none-match"), &there) {
        (Some(etag), _, there) => there.as_ref().is_some_and(|there| there.etag == *etag),
        (None, Some(_), there) => there.is_none(),
        (None, None, _) => true,
    } || state.ignores_conditions;
    match (request.method.as_str(), upload) {
        ("GET", None) if query("list-type").is_some() => list(state, request),
        ("GET" | "HEAD", None) => there.map_or_else(|| Answer::refusal(404, "NoSuchKey"), |there| get(request, &there)),
        ("PUT", None) if !holds => Answer::refusal(412, "PreconditionFailed"),
        ("PUT", None) => {
            let etag = state.put(&key, request.body.clone());
            Answer { headers: vec![("etag", etag)], ..Answer::new(200, "") }
        }
        ("DELETE", None) => {
            state.objects.remove(&key);
            Answer::new(204, "")
        }
        ("POST", None) => {
            state.numbers += 1;
            let number = state.numbers;
            state.uploads.insert(number, BTreeMap::new());
            Answer::new(200, format!("<X><UploadId>{number}</UploadId></X>"))
        }
        ("PUT", Some(number)) => {
            let part = query("partNumber").unwrap().parse().unwrap();
            state.uploads.get_mut(&number).unwrap().insert(part, request.body.clone());
            Answer { headers: vec![("etag", format!("\"p{part}\""))], ..Answer::new(200, "") }
        }
        ("POST", Some(_)) if !holds => Answer::refusal(412, "PreconditionFailed"),
        ("POST", Some(number)) => {
            let Some(parts) = state.uploads.remove(&number) else { return Answer::refusal(404, "NoSuchUpload") };
            let body = String::from_utf8_lossy(&request.body);
            assert!((1..=parts.len()).all(|part| body.contains(&format!("&quot;p{part}&quot;"))), "{body}");
            state.put(&key, parts.into_values().flatten().collect());
            Answer::new(200, "<X/>")
        }
        ("DELETE", Some(number)) => {
            state.uploads.remove(&number);
            Answer::new(204, "")
        }
        (method, _) => panic!("{method}"),
    }
}

fn get(request: &Request, there: &Stored) -> Answer {
    let length = there.bytes.len();
    let etag = ("etag", there.etag.clone());
    let Some(range) = request.headers.get("range") else {
        return Answer { headers: vec![etag], ..Answer::new(200, there.bytes.clone()) };
    };
    let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse::<usize>().unwrap().min(length.max(1) - 1));
    if from >= length {
        return Answer {
            headers: vec![("content-range", format!("bytes */{length}"))],
            ..Answer::refusal(416, "InvalidRange")
        };
    }
    let range = format!("bytes {from}-{to}/{length}");
    Answer { headers: vec![etag, ("content-range", range)], ..Answer::new(206, &there.bytes[from..=to]) }
}

fn list(state: &State, request: &Request) -> Answer {
    let (prefix, after) = (&request.query["prefix"], request.query.get("continuation-token"));
    let mut found = state.objects.iter().filter(|(key, _)| key.starts_with(prefix.as_str()));
    let rest: Vec<_> = found.by_ref().filter(|(key, _)| after.is_none_or(|after| *key > after)).collect();
    let mut body = "<ListBucketResult>".to_owned();
    for (key, stored) in rest.iter().take(LIST_MAX) {
        let (days, second) = (stored.written_s / 86400, stored.written_s % 86400);
        assert!((19_675..19_723).contains(&days), "the clock stays between two dates");
        let day = days - 19_675;
        let (month, day) = if day < 17 { (11, 14 + day) } else { (12, day - 16) };
        let time =
            format!("2023-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z", second / 3600, second / 60 % 60, second % 60);
        let size = stored.bytes.len();
        body += &format!("<Contents><Key>{key}</Key><LastModified>{time}</LastModified><Size>{size}</Size></Contents>");
    }
    let goes_on = rest.len() > LIST_MAX;
    if goes_on {
        body += &format!("<NextContinuationToken>{}</NextContinuationToken>", rest[LIST_MAX - 1].0);
    }
    Answer::new(200, format!("{body}<IsTruncated>{goes_on}</IsTruncated></ListBucketResult>"))
}
