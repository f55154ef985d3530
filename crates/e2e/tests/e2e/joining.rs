//! Coming, going politely, and coming back.

use serde_json::Value;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, live, state_of};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, client, daemon};

#[test]
fn any_member_is_a_way_in_and_every_byte_is_right() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = Field::start(Plan { stores: &["40%", "30%", "all", "0"], mounted: true, ..Plan::default() })?;
    field.members(5, &[])?;
    field.compare(&[])?;
    field.filled()?;
    let held: Vec<_> = field.nodes.iter().map(|node| node.image().map(|image| image["held_bytes"].clone())).collect();
    assert!(held[3].as_ref().is_ok_and(|held| *held == 0), "a store of 0 holds nothing: {held:?}");

    let copy = field.lab.dir().join("cat.img");
    let file = std::fs::File::create(&copy)?;
    let mut cat = field.nodes[3].ask("cat");
    assert!(cat.arg("disk.img").stdout(file).status()?.success());
    run(std::process::Command::new("cmp").arg(&copy).arg(&field.image))?;
    Ok(())
}

#[test]
fn a_node_that_was_killed_comes_back_with_the_same_address() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["60%", "60%", "60%", "60%"], mounted: true, ..Plan::default() })?;
    field.covered()?;
    let addr = field.nodes[1].addr();
    field.nodes[1].kill();
    field.members(4, &[1])?;
    let through = field.nodes[3].addr();
    let again = field.join(1, through, "60%");
    field.nodes[1] = again.mounted(field.nodes[0].mount().is_some()).ready()?;
    field.members(5, &[])?;
    let seen = live(&field.nodes[2].status()?).into_iter().filter(|other| *other == addr.to_string()).count();
    assert_eq!(seen, 1, "one node has the address");
    field.covered()?;
    field.compare(&[])?;
    Ok(())
}

#[test]
fn two_images_live_in_one_field() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::best(5)?;
    let vfield = vfield();
    let red = random_file(&lab.dir().join("red.img"), 9 * MIB, 1)?;
    let blue = random_file(&lab.dir().join("blue.img"), 7 * MIB + 3, 2)?;
    let mut origin = vfield.serve(lab.host(0), &[&red, &blue]).name("origin").ready()?;
    let join = |host: usize, images: &[&str]| {
        let start = vfield.join(lab.host(host), origin.addr()).store("all").args(&["--join-boost", "9"]);
        images.iter().fold(start, |start, image| start.args(&["--image", image])).ready()
    };
    let (one, two) = (join(1, &["red.img"])?, join(2, &["blue.img"])?);
    let both = join(3, &["blue.img", "red.img"])?;
    client::compare_nbd(lab.host(1), &one.uri("red.img"), &red)?;
    client::compare_nbd(lab.host(2), &two.uri("blue.img"), &blue)?;
    client::compare_nbd(lab.host(3), &both.uri("red.img"), &red)?;
    client::compare_nbd(lab.host(3), &both.uri("blue.img"), &blue)?;
    // The export without a name is the first image.
    client::compare_nbd(lab.host(3), &both.uri(""), &blue)?;
    for node in [&one, &two, &both] {
        node.wait("covered", daemon::FILL_LIMIT)?;
    }
    origin.kill();
    let late = vfield.join(lab.host(4), two.addr()).store("0").args(&["--image", "red.img"]).ready()?;
    client::compare_nbd(lab.host(4), &late.uri("red.img"), &red)?;

    drop(late);
    let mut undecided = vfield.join(lab.host(4), two.addr()).name("undecided").store("0").spawn()?;
    let status = undecided.process_mut().wait(NEWS)?;
    let log = undecided.process().log();
    assert!(!status.success() && log.contains("red.img") && log.contains("blue.img"), "{log}");
    Ok(())
}

#[test]
fn a_leaving_node_hands_over_what_only_it_holds() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["55%", "55%"], spare_hosts: 1, ..Plan::default() })?;
    field.covered()?;
    field.origin.kill();
    field.members(2, &[])?;
    // Covered by two; a third that holds much gives the leaving one somebody to hand over to.
    let through = field.nodes[1].addr();
    let third = field.join(2, through, "60%").ready()?;
    field.nodes.push(third);
    field.members(3, &[])?;
    field.filled()?;
    let status = field.nodes[0].leave(Duration::from_secs(20))?;
    assert!(status.success(), "{status}: {}", field.nodes[0].process().log_tail());
    field.members(2, &[0])?;
    field.nodes[1].wait("covered", NEWS)?;
    field.compare(&[0])?;
    Ok(())
}

#[test]
fn sigterm_is_a_leave_within_a_bound() -> Outcome {
    let mut field = Field::start(Plan { stores: &["all", "all"], mounted: true, ..Plan::default() })?;
    field.covered()?;
    let addr = field.nodes[0].addr();
    let mount = field.nodes[0].mount().map(std::path::Path::to_owned);
    field.nodes[0].process_mut().terminate();
    let status = field.nodes[0].process_mut().wait(Duration::from_secs(15))?;
    assert!(status.success(), "{status}: {}", field.nodes[0].process().log_tail());
    // A goodbye is heard at once, not found out by probes.
    field.nodes[1].wait_status("it is gone", NEWS, |status| state_of(status, addr).is_none())?;
    if let Some(mount) = mount {
        assert_eq!(std::fs::read_dir(&mount)?.count(), 0, "the mount went with the daemon");
    }
    assert!(!field.nodes[0].nbd().exists(), "the socket went with the daemon");
    Ok(())
}

#[test]
fn status_says_what_scripts_need() -> Outcome {
    let field = Field::start(Plan { stores: &["all"], ..Plan::default() })?;
    field.covered()?;
    let status = field.nodes[0].status()?;
    let image = &status["images"][0];
    assert_eq!(image["name"], "disk.img");
    assert_eq!(image["size_bytes"], Plan::default().image_bytes);
    assert_eq!(image["chunk_size_bytes"], 65536);
    assert_eq!(image["coverage"], 1.0);
    assert_eq!(image["multiplicity_min"], 1);
    assert_eq!(image["origin_may_leave"], true);
    assert_eq!(image["waiting"], Value::Array(vec![]));
    let id = run(std::process::Command::new(field.vfield.path()).arg("id").arg(&field.image))?;
    assert!(id.contains(image["id"].as_str().unwrap_or("no id")), "{id}");
    let keys = ["from_store_bytes", "from_peers_bytes", "from_origin_bytes", "to_peers_bytes"];
    assert!(keys.iter().all(|key| status["traffic"][key].is_u64()), "{status:#}");
    assert!(status["traffic"]["from_origin_bytes"].as_u64() >= Some(Plan::default().image_bytes));
    Ok(())
}
