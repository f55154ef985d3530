//! What the NBD tests share: an image in memory whose chunks are there or not as a test says, a
//! server around it, and a client that says exactly the bytes it is told to.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, FilePiece, Piece, ReadError, Reading, Urgency};
use vfield_export::nbd::codec::reply::Header;
use vfield_export::nbd::codec::{Request, option};
use vfield_export::nbd::{Address, Limits, Server, Serving};

pub const CHUNK: u64 = 64 << 10;

/// The defaults with a few other values.
pub fn limits(set: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    set(&mut limits);
    limits
}

/// What of an image is not there.
#[derive(Default)]
pub struct Gaps {
    pub missing: BTreeSet<u64>,
    pub broken: BTreeSet<u64>,
}

/// Every fourth chunk is zeros, the others lie in memory and in a file by turns.
pub struct Image {
    name: &'static str,
    pub bytes: Vec<u8>,
    file: Arc<OwnedFd>,
    gaps: watch::Sender<Gaps>,
    /// The chunks that reads wait for.
    waiting: watch::Sender<Vec<u64>>,
    pub prefetched: Mutex<Vec<Extent>>,
    pub pins: Arc<AtomicUsize>,
}

struct Pin(Arc<AtomicUsize>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Image {
    pub fn new(name: &'static str, length: usize) -> Arc<Self> {
        let value = |at: usize| if is_zero(at as u64 / CHUNK) { 0 } else { (at * 7 + at / 251) as u8 | 1 };
        let bytes: Vec<u8> = (0..length).map(value).collect();
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("room for the image");
        let (gaps, waiting) = (watch::Sender::default(), watch::Sender::default());
        let (prefetched, pins) = (Mutex::default(), Arc::default());
        Arc::new(Self { name, bytes, file: Arc::new(file.into()), gaps, waiting, prefetched, pins })
    }

    pub fn change(&self, change: impl FnOnce(&mut Gaps)) {
        self.gaps.send_modify(change);
    }

    /// Returns when so many reads wait.
    pub async fn until_waiting(&self, count: usize) {
        self.waiting.subscribe().wait_for(|waiting| waiting.len() == count).await.expect("the image lives");
    }

    /// Returns when a read waits for this chunk.
    pub async fn until_waiting_for(&self, chunk: u64) {
        self.waiting.subscribe().wait_for(|waiting| waiting.contains(&chunk)).await.expect("the image lives");
    }

    /// The device's bytes from `start` on: those of the image, then zeros.
    pub fn device(&self, start: u64, length: u64) -> Vec<u8> {
        (start..start + length).map(|at| self.bytes.get(at as usize).copied().unwrap_or(0)).collect()
    }

    /// Pieces from the start of `extent` up to the first chunk that is not there.
    fn pieces(&self, extent: Extent) -> Vec<Piece> {
        let gaps = self.gaps.borrow();
        let mut pieces = Vec::new();
        let mut at = extent.start();
        while at < extent.end() {
            let chunk = at / CHUNK;
            if gaps.missing.contains(&chunk) || gaps.broken.contains(&chunk) {
                break;
            }
            let end = extent.end().min((chunk + 1) * CHUNK);
            pieces.push(match chunk % 4 {
                _ if is_zero(chunk) => Piece::Zero(end - at),
                0 => Piece::Bytes(self.bytes[at as usize..end as usize].to_vec().into()),
                _ => {
                    self.pins.fetch_add(1, Ordering::SeqCst);
                    let pin = Box::new(Pin(self.pins.clone()));
                    Piece::File(FilePiece::new(self.file.clone(), at, end - at, Some(pin)))
                }
            });
            at = end;
        }
        pieces
    }
}

pub fn is_zero(chunk: u64) -> bool {
    chunk % 4 == 3
}

struct Counted<'a>(&'a watch::Sender<Vec<u64>>, u64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| {
            let place = waiting.iter().position(|chunk| *chunk == self.1).expect("it was put there");
            waiting.swap_remove(place);
        });
    }
}

impl BlockSource for Image {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> String {
        format!("the image {}", self.name)
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn chunk_bytes(&self) -> u32 {
        CHUNK as u32
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        assert!(!extent.is_empty() && extent.end() <= self.size_bytes(), "an export asked for {extent:?}");
        let found = self.pieces(extent);
        let complete = found.iter().map(Piece::len).sum::<u64>() == extent.len();
        if complete {
            pieces.extend(found);
        }
        complete
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        assert!(!extent.is_empty() && extent.end() <= self.size_bytes(), "an export asked for {extent:?}");
        Box::pin(async move {
            let first = extent.start() / CHUNK;
            self.waiting.send_modify(|waiting| waiting.push(first));
            let _counted = Counted(&self.waiting, first);
            let mut gaps = self.gaps.subscribe();
            let gaps = gaps.wait_for(|gaps| !gaps.missing.contains(&first)).await.expect("the image lives");
            if gaps.broken.contains(&first) {
                return Err(ReadError::TimedOut(extent));
            }
            drop(gaps);
            Ok(self.pieces(extent))
        })
    }

    fn prefetch(&self, extent: Extent, _: Urgency) {
        assert!(!extent.is_empty() && extent.end() <= self.size_bytes(), "an export asked for {extent:?}");
        self.prefetched.lock().expect("no test panicked").push(extent);
    }

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        let chunks = extent.start() / CHUNK..extent.end().div_ceil(CHUNK);
        let run = |chunk| Allocation {
            length_bytes: extent.clip(Extent::from(chunk * CHUNK..(chunk + 1) * CHUNK)).len(),
            zero: is_zero(chunk),
        };
        Box::pin(std::future::ready(Ok(chunks.map(run).collect())))
    }

    fn is_complete(&self) -> bool {
        self.gaps.borrow().missing.is_empty()
    }
}

/// A server on a socket in a directory of its own.
pub struct Served {
    pub serving: Serving,
    pub folder: tempfile::TempDir,
}

pub fn serve(images: &[Arc<Image>]) -> Served {
    serve_with(images, |server| server)
}

pub fn serve_one(image: &Arc<Image>) -> Served {
    serve(std::slice::from_ref(image))
}

pub fn serve_with(images: &[Arc<Image>], adjust: impl FnOnce(Server) -> Server) -> Served {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let address = Address::Unix(folder.path().join("nbd.sock"));
    let sources = images.iter().map(|image| image.clone() as Arc<dyn BlockSource>).collect();
    Served { serving: adjust(Server::bind(&address, sources).expect("a free path")).start(), folder }
}

impl Served {
    pub fn uri(&self) -> String {
        self.serving.address().uri("")
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.path()).expect("the server listens");
        // Only so that a test that would hang fails.
        stream.set_read_timeout(Some(Duration::from_secs(8))).expect("a socket option");
        Client { stream }
    }

    /// Returns when so many clients are connected.
    pub async fn until_connected(&self, count: u64) {
        while self.serving.counts().connections != count {
            tokio::task::yield_now().await;
        }
    }
}

/// A client that is told each byte.
pub struct Client {
    pub stream: UnixStream,
}

pub const SIMPLE: bool = false;
pub const STRUCTURED: bool = true;

impl Client {
    pub fn send(&mut self, parts: &[&[u8]]) {
        self.stream.write_all(&parts.concat()).expect("the server takes it");
    }

    pub fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return bytes,
                Ok(length) => bytes.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return bytes,
                Err(error) => panic!("the server did not close the connection: {error}"),
            }
        }
    }

    pub fn option(&mut self, option: u32, data: &[u8]) {
        self.send(&[&option::request(option, data)]);
    }

    /// The next reply to an option: its kind and its data.
    pub fn answer(&mut self) -> (u32, Vec<u8>) {
        let header = self.receive(option::REPLY_HEADER_BYTES);
        let header = header.first_chunk().and_then(option::ReplyHeader::parse).expect("a reply to an option");
        (header.kind, self.receive(header.length as usize))
    }

    /// Greeting and client flags.
    pub fn greet(&mut self) {
        assert_eq!(self.receive(18), b"NBDMAGICIHAVEOPT\x00\x03");
        self.send(&[&3_u32.to_be_bytes()]);
    }

    /// The whole handshake, for the first export; returns its size and flags.
    pub fn go(&mut self, structured: bool) -> (u64, u16) {
        self.greet();
        if structured {
            self.option(8, b"");
            assert_eq!(self.answer().0, 1);
        }
        self.option(7, &[0; 6]);
        let (kind, info) = self.answer();
        assert_eq!((kind, info.len()), (3, 12));
        assert_eq!(self.answer().0, 1);
        option::size_and_flags(&info).expect("size and flags")
    }

    pub fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&[&request(command, flags, cookie, offset, length)]);
    }

    /// The next simple reply's error and cookie.
    pub fn simple(&mut self) -> (u32, u64) {
        let header = self.receive(16);
        let Ok(Some((Header::Simple { error, cookie }, 16))) = Header::parse(&header) else { panic!("{header:?}") };
        (error, cookie)
    }

    /// The next chunk of a structured reply: flags, kind, cookie, data.
    pub fn chunk(&mut self) -> (u16, u16, u64, Vec<u8>) {
        let header = self.receive(20);
        let Ok(Some((Header::Chunk { flags, kind, cookie, length }, 20))) = Header::parse(&header) else {
            panic!("{header:?}")
        };
        (flags, kind, cookie, self.receive(length as usize))
    }
}

pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    Request { command: command.into(), flags, cookie, offset, length }.header().to_vec()
}

/// True if `program` can be run. Otherwise the test is skipped, and fails where CI is set.
pub fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    assert!(found || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{program} is not installed");
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Runs a program that has to succeed, and returns what it printed.
pub async fn run(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments).await;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

pub async fn output(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("9").arg(program).args(arguments);
    // nbdsh takes the first python3 there is, and libnbd's module belongs to the system's.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("/usr/bin:/bin:{path}"));
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("timeout(1) is there")
}
