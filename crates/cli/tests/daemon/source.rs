//! A file that is written to while it is served: its origin says so, and the nodes that ask there.

use super::{Bench, wait_until};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::process::ChildStderr;

/// The next line of a log that has `word`.
fn said(log: &mut BufReader<ChildStderr>, word: &str) -> String {
    let line = log.lines().map_while(Result::ok).find(|line| line.contains(word));
    line.unwrap_or_else(|| panic!("the log never said {word:?}"))
}

#[test]
fn an_image_that_is_written_to_is_told_of_once_on_each_node() {
    let bench = Bench::new();
    let image = bench.image("a.img", 1_000_000);
    let mut origin = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    // As `vfield publish` finds it, in whatever directory that runs.
    let path = bench.dir.path().join("a.img").display().to_string();
    assert_eq!(origin.status()["images"][0]["source"]["path"], path);
    let join = ["join", &origin.addr(), "--store", "0", "--listen", "127.0.0.1:0", "--io-timeout", "30s"];
    let mut node = bench.start("c1", &join);
    node.wait("ready");
    let mut logs = [&mut origin, &mut node].map(|daemon| BufReader::new(daemon.child.stderr.take().unwrap()));

    let mut file = std::fs::OpenOptions::new().write(true).open(bench.dir.path().join("a.img")).unwrap();
    file.seek(SeekFrom::Start(500_000)).unwrap();
    file.write_all(b"something else").unwrap();
    drop(file);
    // Nobody has read anything: it is said all the same.
    let line = said(&mut logs[0], "warning: ");
    let written = format!("{} was written to: ", bench.dir.path().join("a.img").display());
    assert!(line.starts_with(&format!("warning: {written}")), "{line}");
    assert!(origin.status()["warnings"][0].as_str().unwrap().starts_with(&written));

    // Bytes outside the change are read as before, the rest is not made up.
    assert!(node.ask(&["cat", "a.img", "--length", "100000"]).stdout == image[..100_000]);
    assert_eq!(node.ask(&["cat", "a.img", "--offset", "500000", "--length", "1"]).status.code(), Some(1));
    let line = said(&mut logs[1], "warning: ");
    let known = format!("warning: image a.img: {} says that the file at its origin was written to: ", origin.addr());
    assert!(line.starts_with(&known), "{line}");
    wait_until("status says it", || node.status()["warnings"].as_array().is_some_and(|told| told.len() == 1));
    assert_eq!(origin.status()["images"][0]["source"]["state"], "changed");
    assert_eq!(origin.status()["warnings"].as_array().unwrap().len(), 1);
}
