//! The hashes of a served file, which outlive its daemon.

use super::{Bench, Daemon, wait_until};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// Data from which on hashes are kept.
const LARGE: usize = 256 << 20;
/// Age from which on a file's next change is surely seen.
const SETTLED: Duration = Duration::from_secs(2);

/// Ends a daemon; its log.
fn end(mut origin: Daemon) -> String {
    origin.ask(&["leave", "--force"]);
    let mut log = String::new();
    origin.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    log
}

#[test]
fn an_unchanged_file_is_served_without_hashing_it_again() {
    let bench = Bench::new();
    let path = bench.dir.path().join("a.img");
    bench.image("a.img", LARGE);
    let changed = |file: &std::path::Path| {
        let about = std::fs::metadata(file).unwrap();
        Duration::new(about.ctime().cast_unsigned(), about.ctime_nsec() as u32)
    };
    let settled = || SystemTime::UNIX_EPOCH.elapsed().unwrap() > changed(&path) + SETTLED;
    let serve = |more: &[&str]| {
        wait_until("the file is old enough", settled);
        let line = [&["serve", "a.img", "--listen", "127.0.0.1:0", "--json"], more].concat();
        let origin = bench.start("c0", &line);
        origin.wait("filled");
        let image = origin.status()["images"][0].clone();
        let bytes = origin.ask(&["cat", "a.img", "--offset", "100M", "--length", "1M"]).stdout;
        (image["id"].clone(), bytes, end(origin))
    };
    let is_kept = |log: &str| log.contains("\"kept_hashes\"");
    let (id, bytes, log) = serve(&[]);
    let tree = std::fs::metadata(bench.dir.path().join("a.img.vfh")).expect("hashes beside the file");
    assert!(!is_kept(&log) && tree.len() < LARGE as u64 / 1000, "{log}");
    assert_eq!(tree.mode() & 0o022, 0, "others may write to it");
    let again = serve(&[]);
    assert!(again.0 == id && again.1 == bytes && is_kept(&again.2), "{}", again.2);
    let anew = serve(&["--rehash"]);
    assert!(anew.0 == id && anew.1 == bytes && !is_kept(&anew.2), "{}", anew.2);
    assert!(changed(&bench.dir.path().join("a.img.vfh")) > Duration::new(tree.ctime().cast_unsigned(), 0));
    // A changed file has other hashes, and they are kept as well.
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let more = serve(&[]);
    assert!(more.0 != id && !is_kept(&more.2), "{}", more.2);
    let last = serve(&[]);
    assert!(last.0 == more.0 && is_kept(&last.2), "{}", last.2);
}
