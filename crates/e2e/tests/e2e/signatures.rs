//! Signed images: made with `vfield sign` and with the stock tool, verified by both, refused when
//! they are not right.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::bully::Name;
use vfield_e2e::field::NEWS;
use vfield_e2e::herald::{self, Word, proclaim};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, client};

/// What the tests need.
const NEEDS: [Need; 2] = [Need::Tool("minisign"), Need::Tool("nbdcopy")];

/// A key pair without a password: `NAME.pub` and `NAME.key`.
pub fn new_key(lab: &Lab, name: &str) -> Result<[PathBuf; 2], LabError> {
    let [public, secret] = ["pub", "key"].map(|kind| lab.dir().join(format!("{name}.{kind}")));
    run(Command::new("minisign").arg("-GWf").arg("-p").arg(&public).arg("-s").arg(&secret))?;
    Ok([public, secret])
}

fn sign(image: &Path, secret: &Path) -> Result<String, LabError> {
    run(Command::new(vfield().path()).arg("sign").arg(image).arg("--secret-key").arg(secret))
}

/// Signs as the stock tool does, at a time of one's own.
fn sign_at(image: &Path, secret: &Path, timestamp: u64) -> Result<(), LabError> {
    run(Command::new(vfield().path()).arg("sign").arg(image).arg("--statement"))?;
    let mut minisign = Command::new("minisign");
    minisign.arg("-Sm").arg(beside(image, ".vfield")).arg("-s").arg(secret);
    run(minisign.args(["-t", &format!("timestamp:{timestamp}")])).map(drop)
}

fn beside(image: &Path, behind: &str) -> PathBuf {
    PathBuf::from(format!("{}{behind}", image.display()))
}

/// A reader on a host, with a memory of its own.
fn reader(lab: &Lab, through: &Daemon, name: &str, words: &[&str]) -> Result<Daemon, LabError> {
    let vfield = vfield();
    let start = vfield.join(lab.host(1), through.addr()).name(name).store("0").state(lab.dir());
    start.args(words).spawn()
}

/// What a reader says that ends without having exported anything.
fn refused(lab: &Lab, through: &Daemon, words: &[&str]) -> Result<String, vfield_e2e::Failed> {
    let mut reader = reader(lab, through, "refused", words)?;
    let status = reader.process_mut().wait(NEWS)?;
    let log = reader.process().log();
    assert!(!status.success() && !log.contains("the images are exported at"), "{log}");
    std::fs::remove_file(lab.host(1).dir().join("refused.log"))?;
    let line = log.lines().find_map(|line| line.strip_prefix("vfield: image \"disk.img\" is refused: "));
    Ok(line.unwrap_or(&log).to_owned())
}

#[test]
fn signed_images_are_read_and_all_others_are_refused() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(3)?, vfield());
    let ([trusted, secret], [_, other_secret]) = (new_key(&lab, "vendor")?, new_key(&lab, "other")?);
    let image = random_file(&lab.dir().join("disk.img"), 3 * MIB + 5, 1)?;
    let trust = ["--trust", &trusted.display().to_string()];
    let serve = || vfield.serve(lab.host(0), &[&image]).name("origin").ready();

    let origin = serve()?;
    assert_eq!(refused(&lab, &origin, &trust)?, "it is not signed");
    drop(origin);

    sign(&image, &other_secret)?;
    let origin = serve()?;
    assert_eq!(refused(&lab, &origin, &trust)?, "it is not signed with a trusted key");
    drop(origin);

    let statement = sign(&image, &secret)?;
    let mut verify = Command::new("minisign");
    verify.arg("-Vm").arg(beside(&image, ".vfield")).arg("-p").arg(&trusted);
    assert!(run(&mut verify)?.contains("Signature and comment signature verified"));
    let origin = serve()?;
    let id = origin.image()?["id"].as_str().unwrap_or_default().to_owned();
    assert!(statement.contains(&format!("\nname disk.img\nid {id}\n")), "{statement}");

    // One that trusts nobody passes the signature on when the origin has gone.
    let between = vfield.join(lab.host(2), origin.addr()).store("all").args(&["--join-boost", "9"]).ready()?;
    let mut direct = reader(&lab, &origin, "reader", &trust)?;
    direct.wait_ready(NEWS)?;
    let key = std::fs::read_to_string(&trusted)?;
    assert_eq!(direct.image()?["signed"]["key"].as_str(), key.lines().nth(1));
    client::compare_nbd(lab.host(1), &direct.uri(""), &image)?;
    drop(direct);
    between.wait("covered", NEWS)?;
    drop(origin);
    let mut late = reader(&lab, &between, "late", &trust)?;
    late.wait_ready(NEWS)?;
    client::compare_nbd(lab.host(1), &late.uri(""), &image)?;
    Ok(())
}

#[test]
fn a_signature_of_another_image_is_of_no_use() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(2)?, vfield());
    let [trusted, secret] = new_key(&lab, "vendor")?;
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    sign(&image, &secret)?;
    // The file is another one by now; and then the same, under another name.
    random_file(&image, MIB, 2)?;
    let trust = ["--trust", &trusted.display().to_string()];
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let warned = origin.status()?["warnings"][0].as_str().unwrap_or_default().to_owned();
    assert_eq!(warned, "disk.img: its signature is one of another image or name");
    assert_eq!(refused(&lab, &origin, &trust)?, "it is not signed");
    drop(origin);
    sign(&image, &secret)?;
    let renamed = vfield.serve(lab.host(0), &[&image]).args(&["--name", "newer.img"]).name("origin").ready()?;
    assert!(refused(&lab, &renamed, &trust)?.contains("image \"newer.img\" is refused: it is not signed"));
    Ok(())
}

#[test]
fn a_name_does_not_go_back_to_what_was_signed_before() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(2)?, vfield());
    let [trusted, secret] = new_key(&lab, "vendor")?;
    let trust = ["--trust", &trusted.display().to_string()];
    let image = lab.dir().join("disk.img");
    let serve = |seed: u64, timestamp: u64| {
        random_file(&image, MIB, seed)?;
        sign_at(&image, &secret, timestamp)?;
        vfield.serve(lab.host(0), &[&image]).name("origin").ready()
    };
    let reads = |origin: &Daemon, words: &[&str]| {
        let mut reader = reader(&lab, origin, "reader", words)?;
        reader.wait_ready(NEWS)?;
        client::compare_nbd(lab.host(1), &reader.uri(""), &image)
    };
    let origin = serve(1, 1_000)?;
    reads(&origin, &trust)?;
    drop(origin);
    let origin = serve(2, 2_000)?;
    reads(&origin, &trust)?;
    drop(origin);
    let origin = serve(1, 1_000)?;
    let said = refused(&lab, &origin, &trust)?;
    assert_eq!(said, "it was signed at 1000, and one of 2000 was read here before");
    reads(&origin, &[&trust[..], &["--allow-rollback"]].concat())?;
    Ok(())
}

/// The image of today is signed later than that of yesterday, when the clock was a year ahead.
#[test]
fn a_clock_that_was_ahead_does_not_outdate_the_next_image() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(2)?, vfield());
    let [trusted, secret] = new_key(&lab, "vendor")?;
    let trust = ["--trust", &trusted.display().to_string()];
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let reads = || -> Result<(), vfield_e2e::Failed> {
        let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
        let mut reader = reader(&lab, &origin, "reader", &trust)?;
        reader.wait_ready(NEWS)?;
        Ok(client::compare_nbd(lab.host(1), &reader.uri(""), &image)?)
    };
    let ahead = std::time::UNIX_EPOCH.elapsed()? + Duration::from_secs(365 * 24 * 3600);
    sign_at(&image, &secret, ahead.as_secs())?;
    reads()?;
    random_file(&image, MIB, 2)?;
    sign(&image, &secret)?;
    reads()?;
    let signature = std::fs::read_to_string(beside(&image, ".vfield.minisig"))?;
    assert!(signature.contains(&format!("timestamp:{}", ahead.as_secs() + 1)), "{signature}");
    Ok(())
}

/// Members that do not exist, with ids before all others, some of which are said to have the image:
/// they are asked too, and nobody waits for them.
#[test]
fn ghosts_do_not_hide_a_signature() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(3)?, vfield());
    let [trusted, secret] = new_key(&lab, "vendor")?;
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    sign(&image, &secret)?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let id = origin.image()?["id"].as_str().unwrap_or_default().to_owned();
    let ghosts: Vec<Name> =
        (1..=40).map(|seed| Name::of((lab.host(2).addr().ip(), 9000 + seed as u16).into(), seed)).collect();
    let header = herald::header(MIB, 16);
    let word = |ghost: &Name| Word { of: *ghost, version: 1, image: &id, name: "disk.img", header, origin: true };
    let words: Vec<Word<'_>> = ghosts.iter().take(20).map(word).collect();
    proclaim(origin.addr(), ghosts[0], &ghosts, &words)?;
    let mut reader = reader(&lab, &origin, "reader", &["--trust", &trusted.display().to_string()])?;
    reader.wait_ready(NEWS)?;
    client::compare_nbd(lab.host(1), &reader.uri(""), &image)?;
    Ok(())
}

#[test]
fn garbage_is_no_key_to_trust() -> Outcome {
    let lab = Lab::loopback(2)?;
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let origin = vfield().serve(lab.host(0), &[&image]).name("origin").ready()?;
    let garbage = lab.dir().join("garbage.pub");
    std::fs::write(&garbage, "-----BEGIN PGP PUBLIC KEY BLOCK-----\n")?;
    let mut reader = reader(&lab, &origin, "reader", &["--trust", &garbage.display().to_string()])?;
    assert!(!reader.process_mut().wait(Duration::from_secs(20))?.success());
    let said = format!("vfield: trusted key {}: not a public key of minisign", garbage.display());
    assert!(reader.process().log().contains(&said), "{}", reader.process().log());
    Ok(())
}
