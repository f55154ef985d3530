//! Compressed chunks on slow links: fewer bytes, the same image.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::FILL_LIMIT;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, Link, client};

const NEEDS: [Need; 2] = [Need::Root, Need::Tool("nbdcopy")];
/// Slow enough that the origin's socket is full, and the image takes some seconds.
const LINK: Link = Link::mbit(50);
const IMAGE_BYTES: u64 = 16 * MIB;

/// An image of lines with numbers, which LZ4 makes a third of.
pub fn text_file(dir: &Path, bytes: u64) -> Result<PathBuf, Failed> {
    let mut text = String::new();
    for line in 0_u64.. {
        let word = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        writeln!(text, "line {line} of the image has the word {word:06x}, as each has one").expect("a string");
        if text.len() as u64 >= bytes {
            break;
        }
    }
    let path = dir.join("text.img");
    std::fs::write(&path, &text.as_bytes()[..bytes as usize])?;
    Ok(path)
}

/// A node that has filled its store with all of an image from others.
fn filled(lab: &Lab, host: usize, through: &Daemon) -> Result<Daemon, Failed> {
    let node = vfield().join(lab.host(host), through.addr()).store("all").args(&["--join-boost", "9"]).ready()?;
    node.wait("filled", FILL_LIMIT)?;
    Ok(node)
}

/// One of the sums of a node's traffic.
fn traffic(node: &Daemon, sum: &str) -> Result<u64, Failed> {
    Ok(node.status()?["traffic"][sum].as_u64().expect("a count"))
}

/// Bytes of chunks that a node has sent.
fn sent(node: &Daemon) -> Result<u64, Failed> {
    traffic(node, "to_peers_bytes")
}

/// What the status says of compression: bytes on the link, and those that they stand for.
fn compressed(node: &Daemon, direction: &str) -> Result<(u64, u64), Failed> {
    let carried = traffic(node, &format!("{direction}_compressed_bytes"))?;
    Ok((carried, traffic(node, &format!("{direction}_compressed_plain_bytes"))?))
}

#[test]
fn slow_links_carry_compressed_chunks() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let lab = Lab::namespaces(3, LINK)?;
    let image = text_file(lab.dir(), IMAGE_BYTES)?;
    let mut origin = vfield().serve(lab.host(0), &[&image]).name("origin").ready()?;
    let first = filled(&lab, 1, &origin)?;
    client::compare_all(lab.host(1), &first, &image)?;
    let of_origin = sent(&origin)?;
    assert!(of_origin < IMAGE_BYTES * 7 / 10, "{of_origin} bytes of {IMAGE_BYTES}");
    // The other bytes went plain: chunks, hash pages and slices.
    let (carried, plain) = compressed(&origin, "to")?;
    assert!(carried < plain * 7 / 10 && of_origin + plain >= IMAGE_BYTES + carried, "{carried} for {plain}");
    // Both ends count alike, but for answers that came too late.
    let (received, unpacked) = compressed(&first, "from")?;
    assert!((carried / 2..=carried).contains(&received), "{received} of {carried}");
    assert!((plain / 2..=plain).contains(&unpacked), "{unpacked} of {plain}");
    let text = run(&mut origin.ask("status"))?;
    assert!(text.contains("compressed: ") && text.contains(" went as "), "{text}");

    // A node that holds the chunks plain compresses them itself.
    origin.kill();
    let second = filled(&lab, 2, &first)?;
    client::compare_all(lab.host(2), &second, &image)?;
    let of_first = sent(&first)?;
    assert!(of_first < IMAGE_BYTES * 7 / 10, "{of_first} bytes of {IMAGE_BYTES}");
    Ok(())
}

#[test]
fn bytes_that_do_not_compress_cost_nothing_more() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let lab = Lab::namespaces(2, LINK)?;
    let noise = random_file(&lab.dir().join("noise.img"), IMAGE_BYTES, 1)?;
    let origin = vfield().serve(lab.host(0), &[&noise]).name("noise").ready()?;
    let node = filled(&lab, 1, &origin)?;
    client::compare_all(lab.host(1), &node, &noise)?;
    let bytes = sent(&origin)?;
    assert!((IMAGE_BYTES..IMAGE_BYTES + MIB).contains(&bytes), "{bytes} bytes");
    assert_eq!((compressed(&origin, "to")?, compressed(&node, "from")?), ((0, 0), (0, 0)));

    // Nor does a node compress that was told not to.
    let lab = Lab::namespaces(2, LINK)?;
    let text = text_file(lab.dir(), IMAGE_BYTES)?;
    let plain = vfield().serve(lab.host(0), &[&text]).args(&["--no-compression"]).name("plain").ready()?;
    filled(&lab, 1, &plain)?;
    let bytes = sent(&plain)?;
    assert!(bytes >= IMAGE_BYTES, "{bytes} bytes");
    Ok(())
}
