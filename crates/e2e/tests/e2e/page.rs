//! The page of a real node in a real browser: what it says of a member that lies, and of a tag that
//! moves forward and back.

use crate::tags::{Room, SOON, image, ready};
use std::net::SocketAddr;
use std::path::Path;
use vfield_e2e::Outcome;
use vfield_e2e::liar::{self, Twist};
use vfield_lab::browser::{self, Browser};
use vfield_lab::need::{Need, fuse_works, have};
use vfield_lab::{Daemon, Lab};

const DESK: (u32, u32) = (1360, 1100);
const TELEPHONE: (u32, u32) = (390, 844);
/// The row of a tag's version of now.
const NOW: &str = "document.querySelector('.versions .now')?.textContent ?? ''";

/// Keeps pictures for a person, among the files of the build.
fn keep(browser: &mut Browser, name: &str) {
    for (screen, of) in [(DESK, "desk"), (TELEPHONE, "telephone")] {
        browser.resize(screen);
        let wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
        assert_eq!(browser.value(wider), false, "{name} on a {of} sticks out");
        browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}-{of}.png")));
    }
    browser.resize(DESK);
}

fn text(browser: &mut Browser, selector: &str) -> String {
    let value = browser.value(&format!("document.querySelector({selector:?})?.textContent ?? ''"));
    value.as_str().unwrap_or_default().to_owned()
}

/// A node of the room with a page, and where that is.
fn with_page(room: &Room, host: usize) -> Result<(Daemon, SocketAddr), vfield_e2e::Failed> {
    let at = SocketAddr::new(room.lab.host(host).addr().ip(), 9740);
    let mut node = room.follower_with(host, "all", &["--http", &at.ip().to_string()])?;
    node.wait_ready(SOON)?;
    Ok((node, at))
}

#[test]
fn a_liar_and_two_versions_are_told_apart_from_trouble() -> Outcome {
    if !have(&[Need::Tool("minisign")]) || !fuse_works() {
        return Ok(());
    }
    let Some(program) = browser::find() else { return Ok(()) };
    let lab = Lab::loopback(5)?;
    let front = lab.host(4).addr();
    liar::twist(front, lab.host(1).addr(), Twist::Flip)?;
    let room = Room::in_lab(lab, &["v1.img", "v2.img"], image)?;
    room.publish("v1.img")?;
    let mut liar = room.follower_with(1, "all", &["--advertise", &front.to_string()])?;
    liar.wait_ready(SOON)?;
    ready(&liar, 1)?;

    // A newcomer spares the origin, and so asks the liar.
    let (node, at) = with_page(&room, 3)?;
    ready(&node, 1)?;
    let mut browser = Browser::start(&program);
    browser.open(&format!("http://{at}/"), DESK, false);
    let lied = format!("document.querySelector('#verdicts')?.textContent.includes('{front} sent wrong bytes')");
    browser.until(&lied);
    let verdicts = text(&mut browser, "#verdicts");
    assert!(verdicts.contains("nothing of it was used"), "{verdicts}");
    assert_eq!(browser.value("document.querySelectorAll('button.tile.bad').length"), 1);
    let counts = text(&mut browser, "#counts");
    assert!(counts.contains("1 in trouble") && !counts.contains("all well"), "{counts}");
    browser.until(&format!("{NOW}.includes('serial 1')"));
    keep(&mut browser, "liar");
    let mut honest = room.follower(2, "all")?;
    honest.wait_ready(SOON)?;
    ready(&honest, 1)?;

    room.publish("v2.img")?;
    ready(&node, 2)?;
    browser.until(&format!("{NOW}.includes('serial 2')"));
    browser.until("document.querySelector('#tags').textContent.includes('this node runs serial 2')");
    let versions = text(&mut browser, ".versions");
    assert!(versions.contains("now serial 2") && versions.contains("before serial 1"), "{versions}");
    // The version before is no trouble, and comes after that of now.
    browser.until("document.querySelector('#verdicts').textContent.includes('an earlier version of prod')");
    let roles = "[...document.querySelectorAll('#images .role')].map(one => one.textContent).join(', ')";
    assert_eq!(browser.value(roles), "now: prod, before: prod");
    keep(&mut browser, "forward");

    room.operator(&["tag", "rollback", "prod"])?;
    ready(&node, 3)?;
    browser.until(&format!("{NOW}.includes('serial 3')"));
    browser.until("document.querySelector('#tags').textContent.includes('this node runs serial 3')");
    assert_eq!(browser.value(roles), "now: prod, before: prod");
    browser.press("t");
    assert_eq!(browser.value("document.documentElement.dataset.theme"), "dark");
    keep(&mut browser, "back-dark");
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    Ok(())
}
