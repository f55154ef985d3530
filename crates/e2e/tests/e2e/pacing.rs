//! Limits of traffic: a transfer keeps to them, and peers take the node for one with such a link.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, daemon};

/// Bytes a second: so few that a machine with much other work keeps up. A transfer of
/// [`TO_BYTES`] takes some seconds.
const LIMIT: f64 = 3e6;
/// More than is measured on a machine that keeps up.
const IMAGE_BYTES: u64 = 48 * MIB + 777;
/// The measured part: bytes at the beginning are those of the greeting, and of credit.
const FROM_BYTES: u64 = 2 * MIB;
const TO_BYTES: u64 = 10 * MIB;
/// Length of a part of the measured time: some tenths of a second.
const PART_BYTES: u64 = MIB;
/// A busy machine falls behind its limit, at times for many parts of the transfer, but not in each
/// one up to the image's end. A limit that counts bytes twice is at a half in all of them.
const SHARE_MIN: f64 = 0.85;
/// Above the limit nothing is forgiven but the accuracy that the document promises.
const SHARE_MAX: f64 = 1.03;

fn moved(status: &Value) -> u64 {
    ["to_peers_bytes", "from_peers_bytes", "from_origin_bytes"]
        .iter()
        .filter_map(|key| status["traffic"][key].as_u64())
        .sum()
}

/// Shares of the limit at which a node moves chunks, as it says itself: over all of the measured
/// time, and in its fastest part. It is measured until one part is fast enough, or to the end.
fn shares(node: &Daemon, limit: f64) -> Result<(f64, f64), Failed> {
    let at = |bytes: u64| -> Result<(f64, u64), Failed> {
        node.wait_status("moved", daemon::FILL_LIMIT, |status| moved(status) >= bytes)?;
        let status = node.status()?;
        Ok((status["uptime_s"].as_f64().unwrap_or_default(), moved(&status)))
    };
    let share = |from: &(f64, u64), to: &(f64, u64)| (to.1 - from.1) as f64 / (to.0 - from.0) / limit;
    let first = at(FROM_BYTES)?;
    let (mut last, mut fastest) = (first, 0.0_f64);
    while last.1 < TO_BYTES || (fastest <= SHARE_MIN && last.1 + PART_BYTES < IMAGE_BYTES) {
        let next = at(last.1 + PART_BYTES)?;
        fastest = fastest.max(share(&last, &next));
        last = next;
    }
    Ok((share(&first, &last), fastest))
}

fn keeps(node: &Daemon, limit: f64) -> Outcome {
    let (all, fastest) = shares(node, limit)?;
    assert!(all < SHARE_MAX && fastest > SHARE_MIN, "{all:.3} of the limit, {fastest:.3} in the fastest part");
    Ok(())
}

fn fills(lab: &Lab, key: Option<&Path>, up: &[&str], down: &[&str]) -> Result<(Daemon, Daemon), Failed> {
    let vfield = vfield();
    let image = random_file(&lab.dir().join("disk.img"), IMAGE_BYTES, 1)?;
    let keyed: Vec<&Path> = key.iter().flat_map(|key| [Path::new("--field-key"), key]).collect();
    let origin = vfield.serve(lab.host(0), &[&image]).args(&keyed).args(up).name("origin").ready()?;
    let join = vfield.join(lab.host(1), origin.addr()).args(&keyed).store("all").args(down);
    let node = join.args(&["--join-boost", "9"]).ready()?;
    Ok((origin, node))
}

#[test]
fn a_transfer_keeps_to_the_limit_of_its_sender() -> Outcome {
    let lab = Lab::best(2)?;
    let (origin, node) = fills(&lab, None, &["--limit-up", "3MB"], &[])?;
    keeps(&origin, LIMIT)?;
    let status = origin.status()?;
    assert_eq!(status["limits"]["up"]["bytes_per_s"], 3_000_000);
    assert!(status["limits"]["up"]["held_s"].as_f64() > Some(1.0), "{status:#}");
    assert_eq!(status["limits"]["down"]["setting"], "none");
    drop(node);
    Ok(())
}

#[test]
fn a_transfer_keeps_to_the_limit_of_its_receiver() -> Outcome {
    let lab = Lab::best(2)?;
    let (origin, node) = fills(&lab, None, &[], &["--limit-down", "3MB"])?;
    keeps(&node, LIMIT)?;
    drop(origin);
    Ok(())
}

#[test]
fn a_transfer_keeps_to_the_limit_of_its_image_at_the_sender() -> Outcome {
    let lab = Lab::best(2)?;
    let (origin, node) = fills(&lab, None, &["--image-limit-up", "disk.img=3MB", "--limit-up", "500MB"], &[])?;
    keeps(&origin, LIMIT)?;
    let limits = &origin.status()?["limits"];
    let image = &limits["images"][0];
    assert_eq!((&image["image"], &image["is_here"]), (&Value::from("disk.img"), &Value::from(true)));
    assert_eq!(image["up"]["bytes_per_s"], 3_000_000);
    assert!(image["up"]["held_s"].as_f64() > Some(1.0), "{limits:#}");
    assert_eq!((&image["down"]["setting"], &limits["up"]["held_s"]), (&Value::from("none"), &Value::from(0.0)));
    drop(node);
    Ok(())
}

#[test]
fn a_transfer_keeps_to_the_limit_of_its_image_at_the_receiver() -> Outcome {
    let lab = Lab::best(2)?;
    let (origin, node) = fills(&lab, None, &[], &["--image-limit-down", "disk.img=3MB"])?;
    keeps(&node, LIMIT)?;
    assert!(node.status()?["limits"]["images"][0]["down"]["held_s"].as_f64() > Some(1.0));
    drop(origin);
    Ok(())
}

/// The lower one of two limits counts.
#[test]
fn an_image_keeps_to_the_limit_of_the_node_as_well() -> Outcome {
    let lab = Lab::best(2)?;
    let (origin, node) = fills(&lab, None, &["--limit-up", "3MB", "--image-limit-up", "disk.img=400MB"], &[])?;
    keeps(&origin, LIMIT)?;
    drop(node);
    Ok(())
}

fn held(status: &Value, image: &str) -> u64 {
    let images = status["images"].as_array();
    let image = images.into_iter().flatten().find(|one| one["name"] == image);
    image.and_then(|image| image["held_bytes"].as_u64()).unwrap_or_default()
}

/// A tenth of a second of the limited image is all that the other one waits for.
#[test]
fn the_limit_of_an_image_slows_no_other_one_down() -> Outcome {
    let lab = Lab::best(2)?;
    let vfield = vfield();
    let image_bytes = 12 * MIB + 777;
    let slow = random_file(&lab.dir().join("slow.img"), image_bytes, 1)?;
    let fast = random_file(&lab.dir().join("fast.img"), image_bytes, 2)?;
    let limit = ["--image-limit-up", "slow.img=1MB"];
    let origin = vfield.serve(lab.host(0), &[&slow, &fast]).args(&limit).name("origin").ready()?;
    let both = ["--join-boost", "9", "--image", "slow.img", "--image", "fast.img"];
    let node = vfield.join(lab.host(1), origin.addr()).store("all").args(&both).ready()?;
    node.wait_status("the other image", daemon::FILL_LIMIT, |status| held(status, "fast.img") >= image_bytes)?;
    let slow_bytes = held(&node.status()?, "slow.img");
    assert!(slow_bytes < 8 * MIB, "{slow_bytes} bytes of the limited image came meanwhile");
    assert_eq!(node.status()?["misdeeds"]["drags"], 0);
    // Without the limit the rest comes at once.
    run(&mut origin.ask_to(&["limit", "--image", "slow.img", "--up", "none"]))?;
    node.wait("filled", Duration::from_secs(60))?;
    Ok(())
}

#[test]
fn wrong_limits_of_images_are_refused_in_one_line() -> Outcome {
    let lab = Lab::best(2)?;
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let late = ["--image-limit-up", "later.img=1M,08:00-18:00=2M"];
    let origin = vfield().serve(lab.host(0), &[&image]).args(&late).name("origin").ready()?;
    let refused = |args: &[&str]| -> Result<String, Failed> {
        let output = origin.ask_to(args).output()?;
        assert!(!output.status.success(), "{args:?}");
        Ok(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned())
    };
    assert!(refused(&["limit", "--image", "gone.img", "--up", "1M"])?.contains("\"gone.img\""));
    assert!(refused(&["limit", "--image", "disk.img", "--up", "0"])?.contains("too low"));
    assert!(refused(&["limit", "--image", "disk.img", "--down", "8-18=1M"])?.contains("no part of a day"));
    let shown = run(&mut origin.ask_to(&["limit"]))?;
    assert!(shown.contains("later.img  up ") && shown.contains("no image of this node has that name"), "{shown}");
    Ok(())
}

#[test]
fn limits_hold_under_seal() -> Outcome {
    let lab = Lab::best(2)?;
    let key = lab.dir().join("field.key");
    run(Command::new(vfield().path()).args(["key", "new"]).arg(&key))?;
    let (origin, node) = fills(&lab, Some(&key), &["--limit-up", "3MB"], &["--limit-down", "6MB"])?;
    keeps(&origin, LIMIT)?;
    drop(node);
    Ok(())
}

#[test]
fn a_limit_changes_while_bytes_go() -> Outcome {
    let lab = Lab::best(2)?;
    let (origin, node) = fills(&lab, None, &["--limit-up", "128K"], &[])?;
    run(&mut origin.ask_to(&["limit", "--up", "3MB"]))?;
    keeps(&origin, LIMIT)?;
    run(&mut origin.ask_to(&["limit", "--up", "none"]))?;
    node.wait("filled", Duration::from_secs(60))?;
    assert_eq!(origin.status()?["limits"]["up"]["bytes_per_s"], Value::Null);
    Ok(())
}

/// Four nodes read the whole image through one limited node. None asks twice for a chunk that is on
/// its way, and none takes the limited node for a bad one.
#[test]
fn peers_take_a_limited_node_for_a_slow_link() -> Outcome {
    let image_bytes = 8 * MIB + 777;
    let field = Field::on(Lab::best(5)?, Plan { image_bytes, stores: &[], spare_hosts: 4, ..Plan::default() })?;
    run(&mut field.origin.ask_to(&["limit", "--up", "2MB"]))?;
    let join = |node| field.join(node, field.origin.addr(), "all").ready();
    let nodes = (0..4).map(join).collect::<Result<Vec<_>, _>>()?;
    for node in &nodes {
        node.wait("filled", daemon::FILL_LIMIT)?;
        let status = node.status()?;
        let sum = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
        let came = sum("from_peers_bytes") + sum("from_origin_bytes");
        assert!(came as f64 <= image_bytes as f64 * 1.15, "{came} bytes came for {image_bytes}");
        // On a busy machine the origin itself may be late for a moment.
        let addr = Value::from(field.origin.addr().to_string());
        node.wait_status("the origin is alive", daemon::FILL_LIMIT, |status| {
            let mut nodes = status["nodes"].as_array().into_iter().flatten();
            nodes.any(|other| other["addr"] == addr && other["state"] == "alive")
        })?;
        for misdeed in ["lies", "false_claims", "drags", "silent"] {
            assert_eq!(status["misdeeds"][misdeed], 0, "{misdeed}");
        }
    }
    Ok(())
}
