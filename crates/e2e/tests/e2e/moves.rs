//! A tag that moves forward and back again and again, under readers of all nodes.
//!
//! `VFIELD_MOVES` and `VFIELD_MOVES_NODES` make it longer and larger.

use crate::tags::{Room, SOON, image, ready};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vfield_e2e::Outcome;
use vfield_lab::need::{Need, fuse_works, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Host, Lab, wait_until};

/// Bytes of one read.
const PIECE: usize = 64 << 10;
/// Pause of a reader between two files: the daemons of all nodes share the processors.
const PAUSE: Duration = Duration::from_millis(20);

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// The readers of all nodes.
struct Readers {
    /// The bytes of both versions.
    versions: [Vec<u8>; 2],
    stop: AtomicBool,
    /// Whole files and exports that were read.
    read: AtomicU64,
    /// The longest that one call of open or read took, in microseconds.
    longest_us: AtomicU64,
}

impl Readers {
    fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = call();
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.longest_us.fetch_max(took, Ordering::Relaxed);
        result
    }

    fn is_a_version(&self, bytes: &[u8]) -> Result<(), String> {
        self.read.fetch_add(1, Ordering::Relaxed);
        if self.versions.iter().any(|version| version == bytes) {
            return Ok(());
        }
        Err(format!("{} bytes that are neither version", bytes.len()))
    }

    /// Opens the tag's name, and reads all of that file, again and again.
    fn read_mount(&self, link: &Path) -> Result<(), String> {
        while !self.stop.load(Ordering::Relaxed) {
            let file = self.timed(|| File::open(link)).map_err(|error| format!("open: {error}"))?;
            let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
            loop {
                let at = bytes.len() as u64;
                let read = self.timed(|| file.read_at(&mut piece, at)).map_err(|error| format!("read: {error}"))?;
                if read == 0 {
                    break;
                }
                bytes.extend_from_slice(&piece[..read]);
            }
            self.is_a_version(&bytes)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Copies the export of the tag's name, again and again.
    fn read_export(&self, host: &Host, uri: &str, copy: &Path) -> Result<(), String> {
        while !self.stop.load(Ordering::Relaxed) {
            // With several connections, the tag could move between the first and the last.
            let mut command = host.client(SOON, "nbdcopy");
            run(command.args(["--connections=1", uri]).arg(copy)).map_err(|error| error.to_string())?;
            let mut bytes = std::fs::read(copy).map_err(|error| error.to_string())?;
            // A device ends with a whole sector.
            let version = self.versions.iter().find(|version| bytes.starts_with(version));
            bytes.truncate(version.map_or(0, Vec::len));
            self.is_a_version(&bytes)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

#[test]
fn a_tag_moves_forward_and_back_under_all_readers() -> Outcome {
    if !have(&[Need::Root, Need::Tool("minisign"), Need::Tool("nbdcopy")]) || !fuse_works() {
        return Ok(());
    }
    let (moves, nodes) = (number("VFIELD_MOVES", 10), number("VFIELD_MOVES_NODES", 6) as usize);
    let room = Room::in_lab(Lab::best(nodes + 1)?, &["v1.img", "v2.img"], image)?;
    room.publish("v1.img")?;
    let mut daemons: Vec<Daemon> = (1..=nodes).map(|host| room.follower(host, "all")).collect::<Result<_, _>>()?;
    for node in &mut daemons {
        node.wait_ready(SOON)?;
        ready(node, 1)?;
    }
    let links: Vec<PathBuf> = daemons.iter().map(|node| node.mount().expect("it is mounted").join("prod")).collect();
    let held: Vec<File> = links.iter().map(File::open).collect::<Result<_, _>>()?;
    let versions = [std::fs::read(room.file("v1.img"))?, std::fs::read(room.file("v2.img"))?];
    let readers =
        Readers { versions, stop: AtomicBool::new(false), read: AtomicU64::new(0), longest_us: AtomicU64::new(0) };
    let (failed, slowest) = std::thread::scope(|scope| {
        let readers = &readers;
        let mut running: Vec<_> = links.iter().map(|link| scope.spawn(move || readers.read_mount(link))).collect();
        for (host, node) in (1..).zip(&daemons).take(2) {
            let (host, uri) = (room.lab.host(host), node.uri("prod"));
            let copy = host.dir().join("moves.copy");
            running.push(scope.spawn(move || readers.read_export(host, &uri, &copy)));
        }
        let mut slowest = Duration::ZERO;
        let moved = (|| {
            for (turn, serial) in (0..moves).zip(2..) {
                let began = Instant::now();
                match turn {
                    0 => room.publish("v2.img")?,
                    _ => room.operator(&["tag", "rollback", "prod"])?,
                };
                daemons.iter().try_for_each(|node| ready(node, serial))?;
                slowest = slowest.max(began.elapsed());
                // Files that were open at the start have the bytes of the first version.
                let (mut bytes, at) = (vec![0; PIECE], turn as usize % 40 * PIECE);
                for file in &held {
                    readers.timed(|| file.read_exact_at(&mut bytes, at as u64)).expect("an open file can be read");
                    assert!(bytes == readers.versions[0][at..at + PIECE], "an open file has become another version");
                }
                let before = readers.read.load(Ordering::Relaxed);
                let goes_on = || {
                    running.iter().any(|reader| reader.is_finished())
                        || readers.read.load(Ordering::Relaxed) >= before + nodes as u64
                };
                wait_until("the readers go on", SOON, goes_on)?;
            }
            Ok::<(), vfield_lab::LabError>(())
        })();
        readers.stop.store(true, Ordering::Relaxed);
        let failed: Vec<String> =
            running.into_iter().filter_map(|reader| reader.join().expect("it does not panic").err()).collect();
        moved.map(|()| (failed, slowest))
    })?;
    assert!(failed.is_empty(), "{failed:?}");
    let (read, longest) = (readers.read.into_inner(), Duration::from_micros(readers.longest_us.into_inner()));
    println!(
        "{nodes} nodes, {moves} moves: {read} whole reads, no error; the longest call took {longest:.1?}, \
         the slowest move {slowest:.1?}"
    );
    Ok(())
}
