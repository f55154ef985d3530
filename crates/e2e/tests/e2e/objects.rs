//! Images that are objects of a store on the network, and a store that does what stores do wrong.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::NEWS;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::{FILL_LIMIT, Start};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Fault, FaultProxy, Lab, LabError, Vfield, WebServer, client, wait_until};

/// Some runs of 4 MiB, and a part of one.
const IMAGE: u64 = 24 * MIB + 777;
/// The longest pause before a failing object is asked again: a reader that waits for the object
/// waits as long.
const PAUSE: Duration = Duration::from_secs(5);
/// A state of a store is known after a read or two, with such pauses.
const SOON: Duration = Duration::from_secs(20);

/// What a node says of a chunk that an origin does not deliver.
const UNDELIVERED: &str = "an origin has it, but did not deliver it";

/// A directory with an image, a web server for it, and a proxy in front. Dropped in this order.
struct Store {
    proxy: FaultProxy,
    server: WebServer,
    image: PathBuf,
    vfield: Vfield,
    lab: Lab,
}

impl Store {
    fn start(hosts: usize) -> Result<Self, LabError> {
        let (lab, vfield) = (Lab::loopback(hosts)?, vfield());
        let dir = lab.dir().join("bucket");
        std::fs::create_dir(&dir).map_err(LabError::at(&dir))?;
        let image = random_file(&dir.join("disk.img"), IMAGE, 1)?;
        let ip = lab.host(0).addr().ip();
        let server = WebServer::start(ip, &dir)?;
        let proxy = FaultProxy::start(ip, server.addr())?;
        Ok(Self { proxy, server, image, vfield, lab })
    }

    /// Puts the hashes of the image beside it.
    fn keep_hashes(&self) -> Outcome {
        let beside = beside(&self.image);
        let mut command = std::process::Command::new(self.vfield.path());
        run(command.arg("id").arg(&self.image).arg("--hashes").arg(beside))?;
        Ok(())
    }

    fn url(&self) -> String {
        format!("http://{}/disk.img", self.proxy.addr())
    }

    fn serve(&self) -> Start<'_> {
        self.vfield.serve(self.lab.host(0), &[Path::new(&self.url())]).name("origin")
    }

    fn join(&self, node: usize, through: &Daemon, store: &str) -> Start<'_> {
        self.vfield.join(self.lab.host(node), through.addr()).store(store).args(&["--join-boost", "9"])
    }

    fn compare(&self, host: usize, daemon: &Daemon) -> Result<(), LabError> {
        client::compare_all(self.lab.host(host), daemon, &self.image)
    }
}

fn beside(image: &Path) -> PathBuf {
    image.with_extension("img.vfh")
}

fn source(status: &Value) -> (&str, &str) {
    let source = &status["images"][0]["source"];
    (source["state"].as_str().unwrap_or_default(), source["why"].as_str().unwrap_or_default())
}

/// How many reads it has asked for once more because they were slow, as on a busy machine. There is
/// one at the start, and then one in twenty at most.
fn asked_besides(origin: &Daemon) -> u64 {
    origin.process().log().matches("asked besides").count() as u64
}

#[test]
fn an_object_with_its_hashes_is_read_once() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(3)?;
    store.keep_hashes()?;
    let origin = store.serve().args(&["-v"]).ready()?;
    let (besides, before) = (asked_besides(&origin), store.proxy.passed());
    assert!(before.body_bytes < (5 + besides * 4) * MIB, "the hashes and one run: {besides} {before:?}");
    let first = store.join(1, &origin, "40%").ready()?;
    let second = store.join(2, &first, "40%").ready()?;
    store.compare(1, &first)?;
    store.compare(2, &second)?;
    // The origin itself reads it too.
    store.compare(0, &origin)?;
    let passed = store.proxy.passed();
    // One image, one byte of each object, and the hashes.
    let besides = asked_besides(&origin);
    assert!(passed.body_bytes < IMAGE + MIB + besides * 4 * MIB, "{besides} {passed:?}");
    assert!(passed.requests <= IMAGE.div_ceil(4 * MIB) + 4 + besides, "{besides} {passed:?}");
    assert_eq!(source(&origin.status()?), ("checked", ""));
    Ok(())
}

#[test]
fn an_object_without_hashes_is_hashed_first() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    let mut origin = store.serve().ready()?;
    let node = store.join(1, &origin, "all").ready()?;
    store.compare(1, &node)?;
    origin.kill();

    // Hashes of other bytes are seen, and not used.
    std::fs::write(beside(&store.image), "no hashes at all")?;
    let mut origin = store.serve().ready()?;
    origin.says("disk.img.vfh is not used", NEWS)?;
    origin.kill();
    std::fs::remove_file(beside(&store.image))?;
    store.keep_hashes()?;
    random_file(&store.image, IMAGE, 2)?;
    let mut origin = store.serve().ready()?;
    origin.says("hashes are those of other bytes", NEWS)?;
    store.compare(0, &origin)?;
    Ok(())
}

#[test]
fn reads_wait_while_a_store_fails_and_go_on_after_that() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    store.keep_hashes()?;
    for (fault, says) in [
        (Fault::Status(429, 1), "429 Too Many Requests"),
        (Fault::Status(503, 0), "503 Service Unavailable"),
        (Fault::Status(403, 0), "403 Forbidden"),
        (Fault::Closed, "connection closed"),
        (Fault::Cut, "was cut after"),
        (Fault::Page, "a page (text/html; charset=utf-8) instead of bytes"),
        (Fault::NoRanges, "no range support"),
    ] {
        let mut origin = store.serve().ready()?;
        let mut node = store.join(1, &origin, "0").ready()?;
        store.proxy.set(fault);
        std::thread::scope(|scope| {
            let [own, other] = [(0, &origin), (1, &node)].map(|(host, daemon)| {
                let store = &store;
                scope.spawn(move || store.compare(host, daemon))
            });
            let is_said = |status: &Value| source(status).0 == "unreachable" && source(status).1.contains(says);
            let said = origin.wait_status(says, SOON, is_said);
            store.proxy.set(Fault::None);
            let read = [own, other].map(|reader| reader.join().expect("a reader does not panic"));
            read.into_iter().fold(said, Result::and)
        })?;
        origin.wait_status("it delivers", SOON, |status| source(status) == ("checked", ""))?;
        node.kill();
        origin.kill();
    }
    Ok(())
}

#[test]
fn a_mirror_serves_while_the_first_place_fails() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    store.keep_hashes()?;
    let mirror = FaultProxy::start(store.lab.host(0).addr().ip(), store.server.addr())?;
    let mirror_url = format!("http://{}/disk.img", mirror.addr());
    let serve = || store.serve().args(&["--mirror", &mirror_url]).ready();
    for fault in [Fault::Closed, Fault::Status(403, 0), Fault::Status(429, 30), Fault::Page, Fault::Stalled(SOON)] {
        let mut origin = serve()?;
        let mut node = store.join(1, &origin, "0").ready()?;
        let before = mirror.passed();
        store.proxy.set(fault);
        store.compare(1, &node)?;
        assert!(mirror.passed().body_bytes > before.body_bytes + IMAGE / 2, "{fault:?}");
        assert_eq!(source(&origin.status()?), ("checked", ""), "{fault:?}");
        origin.says("delivers in place of", NEWS)?;
        node.kill();
        origin.kill();
        store.proxy.set(Fault::None);
    }

    // It serves from the start.
    store.proxy.set(Fault::Status(404, 0));
    let origin = serve()?;
    mirror.set(Fault::Status(503, 0));
    // If both fail, both are told.
    store.proxy.set(Fault::Status(403, 0));
    let node = store.join(1, &origin, "0").ready()?;
    let reading = std::thread::scope(|scope| {
        let reader = scope.spawn(|| store.compare(1, &node));
        let both = |status: &Value| ["403 Forbidden", "503 Service"].iter().all(|why| source(status).1.contains(why));
        let said = origin.wait_status("both", SOON, both);
        mirror.set(Fault::None);
        said.and(reader.join().expect("a reader does not panic"))
    });
    Ok(reading?)
}

#[test]
fn stores_go_on_without_the_object() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(3)?;
    store.keep_hashes()?;
    let origin = store.serve().ready()?;
    let first = store.join(1, &origin, "all").ready()?;
    first.wait("filled", FILL_LIMIT)?;
    for (fault, size) in [(Fault::Status(403, 0), "50%"), (Fault::Closed, "0"), (Fault::Status(429, 30), "0")] {
        store.proxy.set(fault);
        let mut second = store.join(2, &origin, size).ready()?;
        store.compare(2, &second)?;
        let slow: Value = serde_json::from_str(&run(second.ask("explain").args(["--slow", "--json"]))?)?;
        let of_origin = origin.addr().to_string();
        let reads = slow["slow"].as_array().map_or(&[][..], Vec::as_slice);
        let longest = |of: &dyn Fn(&&Value) -> bool| {
            reads.iter().filter(of).filter_map(|read| read["waited_s"].as_f64()).fold(0.0, f64::max)
        };
        // On a busy machine reads wait for the node that has the chunks, too, and the origin's
        // answers are late.
        let waited_s = longest(&|read| read["cause_addr"].as_str() == Some(&of_origin));
        assert!(waited_s < PAUSE.as_secs_f64(), "{fault:?}: {slow}");
        println!(
            "{fault:?}: the longest wait of a read was {:.3} s, of one for the origin {waited_s:.3} s",
            longest(&|_| true)
        );
        second.kill();
    }
    Ok(())
}

#[test]
fn a_read_that_waits_for_a_silent_store_is_told_where_it_waits() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    store.keep_hashes()?;
    let origin = store.serve().ready()?;
    let node = store.join(1, &origin, "0").ready()?;
    store.proxy.set(Fault::Stalled(Duration::from_secs(600)));
    let waiting = |status: &Value| status["images"][0]["waiting"].as_array().cloned().unwrap_or_default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| store.compare(1, &node));
        let is_shown = |status: &Value| waiting(status).iter().any(|chunk| chunk["why"] == UNDELIVERED);
        let shown = node.wait_status(UNDELIVERED, SOON, is_shown);
        store.proxy.set(Fault::None);
        let read = reader.join().expect("the reader does not panic");
        shown.and(read)
    })?;
    node.wait_status("nothing waits", NEWS, |status| waiting(status).is_empty())?;
    Ok(())
}

/// As many readers at once as `VFIELD_OBJECT_READERS` says, of as many MiB as `VFIELD_OBJECT_MIB`.
/// Says what they cost the store.
#[test]
fn a_room_that_starts_reads_the_object_once() -> Outcome {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
    };
    let (readers, mib) = (number("VFIELD_OBJECT_READERS", 4), number("VFIELD_OBJECT_MIB", 24));
    a_room_reads(readers as usize, mib * MIB, number("VFIELD_OBJECT_CACHE_MIB", 128), "none")
}

#[test]
fn an_object_larger_than_the_origins_memory_is_read_about_once() -> Outcome {
    // Readers at the pace of a link, not of what this machine has left for them.
    a_room_reads(8, 96 * MIB, 32, "24MB")
}

/// Readers with small stores read an object at once, and its store is read about once.
fn a_room_reads(readers: usize, bytes: u64, cache_mib: u64, limit: &str) -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(readers + 1)?;
    random_file(&store.image, bytes, 1)?;
    store.keep_hashes()?;
    // Together they hold each chunk twice.
    let (cache, share) = (format!("{cache_mib}M"), format!("{}%", 200 / readers));
    let origin = store.serve().args(&["--object-cache", &cache, "--limit-up", limit]).ready()?;
    let join = |host: usize| store.join(host, &origin, &share).spawn();
    let mut nodes = (1..=readers).map(join).collect::<Result<Vec<Daemon>, LabError>>()?;
    nodes.iter_mut().try_for_each(|node| node.wait_ready(SOON))?;
    std::thread::scope(|scope| {
        let read = |(host, node)| {
            let store = &store;
            scope.spawn(move || store.compare(host + 1, node))
        };
        let reading: Vec<_> = nodes.iter().enumerate().map(read).collect();
        reading.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
    })?;
    let passed = store.proxy.passed();
    let [images, gets] =
        [passed.body_bytes as f64, passed.requests as f64 * 1024.0 * MIB as f64].map(|count| count / bytes as f64);
    let sent = origin.status()?["traffic"]["to_peers_bytes"].as_u64().unwrap_or_default() as f64 / bytes as f64;
    println!("{readers} readers: {images:.3} images, {gets:.0} requests for each GiB; to nodes {sent:.3} images");
    // Beyond the origin's memory, homes come for chunks in time; without that it is 3 to 6 images.
    // A machine with much other work may take too long now and then.
    let (runs, beyond) = (bytes.div_ceil(4 * MIB), bytes > cache_mib * MIB);
    let spare = if beyond { bytes / 2 } else { bytes / 20 + 8 * MIB };
    assert!(passed.body_bytes < bytes + spare, "{images:.3} images");
    assert!(beyond || passed.requests <= runs + runs / 6 + 6, "{passed:?}");
    Ok(())
}

#[test]
fn another_object_under_the_name_is_said_and_never_served() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(2)?;
    store.keep_hashes()?;

    // The same bytes, written again.
    let mut origin = store.serve().ready()?;
    store.proxy.set(Fault::OtherETag);
    store.compare(0, &origin)?;
    let is_told = |status: &Value| status["warnings"].to_string().contains("is another object now: its ETag was");
    origin.wait_status("the change is told", SOON, is_told)?;
    origin.kill();

    // One byte of each run is another.
    store.proxy.set(Fault::None);
    let origin = store.serve().ready()?;
    let node = store.join(1, &origin, "0").ready()?;
    store.proxy.set(Fault::WrongByte);
    let copy = store.lab.dir().join("copy");
    let read = client::nbdcopy(store.lab.host(1), &node.uri("disk.img"), &copy);
    assert!(read.is_err(), "the reader of a changed chunk got bytes");
    origin.wait_status("changed", SOON, |status| source(status).0 == "changed")?;
    Ok(())
}

#[test]
fn a_shorter_object_is_said_and_never_served() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let store = Store::start(1)?;
    store.keep_hashes()?;
    let origin = store.serve().ready()?;
    std::fs::File::options().write(true).open(&store.image)?.set_len(IMAGE / 2)?;
    let copy = store.lab.dir().join("copy");
    assert!(client::nbdcopy(store.lab.host(0), &origin.uri("disk.img"), &copy).is_err());
    origin.wait_status("the change is told", SOON, |status| {
        status["warnings"].to_string().contains("is another object now") && source(status).0 == "changed"
    })?;
    Ok(())
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() -> Outcome {
    let store = Store::start(1)?;
    for (fault, says) in [
        (Fault::Status(404, 0), "disk.img: 404 Not Found from"),
        (Fault::Status(401, 0), "disk.img: 401 Unauthorized from"),
        (Fault::NoRanges, "has no range support"),
    ] {
        store.proxy.set(fault);
        refused(&store, store.serve(), says)?;
    }
    store.proxy.set(Fault::None);
    std::fs::File::options().write(true).open(&store.image)?.set_len(0)?;
    refused(&store, store.serve(), "the object is empty")
}

fn refused(store: &Store, start: Start<'_>, says: &str) -> Outcome {
    let mut daemon = start.spawn()?;
    wait_until("it ends", SOON, || daemon.process_mut().ended().is_some())?;
    let log = std::fs::read_to_string(daemon.process().log_path())?;
    let errors: Vec<&str> = log.lines().filter(|line| line.contains(says)).collect();
    assert!(!errors.is_empty(), "{says}: {log} ({:?})", store.proxy.passed());
    Ok(())
}
