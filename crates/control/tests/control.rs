//! The control socket against friends and foes, with a daemon made of bytes in memory.

use std::fs::File;
use std::future::ready;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, Piece, ReadError, Reading, Urgency};
use vfield_control::client::Client;
use vfield_control::events::EventStatus;
use vfield_control::fd_message;
use vfield_control::message::{DaemonStatus, DrainLeft, Freed, Reply, Request, Serve};
use vfield_control::recording::{LONGEST, Recording};
use vfield_control::server::{Daemon, Lent, Pending, Server};
use vfield_control::values::until::Until;
use vfield_node::trace::{Did, Recorded, TraceEvent};

/// Bytes in memory: a hole, then data; the last tenth cannot be read.
struct Memory(Vec<u8>);

const HOLE: u64 = 300_000;

impl BlockSource for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn description(&self) -> String {
        "abcd".repeat(16)
    }

    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn chunk_bytes(&self) -> u32 {
        1 << 16
    }

    fn try_read(&self, _: Extent, _: &mut Vec<Piece>) -> bool {
        false
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        Box::pin(async move {
            if extent.start() < HOLE {
                return Ok(vec![Piece::Zero(extent.len().min(HOLE - extent.start()))]);
            }
            if extent.start() >= self.size_bytes() / 10 * 9 {
                return Err(ReadError::TimedOut(extent));
            }
            let part = extent.take(70_000).clip(Extent::from(0..self.size_bytes() / 10 * 9));
            Ok(vec![Piece::Bytes(self.0[part.start() as usize..part.end() as usize].to_vec().into())])
        })
    }

    fn prefetch(&self, _: Extent, _: Urgency) {}

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        Box::pin(async move { Ok(vec![Allocation { length_bytes: extent.len(), zero: false }]) })
    }

    fn is_complete(&self) -> bool {
        false
    }
}

struct Fake(Arc<Memory>);

impl Daemon for Fake {
    fn status(&self) -> Pending<'_, Result<DaemonStatus, Reply>> {
        Box::pin(async { Ok(DaemonStatus { control: "here".to_owned(), ..DaemonStatus::default() }) })
    }

    fn wait(&self, until: Until) -> Pending<'_, Result<(), Reply>> {
        match until {
            Until::Ready | Until::Filled => Box::pin(async { Ok(()) }),
            Until::Covered(_) => Box::pin(std::future::pending()),
        }
    }

    fn events(&self, after: u64, most: usize) -> Vec<EventStatus> {
        let event = |number| EventStatus { number, ..EventStatus::default() };
        let first = (after + 1).max(4u64.saturating_sub(most as u64));
        (first..=3).map(event).collect()
    }

    fn await_events(&self, after: u64) -> Pending<'_, ()> {
        if after < 3 { Box::pin(async {}) } else { Box::pin(std::future::pending()) }
    }

    fn image(&self, wanted: &str) -> Result<Lent, Reply> {
        let lent = || Lent { source: self.0.clone(), until: Box::new(()) };
        if wanted == "memory" { Ok(lent()) } else { Err(Reply::refused("no such image", "none")) }
    }

    fn overlay_save(&self, _: Option<String>, mut file: File) -> Pending<'_, Reply> {
        Box::pin(async move { file.write_all(b"saved").map_or(Reply::Done, |()| Reply::Saved { bytes: 5 }) })
    }

    fn overlay_reset(&self, image: Option<String>, _: bool) -> Pending<'_, Reply> {
        Box::pin(async move { if image.is_none() { Reply::Done } else { Reply::refused("no such overlay", "none") } })
    }

    fn add_image(&self, image: String, store: Option<String>) -> Pending<'_, Reply> {
        let names = std::iter::once(image).chain(store).collect();
        Box::pin(async move { Reply::Added { names, id: String::new() } })
    }

    fn add_file(&self, mut file: File, _hashes: Option<File>, serve: Serve) -> Pending<'_, Reply> {
        let mut text = String::new();
        let read = file.read_to_string(&mut text).map_or_else(|error| error.to_string(), |_| text);
        Box::pin(async move { Reply::Added { names: vec![serve.name, read], id: String::new() } })
    }

    fn drop_image(&self, image: String, force: bool) -> Pending<'_, Reply> {
        Box::pin(
            async move { if force { Reply::Done } else { Reply::refused(format!("{image} is in use"), "--force") } },
        )
    }

    fn upgrade(&self, witness: Option<File>) -> Pending<'_, Reply> {
        Box::pin(async move {
            if witness.is_some() { Reply::HandingOver } else { Reply::refused("it has no guard", "--guard") }
        })
    }

    fn pin(&self, image: &str, release: bool) -> Reply {
        Reply::refused(format!("{image} {release}"), "")
    }

    fn compare(&self, image: &str, with: &str) -> Pending<'_, Reply> {
        let (with_data, same) = (image.len() as u64, with.len() as u64);
        Box::pin(async move { Reply::Shared { with_data, same } })
    }

    fn collect(&self) -> Pending<'_, Reply> {
        let freed = Freed { image: "old".to_owned(), id: "1".to_owned(), bytes: 5 };
        Box::pin(async { Reply::Collected { freed: vec![freed] } })
    }

    fn learned(&self, image: Option<&str>) -> Reply {
        Reply::Learned { image: image.unwrap_or_default().to_owned(), image_bytes: 1, machines: 0, runs: Vec::new() }
    }

    fn explain(&self, image: Option<String>, offset: Option<u64>, _: bool) -> Pending<'_, Reply> {
        Box::pin(ready(Reply::refused(format!("{image:?} {offset:?}"), "")))
    }

    fn record(&self) -> Result<Recording, Reply> {
        let mut parts = 0;
        Ok(Box::new(move || {
            parts += 1;
            let event = |at_us| TraceEvent { at_us, of: None, did: Did::Stored };
            Recorded { events: vec![event(parts), event(parts)], missed: 1 }
        }))
    }

    fn limit(&self, _image: Option<&str>, up: Option<&str>, down: Option<&str>) -> Reply {
        Reply::refused(format!("{up:?} {down:?}"), "")
    }

    fn tag(&self, tag: vfield_core::tags::SignedTag) -> Reply {
        Reply::refused(tag.text, tag.signature)
    }

    fn reload_keys(&self) -> Pending<'_, Reply> {
        Box::pin(ready(Reply::Keys { ids: vec!["0a0b0c0d".to_owned()], admission: None }))
    }

    fn drain(&self, _: Duration) -> Pending<'_, Reply> {
        Box::pin(ready(Reply::Drained { left: DrainLeft::default() }))
    }

    fn undrain(&self) -> Pending<'_, Reply> {
        Box::pin(ready(Reply::Done))
    }

    fn rehearse_leave(&self) -> Pending<'_, Reply> {
        Box::pin(async { Reply::WouldLose { alone: false, images: Vec::new(), dependents: Vec::new() } })
    }

    fn leave(&self, _: Duration, _: bool) -> Pending<'_, Reply> {
        Box::pin(async { Reply::Left { handed_over: 1, lost: 0 } })
    }
}

struct Stage {
    path: PathBuf,
    image: Arc<Memory>,
    server: Option<Server>,
    runtime: Runtime,
    _dir: TempDir,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        bytes[..HOLE as usize].fill(0);
        let image = Arc::new(Memory(bytes));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(async {
            Server::start(tokio::net::UnixListener::from_std(listener).unwrap(), Arc::new(Fake(image.clone())))
        });
        Self { path, image, server: Some(server), runtime, _dir: dir }
    }

    fn ask(&self, request: &Request) -> Client {
        let mut client = Client::connect(Some(&self.path)).unwrap();
        client.send(request).unwrap();
        client
    }

    /// What the daemon says to raw bytes whose sender then has no more to say.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        // The daemon may have hung up in the middle of rubbish.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn cat(stage: &Stage, offset: u64, length: Option<u64>) -> Result<Vec<u8>, String> {
    let mut client = stage.ask(&Request::Cat { image: "memory".to_owned(), offset, length });
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match client.read(&mut buffer).map_err(|failure| failure.fact().to_owned())? {
            0 => return Ok(all),
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

#[test]
fn events_come_once_or_as_they_happen() {
    let stage = Stage::new();
    let ask = |after, most, follow| stage.ask(&Request::Events { after, most, follow });
    let numbers = |client: &mut Client| match client.reply() {
        Ok(Reply::Events { events }) => events.iter().map(|event| event.number).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(numbers(&mut ask(0, 2, false)), [2, 3]);
    assert!(numbers(&mut ask(3, 2, false)).is_empty());
    // The fake has all three at once; afterwards there is nothing more to say.
    assert_eq!(numbers(&mut ask(1, 9, true)), [2, 3]);
    let mut once = ask(0, 1, false);
    assert_eq!(numbers(&mut once), [3]);
    assert!(once.reply().is_err());
}

#[test]
fn a_recording_comes_in_parts_and_has_an_end() {
    let stage = Stage::new();
    let ask = |duration_ms| stage.ask(&Request::Trace { duration_ms });
    let mut client = ask(60);
    // The first part says that it has begun.
    assert_eq!(client.reply(), Ok(Reply::Recorded(Recorded::default())));
    let (mut last, mut parts) = (0, 0);
    loop {
        match client.reply() {
            Ok(Reply::Recorded(Recorded { events, missed: 1 })) => {
                assert_eq!(events.iter().map(|event| event.at_us).collect::<Vec<_>>(), [last + 1; 2]);
                (last, parts) = (last + 1, parts + 1);
            }
            Ok(Reply::Done) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(parts > 0);
    let longer = u64::try_from(LONGEST.as_millis()).unwrap() + 1;
    for (duration_ms, fact) in [(0, "a trace of 0 s"), (longer, "a trace of 60.001 s")] {
        assert_eq!(ask(duration_ms).reply().unwrap_err().fact(), fact);
    }
    assert!(ask(u64::MAX).reply().is_err());
}

#[test]
fn orders_get_their_answers() {
    let stage = Stage::new();
    assert!(matches!(stage.ask(&Request::Status).reply(), Ok(Reply::Status { status }) if status.control == "here"));
    let wait = |until, timeout_ms| stage.ask(&Request::Wait { until, timeout_ms }).reply();
    assert_eq!(wait(Until::Filled, None), Ok(Reply::Reached));
    assert_eq!(wait(Until::COVERED, Some(1)), Ok(Reply::TimedOut));
    assert_eq!(
        stage.ask(&Request::Leave { timeout_ms: 1, force: false, dry_run: false }).reply(),
        Ok(Reply::Left { handed_over: 1, lost: 0 })
    );
}

#[test]
fn a_file_comes_with_the_order_to_save_in_it() {
    let stage = Stage::new();
    let save = Request::OverlaySave { image: None };
    let mut file = tempfile::tempfile().unwrap();
    let mut client = Client::connect(Some(&stage.path)).unwrap();
    client.send_with(&save, &file).unwrap();
    assert_eq!(client.reply(), Ok(Reply::Saved { bytes: 5 }));
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "saved");
    assert_eq!(stage.ask(&save).reply().unwrap_err().fact(), "a save without a file");
    // Of several files one is taken, and the others are closed.
    let stream = UnixStream::connect(&stage.path).unwrap();
    for byte in save.line() {
        fd_message::send(&stream, None, &[byte], Some(file.as_fd())).unwrap();
    }
    let mut answer = String::new();
    (&stream).read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"saved\""), "{answer}");
}

#[test]
fn an_image_comes_byte_for_byte() {
    let stage = Stage::new();
    let image = &stage.image.0;
    assert!(cat(&stage, 0, Some(900_000)).unwrap() == image[..900_000]);
    assert!(cat(&stage, 299_999, Some(200_002)).unwrap() == image[299_999..500_001]);
    assert_eq!(cat(&stage, 1_000_000, None), Ok(Vec::new()));
    assert_eq!(cat(&stage, 5, Some(0)), Ok(Vec::new()));
}

#[test]
fn what_cannot_be_read_is_said_and_not_made_up() {
    let stage = Stage::new();
    assert!(cat(&stage, 0, None).unwrap_err().contains("no copy of bytes 900000..1000000"));
    for (offset, length) in [(1_000_001, None), (0, Some(1_000_001)), (u64::MAX, Some(u64::MAX)), (1, Some(u64::MAX))] {
        assert!(cat(&stage, offset, length).unwrap_err().contains("past its end"), "{offset} {length:?}");
    }
    let mut unknown = stage.ask(&Request::Cat { image: "x".to_owned(), offset: 0, length: None });
    assert_eq!(unknown.reply().unwrap_err().fact(), "no such image");
}

#[test]
fn rubbish_is_refused_or_cut_off_and_others_are_served() {
    let stage = Stage::new();
    assert!(stage.raw(b"GET / HTTP/1.1\r\n").contains("not a control request"));
    assert!(stage.raw(b"{\"vfield\":9,\"op\":\"status\"}\n").contains("control version 9"));
    assert_eq!(stage.raw(b"{\"vfield\":1,\"op\":\"stat"), "");
    assert_eq!(stage.raw(b""), "");
    assert_eq!(stage.raw(&vec![b'x'; 1 << 20]), "");
    assert!(stage.raw(&Request::Status.line()).contains("\"reply\":\"status\""));
}

#[test]
fn many_clients_that_say_nothing_do_not_lock_others_out_for_ever() {
    let stage = Stage::new();
    let silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&stage.path).unwrap()).collect();
    drop(silent);
    assert!(stage.ask(&Request::Status).reply().is_ok());
}

#[test]
fn finishing_waits_for_answers_and_not_for_the_silent() {
    let mut stage = Stage::new();
    let mut waiting = stage.ask(&Request::Wait { until: Until::COVERED, timeout_ms: None });
    let server = stage.server.take().unwrap();
    stage.runtime.block_on(server.finish());
    drop(stage);
    assert!(waiting.reply().unwrap_err().fact().contains("did not answer"));
}

#[test]
fn no_daemon_is_a_failure_with_a_hint() {
    let failure = Client::connect(Some(Path::new("/nonexistent/control.sock"))).unwrap_err();
    assert!(failure.to_string().contains("no daemon runs at /nonexistent/control.sock\nhint: start one with"));
}
