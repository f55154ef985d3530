//! Origins in clouds: keys that a machine or its cluster lends, and blobs of an account.
//!
//! `scripts/test-objects` brings the programs that stand in for clouds; elsewhere the tests say
//! that they were ignored. What else such services can answer is in the tests of `crates/object`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::clouds::{Aws, Azure};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, LabError, client, wait_until};

/// A machine that is busy takes part of a minute for what takes a second.
const SOON: Duration = Duration::from_secs(60);
const IMAGE: u64 = 9 * MIB + 777;

/// An origin of what a URL names, with these variables: it is confined, and reads all of the image.
fn serves(lab: &Lab, url: &str, environment: &[(&str, &str)], image: &Path) -> Outcome {
    let vfield = vfield();
    let start = vfield.serve(lab.host(0), &[&PathBuf::from(url)]).name("origin");
    let start = start.args(&["--sandbox", "require", "--name", "disk.img"]);
    let mut origin = environment.iter().fold(start, |start, (name, value)| start.env(name, value)).ready()?;
    client::compare_all(lab.host(0), &origin, image)?;
    origin.kill();
    Ok(())
}

#[test]
#[ignore = "scripts/test-objects brings the stand-in for AWS"]
fn a_machine_and_its_cluster_lend_keys() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(1)?;
    let image = random_file(&lab.dir().join("disk.img"), IMAGE, 1)?;
    let aws = Aws::start(lab.host(0))?;
    let (endpoint, token) = (aws.endpoint(), lab.dir().join("token"));
    std::fs::write(&token, "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb29tIn0.eA").map_err(LabError::at(&token))?;
    let token = token.display().to_string();
    let of_machine = [("AWS_ENDPOINT_URL_S3", &*endpoint), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*endpoint)];
    let of_cluster = [
        ("AWS_ENDPOINT_URL_S3", &*endpoint),
        ("AWS_ENDPOINT_URL_STS", &*endpoint),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &*token),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/room"),
    ];
    let mut publish = Command::new(vfield().path());
    publish.arg("publish").arg(&image).arg("s3://images/room#prod").envs(of_machine).env("HOME", lab.dir());
    run(&mut publish)?;
    for environment in [&of_machine[..], &of_cluster[..]] {
        serves(&lab, "s3://images/room#prod", environment, &image)?;
    }
    Ok(())
}

#[test]
#[ignore = "scripts/test-objects brings the stand-in for Azure"]
fn a_blob_is_read_with_the_key_of_its_account() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), IMAGE, 1)?;
    let azure = Azure::start(lab.host(0), &image)?;
    let (endpoint, url) = (azure.endpoint(), format!("az://{}/images/disk.img", Azure::ACCOUNT));
    let at = ("AZURE_STORAGE_SERVICE_ENDPOINT", &*endpoint);
    serves(&lab, &url, &[at, ("AZURE_STORAGE_KEY", Azure::KEY)], &image)?;

    let start = vfield.serve(lab.host(0), &[&PathBuf::from(&url)]).name("stranger");
    let mut stranger = start.env(at.0, at.1).env("AZURE_STORAGE_KEY", "YW5vdGhlcg==").spawn()?;
    wait_until("it ends", SOON, || stranger.process_mut().ended().is_some())?;
    let log = std::fs::read_to_string(stranger.process().log_path())?;
    assert!(log.contains("403 Forbidden"), "{log}");
    Ok(())
}
