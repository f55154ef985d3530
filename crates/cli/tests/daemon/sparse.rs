//! Images that are mostly holes: reports about them count data, not holes.

use super::Bench;

/// Chunks of 64 KiB that have data, and pages that may have hashes of them: all eight of the first
/// level, and the top.
const STORED: u64 = 10 + 8 + 1;
const CHUNK: u64 = 64 << 10;

fn sparse(bench: &Bench) {
    bench.image("a.img", 10 * CHUNK as usize);
    let file = std::fs::OpenOptions::new().write(true).open(bench.dir.path().join("a.img")).unwrap();
    file.set_len(1 << 30).unwrap();
}

#[test]
fn a_store_is_not_larger_than_what_there_is() {
    let bench = Bench::new();
    sparse(&bench);
    let origin = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    let node =
        bench.start("c1", &["join", &origin.addr(), "--store", "50%", "--listen", "127.0.0.1:0", "--join-boost", "9"]);
    node.wait("filled");
    let status = node.status();
    assert_eq!(status["images"][0]["capacity_bytes"], STORED * CHUNK);
    assert_eq!(status["nodes"][0]["capacity_bytes"], STORED * CHUNK);
    assert_eq!(status["nodes"][0]["held_bytes"], status["images"][0]["held_bytes"]);
    assert!(status["memory"]["store_bytes"].as_u64().unwrap() <= STORED * CHUNK);
    assert!(status["memory"]["process_bytes"].as_u64().unwrap() > 1 << 20);
    origin.wait("covered");
    let seen = origin.status();
    let nodes = seen["nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|node| node["capacity_bytes"] == STORED * CHUNK), "{nodes:#?}");
}

#[test]
fn holes_are_no_chunks_that_only_the_origin_held() {
    let bench = Bench::new();
    sparse(&bench);
    let origin = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    let node = bench.start("c1", &["join", &origin.addr(), "--store", "0", "--listen", "127.0.0.1:0"]);
    node.wait("ready");
    let left = origin.ask(&["leave", "--timeout", "100ms"]);
    let said = String::from_utf8(left.stderr).unwrap();
    let mib = (STORED * CHUNK) as f64 / f64::from(1 << 20);
    assert!(said.contains(&format!("of a.img ({mib:.1} MiB) would be lost")), "{said}");
}
