//! Two versions of an image on one node: what they have in common is fetched once, and lies once in
//! memory.

use super::{Bench, Daemon, wait_until};

/// Length of both versions: 184 chunks.
const LENGTH: usize = 12_000_001;
/// Bytes that are not shared: the chunk that differs, pages, and some room.
const OWN: u64 = 4 * (64 << 10);
/// Most bytes that come when versions share: the own ones, and the requests that are on their way
/// when the survey comes to their chunks. Without sharing a whole image comes.
const FEW: u64 = LENGTH as u64 / 2;

/// The bytes of both versions, `a.img` and `b.img`.
fn images(bench: &Bench) -> [Vec<u8>; 2] {
    let (old, mut new) = (bench.image("a.img", LENGTH), bench.image("b.img", LENGTH));
    new[1_000_000] ^= 0xA5;
    std::fs::write(bench.dir.path().join("b.img"), &new).unwrap();
    [old, new]
}

fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn received(node: &Daemon) -> u64 {
    let traffic = &node.status()["traffic"];
    number(&traffic["from_peers_bytes"]) + number(&traffic["from_origin_bytes"])
}

/// Bytes of the chunks that the image of this name has in common with others.
fn shared(node: &Daemon, name: &str) -> u64 {
    let status = node.status();
    let image = status["images"].as_array().unwrap().iter().find(|image| image["name"] == name);
    number(&image.unwrap()["shared_bytes"])
}

#[test]
fn a_new_version_takes_what_the_old_one_has_and_keeps_it() {
    let bench = Bench::new();
    let [old, new] = images(&bench);
    let origin = bench.start("c0", &["serve", "a.img", "b.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    let join = ["join", &origin.addr(), "--image", "a.img", "--store", "all", "--listen", "127.0.0.1:0"];
    let node = bench.start("c1", &join);
    node.wait("filled");
    let (before, memory) = (received(&node), number(&node.status()["memory"]["store_bytes"]));
    let added = node.ask(&["add", "b.img", "--store", "all"]);
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    node.wait("filled");
    let status = node.status();
    assert!(received(&node) - before < FEW, "{status:#}");
    assert!(number(&status["memory"]["store_bytes"]) < memory + OWN, "{status:#}");
    assert!(shared(&node, "b.img") > LENGTH as u64 - OWN, "{status:#}");
    assert_eq!(shared(&node, "a.img"), 0);
    let text = String::from_utf8(node.ask(&["status"]).stdout).unwrap();
    assert!(text.contains("in the memory of other versions"), "{text}");
    let cat = |name: &str| node.ask(&["cat", name]).stdout;
    assert!(cat("a.img") == old && cat("b.img") == new);
    // The old version goes, and then everybody else.
    assert!(node.ask(&["drop", "a.img"]).status.success());
    wait_until("it has all of it by itself", || shared(&node, "b.img") == 0);
    drop(origin);
    assert!(cat("b.img") == new);
    assert!(number(&node.status()["memory"]["store_bytes"]) < memory + OWN, "{:#}", node.status());
}

#[test]
#[cfg(debug_assertions)]
fn versions_share_their_chunks_again_after_a_restart() {
    let bench = Bench::new();
    let [old, new] = images(&bench);
    let origin = bench.start("c0", &["serve", "a.img", "b.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    let addr = origin.addr();
    for order in [["a.img", "b.img"], ["b.img", "a.img"]] {
        let images = ["--image", order[0], "--image", order[1], "--store", "all"];
        let line = [&["join", &addr, "--root", "--listen", "127.0.0.1:0"], &images[..]].concat();
        let guard = bench.start("c1", &line);
        guard.wait("filled");
        let memory = number(&guard.status()["memory"]["store_bytes"]);
        assert!(memory < LENGTH as u64 + 2 * OWN, "{:#}", guard.status());
        let first = guard.status()["pid"].as_u64();
        super::panic_in(&guard);
        wait_until("another daemon has both", || {
            let output = guard.ask(&["status", "--json"]);
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let images = status["images"].as_array().cloned().unwrap_or_default();
            let filled = images.len() == 2 && images.iter().all(|image| image["filled"] == true);
            filled && status["pid"].as_u64() != first
        });
        assert!(received(&guard) < FEW, "{:#}", guard.status());
        assert!(guard.ask(&["cat", "a.img"]).stdout == old && guard.ask(&["cat", "b.img"]).stdout == new);
        assert!(number(&guard.status()["memory"]["store_bytes"]) < memory + OWN, "{:#}", guard.status());
    }
}
