//! Packed images in a field: their file systems are read on machines that have no source.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_e2e::tree::Tree;
use vfield_lab::Lab;
use vfield_lab::bytes::random_file;
use vfield_lab::need::{Need, fuse_works, have};
use vfield_lab::process::run;

/// A store of a few MB is full by then, on a busy machine too.
const SOON: Duration = Duration::from_secs(60);

/// Packs a source; what the program says.
fn pack(source: &Path, image: &Path, like: Option<&Path>) -> Result<String, vfield_lab::LabError> {
    let mut command = Command::new(vfield().path());
    command.arg("pack").arg(source).arg("-o").arg(image);
    run(like.into_iter().fold(&mut command, |command, like| command.arg("--like").arg(like)))
}

/// Two versions are served. A node that holds both mounts them when the origin is gone.
#[test]
fn two_versions_are_mounted_without_their_origin() -> Outcome {
    if !have(&[Need::Root, Need::Tool("mkfs.erofs"), Need::Tool("diff")]) || !fuse_works() {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let at = |name: &str| lab.dir().join(name);
    let source = at("source");
    std::fs::create_dir_all(source.join("etc"))?;
    for number in 0..30_u64 {
        random_file(&source.join(format!("library-{number}")), 10_000 * number + 1, number)?;
        std::fs::write(source.join(format!("etc/{number}")), number.to_string())?;
    }
    pack(&source, &at("1.erofs"), None)?;
    run(Command::new("cp").arg("-a").arg(&source).arg(at("first")))?;
    random_file(&source.join("library-20"), 210_000, 99)?;
    let said = pack(&source, &at("2.erofs"), Some(&at("1.erofs")))?;
    assert!(said.contains("new: "), "{said}");

    let mut origin = vfield.serve(lab.host(0), &[&at("1.erofs"), &at("2.erofs")]).ready()?;
    let images = ["--image", "1.erofs", "--image", "2.erofs", "--join-boost", "9"];
    let node = vfield.join(lab.host(1), origin.addr()).args(&images).store("all").mounted(true).ready()?;
    node.wait("filled", SOON)?;
    node.wait("covered", SOON)?;
    origin.kill();
    for (image, expected) in [("1.erofs", at("first")), ("2.erofs", source)] {
        let tree = Tree::of(lab.host(1), &node.mount().expect("it is mounted").join(image))?;
        run(Command::new("diff").arg("-r").arg(&expected).arg(tree.dir()))?;
        tree.unmount()?;
    }
    Ok(())
}
