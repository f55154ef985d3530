//! A whole connection of NBD: a server of a read-only image and of one with an overlay, and a
//! client that says anything.
//!
//! Promises: replies are well formed; each valid request has one reply and nothing else has, unless
//! the client breaks the protocol and is disconnected; bytes of the read-only image are right; the
//! connection ends with the client.

use crate::nbd_negotiation::FLAGS;
use crate::nbd_requests::request;
use crate::source::{self, Image};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use vfield_block::source::BlockSource;
use vfield_core::image::ImageId;
use vfield_export::nbd::codec::option::{REPLY_HEADER_BYTES, ReplyHeader, contexts, request as option, wanted as go};
use vfield_export::nbd::codec::reply::{Header, kind};
use vfield_export::nbd::codec::request::HEADER_BYTES;
use vfield_export::nbd::codec::{Command, Next, Request, Requests, flag};
use vfield_export::nbd::{Address, Server, Serving};
use vfield_overlay::Overlay;

/// A server that lives as long as its thread; a connection has nothing to do with another but the
/// overlay's content.
struct Bench {
    runtime: Runtime,
    address: std::path::PathBuf,
    _serving: Serving,
}

/// So long a connection may take that has nothing to wait for.
const TIME_MAX: Duration = Duration::from_secs(20);
/// A client may ask for 32 MiB again and again; inputs that want more than this in all are not
/// interesting.
const READ_MAX: u64 = 8 << 20;

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(bench());
}

fn bench() -> Bench {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let address = std::env::temp_dir().join(format!("vfield-fuzz-{}-{thread}.sock", std::process::id()));
    let serving = runtime.block_on(async {
        let overlay = Overlay::in_memory(Arc::new(Image), ImageId([7; 32]), 1 << 20).expect("memory");
        let writable: Arc<dyn BlockSource> = Arc::new(Named(overlay));
        Server::bind(&Address::Unix(address.clone()), vec![Image::shared(), writable]).expect("a socket").start()
    });
    Bench { runtime, address, _serving: serving }
}

/// The first byte: which of the ways to begin, or none. Then what the client sends.
pub fn target(bytes: &[u8]) {
    let Some((how, sent)) = bytes.split_first() else { return };
    let begun = begin(*how);
    let transmission = begun.as_ref().map(|_| sent);
    if let Some(stream) = transmission
        && wanted(stream) > READ_MAX
    {
        return;
    }
    let stream = [begun.as_deref().unwrap_or_default(), sent].concat();
    let answered = BENCH.with_borrow_mut(|bench| {
        let talk = async {
            let mut socket = UnixStream::connect(&bench.address).await.expect("the server listens");
            let mut answered = Vec::new();
            let (mut read, mut write) = socket.split();
            let say = async {
                // A client that is hung up on has said enough.
                let _ = write.write_all(&stream).await;
                let _ = write.shutdown().await;
            };
            let _ = tokio::join!(say, read.read_to_end(&mut answered));
            answered
        };
        bench.runtime.block_on(async { tokio::time::timeout(TIME_MAX, talk).await }).expect("the connection ends")
    });
    if let Some(sent) = transmission {
        let structured = how % 8 != 1;
        let start = answered_negotiation(&answered);
        check(&answered[start..], sent, structured, how % 8 < 4);
    }
}

/// How a client with good manners begins: for the read-only image or the other, with structured
/// replies or not.
fn begin(how: u8) -> Option<Vec<u8>> {
    let name = if how % 8 < 4 { b"image".as_slice() } else { b"overlay" };
    let options = match how % 8 {
        1 => vec![option(7, &go(name, &[3]))],
        0 | 4 => vec![option(8, b""), option(10, &contexts(name, &[b"base:allocation"])), option(7, &go(name, &[]))],
        2 | 6 => vec![option(8, b""), option(7, &go(name, &[]))],
        _ => return None,
    };
    Some([&FLAGS[..], &options.concat()].concat())
}

/// What a stream asks for, and whether it keeps to the protocol to its end.
fn requests(mut stream: &[u8]) -> (Vec<Request>, bool) {
    let (mut parser, mut found) = (Requests::default(), Vec::new());
    loop {
        match parser.next(stream) {
            Ok(Next::Request(request)) => {
                stream = &stream[HEADER_BYTES..];
                if request.command == Command::Disconnect {
                    return (found, true);
                }
                found.push(request);
            }
            Ok(Next::Payload(bytes)) => stream = &stream[bytes..],
            Ok(Next::More) => return (found, true),
            Err(_) => return (found, false),
        }
    }
}

fn wanted(stream: &[u8]) -> u64 {
    requests(stream).0.iter().map(|request| u64::from(request.length)).sum()
}

/// Length of the greeting and of all replies to options.
fn answered_negotiation(answered: &[u8]) -> usize {
    let mut at = 18;
    while let Some(reply) = answered[at..].first_chunk().and_then(ReplyHeader::parse) {
        at += REPLY_HEADER_BYTES + reply.length as usize;
    }
    at
}

fn check(mut answered: &[u8], sent: &[u8], structured: bool, read_only: bool) {
    let (asked, sound) = requests(sent);
    // By cookie: clients may use one several times, if they like to be confused.
    let mut open: BTreeMap<u64, Vec<Request>> = BTreeMap::new();
    for request in &asked {
        open.entry(request.cookie).or_default().push(*request);
    }
    // Nobody can tell answers to doubled cookies apart, and who breaks the protocol is hung up on
    // in the middle of one.
    if !sound || open.values().any(|requests| requests.len() > 1) {
        return;
    }
    while !answered.is_empty() {
        let (header, header_bytes) = Header::parse(answered).expect("a reply").expect("all of it");
        let rest = &answered[header_bytes..];
        let (cookie, done, data) = match header {
            Header::Simple { error, cookie } => {
                let of = open.get(&cookie).and_then(|requests| requests.first()).expect("an answer to a request");
                assert!(!structured || of.command != Command::Read, "a read has a structured reply");
                let data = if of.command == Command::Read && error == 0 { of.length as usize } else { 0 };
                if read_only && data > 0 {
                    same(&rest[..data], of.offset);
                }
                (cookie, true, data)
            }
            Header::Chunk { flags, kind, cookie, length } => {
                assert!(structured && open.contains_key(&cookie), "an answer to a request");
                let content = &rest[..length as usize];
                match kind {
                    kind::OFFSET_DATA if read_only => same(&content[8..], u64_at(content, 0)),
                    kind::OFFSET_HOLE if read_only => {
                        let (from, zeros) = (u64_at(content, 0), u64::from(u32_at(content, 8)));
                        assert!((from..from + zeros).all(|at| source::byte(at) == 0), "a hole where there is none");
                    }
                    _ => {}
                }
                (cookie, flags & flag::DONE != 0, content.len())
            }
        };
        if done {
            let requests = open.get_mut(&cookie).expect("an answer to a request");
            requests.pop();
            if requests.is_empty() {
                open.remove(&cookie);
            }
        }
        answered = &rest[data..];
    }
    // A write whose payload was cut off is no request; one that broke the protocol ends the
    // connection.
    let complete = open.values().flatten().all(|left| left.command == Command::Write);
    assert!(complete, "no answer to {open:?}");
}

fn same(bytes: &[u8], from: u64) {
    assert!(bytes.iter().zip(from..).all(|(byte, at)| *byte == source::byte(at)), "wrong bytes at {from}");
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}

/// An overlay's image has the name of its base; here it needs one of its own.
struct Named(Overlay);

impl BlockSource for Named {
    fn name(&self) -> &str {
        "overlay"
    }

    fn description(&self) -> String {
        self.0.description()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn chunk_bytes(&self) -> u32 {
        self.0.chunk_bytes()
    }

    fn try_read(&self, extent: vfield_block::extent::Extent, pieces: &mut Vec<vfield_block::source::Piece>) -> bool {
        self.0.try_read(extent, pieces)
    }

    fn read(&self, extent: vfield_block::extent::Extent) -> vfield_block::source::Reading<'_> {
        self.0.read(extent)
    }

    fn prefetch(&self, extent: vfield_block::extent::Extent, urgency: vfield_block::source::Urgency) {
        self.0.prefetch(extent, urgency);
    }

    fn allocation(&self, extent: vfield_block::extent::Extent) -> vfield_block::source::Allocating<'_> {
        self.0.allocation(extent)
    }

    fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    fn device(&self) -> Option<&dyn vfield_block::device::BlockDevice> {
        self.0.device()
    }
}

/// Requests of all kinds, to each export, and negotiations.
pub fn seeds() -> Vec<Vec<u8>> {
    let reads = [
        request(0, 0, 1, 0, 512),
        request(4, 0, 2, 262_000, 600),
        request(0, 7, 3, 0, 1 << 20),
        request(8, 7, 4, 500_000, 100_000),
        request(0, 5, 5, 0, 4096),
        request(0, 0, 6, 1 << 40, 1),
        request(0, 3, 7, 0, 0),
        request(0, 2, 8, 0, 0),
    ];
    let writes = [
        [request(1, 1, 1, 100, 5), b"bytes".to_vec()].concat(),
        request(0, 4, 2, 4096, 8192),
        request(2, 6, 3, 5000, 10_000),
        request(0, 0, 4, 0, 16_384),
        request(0, 3, 5, 0, 0),
        [request(0, 1, 6, 1 << 40, 5), b"bytes".to_vec()].concat(),
    ];
    let mut seeds = crate::nbd_negotiation::seeds();
    seeds.iter_mut().for_each(|seed| seed[0] = 3);
    for how in [0, 1, 2] {
        seeds.push([&[how][..], &reads.concat()].concat());
    }
    for how in [4, 6] {
        seeds.push([&[how][..], &writes.concat()].concat());
    }
    seeds
}
