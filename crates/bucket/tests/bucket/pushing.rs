//! Pushing an image to a registry, which cuts uploads off, refuses, and lies.

use crate::image::{CHUNK, Image};
use crate::runtime;
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfield_bucket::{BucketError, Source as _, Uploaded};
use vfield_object::Push;

/// What a registry does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// It takes so many bytes of the second part, and hangs up; once.
    Cuts(usize),
    /// It refuses the third part, once, and asks for a pause of a second.
    Busy,
    /// It refuses manifests.
    Refuses,
    /// It says that it has more bytes than were sent; after it has cut a part off.
    Lies,
}

#[derive(Default)]
struct State {
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, Vec<u8>>,
    upload: Vec<u8>,
    parts: usize,
    /// When it asked for a pause, and how long it got one.
    busy: Option<Instant>,
    pause: Option<Duration>,
}

struct Registry {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Registry {
    fn start(wrong: Wrong) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, state) = (listener.local_addr().unwrap(), Arc::<Mutex<State>>::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client may hang up.
                let _ = answer(stream.unwrap(), &shared, wrong);
            }
        });
        Self { addr, state }
    }

    fn push(&self, image: &Arc<Image>) -> Result<Uploaded, BucketError> {
        let push = Arc::new(Push::parse(&format!("oci:{}/lab/disk:1", self.addr), &|_| None).unwrap());
        runtime().block_on(vfield_bucket::push(&push, "disk.img", image, &|_| {}))
    }
}

/// One request on a connection of its own.
fn answer(stream: TcpStream, state: &Mutex<State>, wrong: Wrong) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let Some((method, rest)) = lines.first().and_then(|line| line.split_once(' ')) else { return Ok(()) };
    let target = rest.split(' ').next().unwrap_or_default();
    let header = |name: &str| lines.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut state = state.lock().unwrap();
    let goes_on = "location: /v2/lab/disk/blobs/uploads/7?state=x\r\n".to_owned();
    let (status, headers, missing) = (201, String::new(), (404, String::new()));
    let (status, headers) = match (method, target.rsplit_once('/').unwrap()) {
        ("HEAD", (_, digest)) => state.blobs.get(digest).map_or(missing, |_| (200, headers)),
        ("POST", _) => {
            state.upload.clear();
            (202, goes_on)
        }
        ("PATCH", _) => {
            state.parts += 1;
            let from: usize = header("content-range").unwrap().split('-').next().unwrap().parse().unwrap();
            let mut bytes = vec![0; length];
            let cut = match wrong {
                Wrong::Cuts(bytes) if state.parts == 3 => Some(bytes),
                Wrong::Lies if state.parts == 3 => Some(0),
                _ => None,
            };
            stream.read_exact(&mut bytes[..cut.unwrap_or(length)])?;
            if from != state.upload.len() {
                return reply(&mut stream, 416, &goes_on);
            }
            if wrong == Wrong::Busy && state.parts == 3 {
                state.busy = Some(Instant::now());
                return reply(&mut stream, 429, "retry-after: 1\r\n");
            }
            state.upload.extend(&bytes[..cut.unwrap_or(length)]);
            if cut.is_some() {
                return Ok(());
            }
            (202, goes_on)
        }
        ("GET", _) => {
            state.pause = state.busy.map(|since| since.elapsed());
            let more = if wrong == Wrong::Lies { 1 << 40 } else { 0 };
            let last = (state.upload.len() + more).saturating_sub(1);
            (204, format!("{goes_on}range: 0-{last}\r\n"))
        }
        ("PUT", (dir, tag)) if dir.ends_with("/manifests") => {
            let mut bytes = vec![0; length];
            stream.read_exact(&mut bytes)?;
            if wrong != Wrong::Refuses {
                state.manifests.insert(tag.to_owned(), bytes);
            }
            (if wrong == Wrong::Refuses { 403 } else { status }, headers)
        }
        ("PUT", (_, end)) => {
            let named = end.split_once("digest=").unwrap().1.to_owned();
            let bytes = std::mem::take(&mut state.upload);
            let own = digest(&SHA256, &bytes)
                .as_ref()
                .iter()
                .fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"));
            let is_right = own == named;
            state.blobs.insert(own, bytes);
            (if is_right { status } else { 400 }, headers)
        }
        other => panic!("{other:?}"),
    };
    drop(state);
    reply(&mut stream, status, &headers)
}

fn reply(stream: &mut BufReader<TcpStream>, status: u16, headers: &str) -> std::io::Result<()> {
    stream.get_mut().write_all(
        format!("HTTP/1.1 {status} x\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n").as_bytes(),
    )?;
    // Unread bytes would reset the connection before the answer is read.
    stream.read(&mut [0]).map(drop)
}

/// An image of three parts.
fn image() -> Arc<Image> {
    Image::drawn(1..(40 << 20) / CHUNK as u32)
}

#[test]
fn an_image_is_pushed_with_its_hashes_and_not_twice() {
    let (registry, image) = (Registry::start(Wrong::Nothing), image());
    let pushed = registry.push(&image).unwrap();
    assert!(!pushed.was_there && pushed.id == image.id() && pushed.sent_bytes > image.bytes.len() as u64);
    {
        let state = registry.state.lock().unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&state.manifests["1"]).unwrap();
        let blob = |layer: usize| &state.blobs[manifest["layers"][layer]["digest"].as_str().unwrap()];
        let title = |layer: usize| &manifest["layers"][layer]["annotations"]["org.opencontainers.image.title"];
        assert!(*blob(0) == image.bytes && image.has_hashes(blob(1)));
        assert_eq!((title(0).as_str(), title(1).as_str()), (Some("disk.img"), Some("disk.img.vfh")));
        assert_eq!(manifest["layers"][0]["size"], image.bytes.len() as u64);
        assert_eq!(state.blobs[manifest["config"]["digest"].as_str().unwrap()], b"{}");
    }
    let again = registry.push(&image).unwrap();
    assert!(again.was_there && again.sent_bytes < 2000, "{again:?}");
}

#[test]
fn a_part_that_is_cut_off_goes_on_where_it_ended() {
    for bytes in [0, 1 << 20, (5 << 20) + 7] {
        let (registry, image) = (Registry::start(Wrong::Cuts(bytes)), image());
        registry.push(&image).unwrap();
        let state = registry.state.lock().unwrap();
        assert!(state.blobs.values().any(|blob| *blob == image.bytes), "{bytes}");
        assert_eq!(state.manifests.len(), 1);
    }
}

#[test]
fn a_busy_registry_gets_the_pause_that_it_asks_for() {
    let (registry, image) = (Registry::start(Wrong::Busy), image());
    registry.push(&image).unwrap();
    let state = registry.state.lock().unwrap();
    assert!(state.blobs.values().any(|blob| *blob == image.bytes));
    assert!(state.pause.is_some_and(|pause| pause >= Duration::from_secs(1)), "{:?}", state.pause);
}

#[test]
fn a_refusal_and_a_lie_are_told_and_name_no_image() {
    for (wrong, says) in [(Wrong::Refuses, "its manifest: 403 Forbidden"), (Wrong::Lies, "more bytes than were sent")] {
        let registry = Registry::start(wrong);
        let refused = registry.push(&image()).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
        assert!(registry.state.lock().unwrap().manifests.is_empty());
    }
}
