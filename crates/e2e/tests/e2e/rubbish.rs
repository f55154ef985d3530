//! Versions that nobody needs go, and those that somebody needs stay.

use crate::tags::{Room, SOON, image, ready};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use vfield_e2e::Outcome;
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, fuse_works, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, LabError};

const IMAGES: [&str; 3] = ["v1.img", "v2.img", "v3.img"];

/// The line of `vfield gc --dry-run` about an image.
fn line(node: &Daemon, image: &str) -> Result<Option<String>, LabError> {
    let said = run(&mut node.ask_to(&["gc", "--dry-run"]))?;
    Ok(said.lines().find(|line| line.starts_with(image)).map(str::to_owned))
}

/// The name of the version that the tag leads to now, and its file.
fn current(node: &Daemon) -> std::io::Result<(String, PathBuf)> {
    let link = node.mount().expect("it is mounted").join("prod");
    let name = std::fs::read_link(&link)?;
    Ok((name.to_string_lossy().into_owned(), link.with_file_name(name)))
}

/// Moves the tag through all images; with its default of two, it does not keep the first then.
fn move_on(room: &Room, nodes: &[&Daemon]) -> Result<(), LabError> {
    for (serial, image) in (2..).zip(&IMAGES[1..]) {
        room.publish(image)?;
        nodes.iter().try_for_each(|node| ready(node, serial))?;
    }
    Ok(())
}

#[test]
fn what_no_tag_keeps_goes_unless_it_is_open_or_pinned() -> Outcome {
    if !have(&[Need::Tool("minisign"), Need::Tool("nbdcopy")]) || !fuse_works() {
        return Ok(());
    }
    let room = Room::of(3, &IMAGES, image)?;
    room.publish("v1.img")?;
    let (mut reads, mut idle) = (room.follower(1, "all")?, room.follower(2, "all")?);
    for node in [&mut reads, &mut idle] {
        node.wait_ready(SOON)?;
        ready(node, 1)?;
    }
    let (name, file) = current(&reads)?;
    let open = File::open(&file)?;
    let said = line(&idle, &name)?.expect("it is here");
    assert!(said.ends_with("tag prod"), "{said}");
    move_on(&room, &[&reads, &idle])?;

    // Within its grace it is shown, and stays.
    let said = line(&idle, &name)?.expect("it is within its grace");
    assert!(said.contains("goes in 9m") || said.contains("goes in 10m"), "{said}");
    let status = run(&mut idle.ask_to(&["status"]))?;
    assert!(status.contains("rubbish    nobody has needed it for"), "{status}");
    // A pin keeps it.
    run(&mut idle.ask_to(&["pin", &name]))?;
    assert_eq!(run(&mut idle.ask_to(&["gc"]))?, "no rubbish");
    let said = line(&idle, &name)?.expect("it is pinned");
    assert!(said.ends_with("pinned"), "{said}");
    run(&mut idle.ask_to(&["pin", &name, "--release"]))?;
    let said = run(&mut idle.ask_to(&["gc"]))?;
    assert!(said.starts_with(&format!("dropped {name} (id ")) && said.ends_with(" freed"), "{said}");
    assert_eq!(line(&idle, &name)?, None);
    idle.says(&format!("dropped {name} "), SOON)?;

    // A reader keeps it.
    reads.wait_status("the reader was seen", SOON, |status| {
        let images = status["images"].as_array().into_iter().flatten();
        images.filter(|image| image["name"] == name.as_str()).any(|image| image["needed"] == "open")
    })?;
    assert_eq!(run(&mut reads.ask_to(&["gc"]))?, "no rubbish");
    let mut bytes = vec![0; MIB as usize];
    open.read_exact_at(&mut bytes, MIB)?;
    assert_eq!(bytes, std::fs::read(room.file("v1.img"))?[MIB as usize..2 * MIB as usize]);
    drop(open);
    reads.wait_status("nobody has it open", SOON, |status| {
        let images = status["images"].as_array().into_iter().flatten();
        images.filter(|image| image["name"] == name.as_str()).any(|image| image["needed"] == "")
    })?;
    let said = run(&mut reads.ask_to(&["gc"]))?;
    assert!(said.starts_with(&format!("dropped {name} ")), "{said}");
    assert!(!file.exists());
    // What the tag keeps is here.
    assert_eq!(reads.status()?["images"].as_array().map(Vec::len), Some(2));
    Ok(())
}

#[test]
fn the_last_copy_stays_while_another_node_reads() -> Outcome {
    if !have(&[Need::Tool("minisign")]) || !fuse_works() {
        return Ok(());
    }
    let room = Room::of(3, &IMAGES, image)?;
    room.publish("v1.img")?;
    let (mut reads, mut holds) = (room.follower(1, "10%")?, room.follower(2, "all")?);
    for node in [&mut reads, &mut holds] {
        node.wait_ready(SOON)?;
        ready(node, 1)?;
        node.wait_status("its store is full", SOON, |status| status["images"][0]["filled"] == true)?;
    }
    let (name, file) = current(&reads)?;
    let open = File::open(&file)?;
    move_on(&room, &[&reads, &holds])?;
    run(&mut room.origin.ask_to(&["drop", "v1.img"]))?;
    holds.wait_status("no origin is left", SOON, |status| {
        let images = status["images"].as_array().into_iter().flatten();
        images.filter(|image| image["name"] == name.as_str()).any(|image| image["origins"] == 0)
    })?;
    let said = run(&mut holds.ask_to(&["gc"]))?;
    assert!(said.starts_with(&format!("{name} stays: the last copy of ")), "{said}");
    // The reader gets all of it, most of it from there.
    let mut bytes = vec![0; usize::try_from(open.metadata()?.len())?];
    open.read_exact_at(&mut bytes, 0)?;
    assert!(bytes == std::fs::read(room.file("v1.img"))?, "the reader got other bytes");
    drop(open);
    reads.wait_status("nobody has it open", SOON, |status| {
        let images = status["images"].as_array().into_iter().flatten();
        images.filter(|image| image["name"] == name.as_str()).any(|image| image["needed"] == "")
    })?;
    // The order does not matter: the first to go needs nothing, and then nobody does.
    run(&mut reads.ask_to(&["gc"]))?;
    run(&mut holds.ask_to(&["gc"]))?;
    for node in [&reads, &holds] {
        node.wait_status("it has gone", SOON, |status| status["images"].as_array().map(Vec::len) == Some(2))?;
    }
    Ok(())
}
