//! A follower whose daemon crashes or is replaced goes on where it was.

use crate::tags::{Room, SOON, image, ready};
use crate::upgrades::{crash, pid};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use vfield_e2e::Outcome;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::client::compare_file;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, LabError};

/// FUSE asks again since Linux 6.9.
const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Tool("minisign"), Need::Linux(6, 9)];
const IMAGES: [&str; 3] = ["v1.img", "v2.img", "v3.img"];

/// Serial and state of the followed tag.
fn is_at(daemon: &Daemon, serial: u64, state: &str) -> Result<(), LabError> {
    daemon.wait_status(&format!("serial {serial} is {state}"), SOON, |status| {
        let following = &status["following"][0];
        following["serial"] == serial && following["state"] == state
    })
}

fn link(daemon: &Daemon) -> PathBuf {
    daemon.mount().expect("it is mounted").join("prod")
}

#[test]
fn a_tag_that_has_moved_does_not_keep_a_program_from_being_replaced() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let room = Room::of(2, &IMAGES, image)?;
    room.publish("v1.img")?;
    let mut node = room.follower_with(1, "all", &["--guard"])?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    room.publish("v2.img")?;
    ready(&node, 2)?;
    let open = File::open(link(&node))?;
    for serial in [2, 3] {
        let before = pid(&node)?;
        let said = run(&mut node.ask("upgrade"))?;
        assert!(said.contains(&format!("process {before} -> ")), "{said}");
        ready(&node, serial)?;
        compare_file(room.lab.host(1), &link(&node), &room.file(&format!("v{serial}.img")))?;
        if serial == 2 {
            // The first version goes for good.
            room.publish("v3.img")?;
            ready(&node, 3)?;
            run(&mut node.ask_to(&["gc"]))?;
            node.wait_status("it has gone", SOON, |status| status["images"].as_array().map(Vec::len) == Some(2))?;
        }
    }
    let mut bytes = vec![0; usize::try_from(open.metadata()?.len())?];
    open.read_exact_at(&mut bytes, 0)?;
    assert!(bytes.starts_with(&std::fs::read(room.file("v2.img"))?), "an open file has other bytes");

    // A file that an operator added goes over too.
    let added = room.file("added.img");
    image(&added, 9)?;
    run(node.ask_to(&["add"]).arg(&added))?;
    run(&mut node.ask("upgrade"))?;
    ready(&node, 3)?;
    let status = node.status()?;
    let names: Vec<_> = status["images"].as_array().expect("images").iter().map(|image| &image["name"]).collect();
    assert!(names.contains(&&Value::from("added.img")), "{names:?}");
    Ok(())
}

#[test]
fn after_a_crash_a_tag_leads_to_what_it_led_to_before() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let large = |path: &Path, seed| random_file(path, 24 * MIB, seed).map(drop).map_err(Into::into);
    let mut room = Room::of(2, &IMAGES[..2], large)?;
    room.publish("v1.img")?;
    let mut node = room.follower_with(1, "all", &["--guard"])?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    node.wait("filled", SOON)?;
    // The least there is: the next version takes minutes.
    run(&mut room.origin.ask_to(&["limit", "--up", "128K"]))?;
    room.publish("v2.img")?;
    is_at(&node, 1, "filling")?;
    for _ in 0..2 {
        crash(&node, SOON)?;
        is_at(&node, 1, "filling")?;
        compare_file(room.lab.host(1), &link(&node), &room.file("v1.img"))?;
    }
    run(&mut room.origin.ask_to(&["limit", "--up", "none"]))?;
    ready(&node, 2)?;
    compare_file(room.lab.host(1), &link(&node), &room.file("v2.img"))?;

    // A tag that was removed changes nothing, also after a crash.
    room.operator(&["tag", "rm", "prod"])?;
    is_at(&node, 2, "waiting")?;
    crash(&node, SOON)?;
    is_at(&node, 2, "waiting")?;
    compare_file(room.lab.host(1), &link(&node), &room.file("v2.img"))?;
    room.origin.leave(SOON)?;
    Ok(())
}

/// A root file system comes up from the image of its command line, which no tag keeps later. While
/// that is open, the daemon comes back with it, and without it when it has gone.
#[test]
fn a_root_comes_back_although_no_tag_keeps_the_image_of_its_boot() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let room = Room::of(2, &IMAGES, image)?;
    room.publish("v1.img")?;
    let status = room.origin.status()?;
    let id = status["images"][0]["id"].as_str().expect("an id").to_owned();
    let mut node = room.follower_with(1, "all", &["--root", "--image", &id])?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    let root = File::open(link(&node))?;
    for (serial, image) in (2..).zip(&IMAGES[1..]) {
        room.publish(image)?;
        ready(&node, serial)?;
    }
    run(&mut room.origin.ask_to(&["drop", "v1.img"]))?;
    crash(&node, SOON)?;
    ready(&node, 3)?;
    let mut bytes = vec![0; usize::try_from(root.metadata()?.len())?];
    root.read_exact_at(&mut bytes, 0)?;
    assert!(bytes.starts_with(&std::fs::read(room.file("v1.img"))?), "the root has other bytes");
    drop(root);
    node.wait_status("nobody has it open", SOON, |status| {
        let images = status["images"].as_array().into_iter().flatten();
        images.filter(|image| image["id"] == id.as_str()).any(|image| image["needed"] == "")
    })?;
    run(&mut node.ask_to(&["gc"]))?;
    node.wait_status("it has gone", SOON, |status| status["images"].as_array().map(Vec::len) == Some(2))?;
    for begin in [|node: &Daemon| crash(node, SOON), |node: &Daemon| run(&mut node.ask("upgrade")).map(drop)] {
        begin(&node)?;
        ready(&node, 3)?;
        compare_file(room.lab.host(1), &link(&node), &room.file("v3.img"))?;
        assert_eq!(node.status()?["images"].as_array().map(Vec::len), Some(2));
    }
    Ok(())
}
