//! An origin whose disk stands still, as that of a file server that is gone.
//!
//! Its other images are read, it says why this one is not, and reads go on with the disk.
//! The disk is a mount of another field. Its daemon is stopped: then reads of files on it wait in
//! the kernel.

use serde_json::Value;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::NEWS;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::{Lab, client};

/// A disk stands still if no read has ended for five seconds.
const STILL: Duration = Duration::from_secs(20);

fn source<'a>(status: &'a Value, image: &str) -> &'a str {
    let images = status["images"].as_array();
    let image = images.into_iter().flatten().find(|one| one["name"] == image);
    image.and_then(|image| image["source"]["state"].as_str()).unwrap_or_default()
}

#[test]
fn a_disk_that_stands_still_holds_up_its_own_image_only() -> Outcome {
    if !have(&[Need::Root, Need::Fuse, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(4)?, vfield());
    let hung = random_file(&lab.dir().join("hung.img"), 4 * MIB, 1)?;
    let well = random_file(&lab.dir().join("well.img"), 4 * MIB, 2)?;
    let below = vfield.serve(lab.host(0), &[&hung]).name("below").ready()?;
    let mut disk = vfield.join(lab.host(1), below.addr()).store("0").mounted(true).ready()?;
    let file = disk.mount().expect("it is mounted").join("hung.img");
    // As on the smallest machine: one thread for everybody.
    let mut origin = vfield.serve(lab.host(2), &[&file, &well]).args(&["--threads", "1"]).name("origin").ready()?;
    let both = ["--image", "hung.img", "--image", "well.img"];
    let node = vfield.join(lab.host(3), origin.addr()).store("0").args(&both).ready()?;
    client::forget(&file)?;
    disk.process_mut().freeze();
    std::thread::scope(|scope| {
        let at = [(2, origin.uri("hung.img")), (3, node.uri("hung.img"))];
        let waiting = at.map(|(host, uri)| {
            let (lab, hung) = (&lab, &hung);
            scope.spawn(move || client::compare_nbd(lab.host(host), &uri, hung))
        });
        let still = origin.wait_status("it stands still", STILL, |status| source(status, "hung.img") == "unreachable");
        let said = still.and_then(|()| origin.says("hung.img does not deliver: no read has ended for", NEWS));
        let [of_origin, of_node] = [(2, &origin), (3, &node)]
            .map(|(host, daemon)| client::compare_nbd(lab.host(host), &daemon.uri("well.img"), &well));
        assert!(!waiting.iter().any(|reader| reader.is_finished()), "they did not wait");
        disk.process_mut().thaw();
        let read = waiting.map(|reader| reader.join().expect("a reader does not panic"));
        read.into_iter().fold(said.and(of_origin).and(of_node), Result::and)
    })?;
    origin.wait_status("it delivers", NEWS, |status| source(status, "hung.img") == "checked")?;
    Ok(())
}
