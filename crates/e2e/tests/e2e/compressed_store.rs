//! Stores that keep their chunks compressed: half of the memory, the same image for readers, peers
//! and the next daemon.

use crate::compression::text_file;
use crate::disk::grouped;
use crate::kept::killed;
use serde_json::Value;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::cgroup;
use vfield_lab::daemon::FILL_LIMIT;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, Link, client};

const IMAGE: u64 = 16 * MIB;

/// Memory of the compressed chunks of a node, in its status.
fn takes(status: &Value) -> u64 {
    status["images"][0]["compressed_bytes"].as_u64().unwrap_or_default()
}

/// True once all that is held is compressed: a chunk lies in a buffer at first.
fn is_compressed(status: &Value) -> bool {
    let image = &status["images"][0];
    image["filled"] == true && (IMAGE / 20..IMAGE / 2).contains(&takes(status))
}

#[test]
fn a_compressed_store_serves_readers_and_the_next_daemon() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(3, Link::mbit(1_000))?;
    let image = text_file(lab.dir(), IMAGE)?;
    let mut origin = vfield().serve(lab.host(0), &[&image]).name("origin").ready()?;
    let words = ["--compress-store", "--join-boost", "9", "--root"];
    let node = vfield().join(lab.host(1), origin.addr()).store("all").args(&words).ready()?;
    node.wait("filled", FILL_LIMIT)?;
    node.wait_status("its chunks are compressed", FILL_LIMIT, is_compressed)?;
    let text = run(&mut node.ask("status"))?;
    assert!(text.contains("filled, compressed to "), "{text}");
    client::compare_all(lab.host(1), &node, &image)?;

    // It is all that there is of the image now.
    origin.kill();
    let peer = vfield().join(lab.host(2), node.addr()).store("all").args(&["--join-boost", "9"]).ready()?;
    peer.wait("filled", FILL_LIMIT)?;
    client::compare_all(lab.host(2), &peer, &image)?;
    let compressed = takes(&node.status()?);

    // The next daemon finds it compressed, and needs nobody.
    let _pair = killed(&node)?;
    client::compare_all(lab.host(1), &node, &image)?;
    let status = node.status()?;
    assert_eq!(takes(&status), compressed, "{status:#}");
    Ok(())
}

/// Over a slow link chunks come, are stored and go on in one form.
#[test]
fn a_slow_link_gets_chunks_as_they_lie() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(3, Link::mbit(50))?;
    let image = text_file(lab.dir(), IMAGE)?;
    let mut origin = vfield().serve(lab.host(0), &[&image]).name("origin").ready()?;
    let words = ["--compress-store", "--join-boost", "9"];
    let node = vfield().join(lab.host(1), origin.addr()).store("all").args(&words).ready()?;
    node.wait_status("its chunks are compressed", FILL_LIMIT, is_compressed)?;
    origin.kill();
    let peer = vfield().join(lab.host(2), node.addr()).store("0").ready()?;
    client::compare_all(lab.host(2), &peer, &image)?;
    let traffic = &node.status()?["traffic"];
    let [carried, plain] = ["to_compressed_bytes", "to_compressed_plain_bytes"].map(|sum| traffic[sum].as_u64());
    assert!(plain > Some(IMAGE / 2) && carried < plain.map(|plain| plain / 2), "{traffic:#}");
    Ok(())
}

/// In a control group with less memory than the image has bytes.
#[test]
fn a_compressed_store_ends_where_the_memory_does() -> Outcome {
    const IMAGE: u64 = 160 * MIB;
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) || !cgroup::are_there() {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::mbit(1_000))?;
    let noise = random_file(&lab.dir().join("noise.img"), IMAGE, 1)?;
    for (image, is_whole) in [(text_file(lab.dir(), IMAGE)?, true), (noise, false)] {
        let origin = vfield().serve(lab.host(0), &[&image]).ready()?;
        let (program, _group) = grouped(&lab, 144 * MIB)?;
        let words = ["--compress-store", "--join-boost", "9"];
        let mut node = program.join(lab.host(1), origin.addr()).store("all").args(&words).ready()?;
        node.wait_status("it holds what it can", FILL_LIMIT, |status| {
            let is_full = status["warnings"].to_string().contains("memory takes no more chunks");
            status["images"][0]["filled"] == true && is_full != is_whole
        })?;
        client::compare_all(lab.host(1), &node, &image)?;
        let status = node.status()?;
        let held = status["images"][0]["held_bytes"].as_u64().unwrap_or_default();
        assert!(held >= IMAGE / 4 && (held >= IMAGE) == is_whole, "{status:#}");
        assert!(takes(&status) < 96 * MIB, "{status:#}");
        node.kill();
        drop(node);
    }
    Ok(())
}

/// Two images that do not fit into the memory together, as two versions may be.
#[test]
fn a_store_that_was_full_grows_when_another_image_goes() -> Outcome {
    const IMAGE: u64 = 64 * MIB;
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) || !cgroup::are_there() {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::mbit(1_000))?;
    let [gone, kept] = [1, 2].map(|seed| random_file(&lab.dir().join(format!("noise-{seed}.img")), IMAGE, seed));
    let kept = kept?;
    let origin = vfield().serve(lab.host(0), &[&gone?, &kept]).ready()?;
    let (program, _group) = grouped(&lab, 144 * MIB)?;
    let words = ["--compress-store", "--join-boost", "9", "--image", "noise-1.img", "--image", "noise-2.img"];
    let node = program.join(lab.host(1), origin.addr()).store("all").args(&words).ready()?;
    let held = |status: &Value| -> Option<Vec<u64>> {
        let images = status["images"].as_array()?;
        images.iter().map(|image| image["held_bytes"].as_u64().filter(|_| image["filled"] == true)).collect()
    };
    node.wait_status("both hold what they can", FILL_LIMIT, |status| {
        held(status).is_some_and(|held| held.len() == 2 && held.iter().sum::<u64>() < 2 * IMAGE)
    })?;
    run(&mut node.ask_to(&["drop", "noise-1.img"]))?;
    node.wait_status("the other one is whole", FILL_LIMIT, |status| {
        held(status).is_some_and(|held| held.len() == 1 && held[0] >= IMAGE)
    })?;
    client::compare_all(lab.host(1), &node, &kept)?;
    Ok(())
}
