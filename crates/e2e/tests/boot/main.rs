//! In machines of their own, booted for the purpose: what needs a kernel that the host may not
//! have.
//!
//! Each test is a script beside this file, run by the first process of a machine under software
//! emulation. `make test-boot` makes what they boot from and runs them.

use std::time::Duration;
use vfield_lab::Machine;
use vfield_lab::need::{Need, have};

/// What the scripts have in common.
const COMMON: &str = include_str!("common.sh");

/// A script takes a minute or two on a machine that does nothing else.
const LIMIT: Duration = Duration::from_secs(600);

/// Boots a machine for a script, which says by its status whether everything was as it should be.
fn boot(name: &str, script: &str) {
    if !have(&[Need::Machine]) {
        return;
    }
    let machine = Machine::find().expect("it was there just now");
    let ran = machine.run(name, &format!("{COMMON}\n{script}"), LIMIT).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ran.status, Some(0), "{name}: {}", ran.console);
}

#[test]
fn a_ublk_device_is_the_image_and_cannot_be_changed() {
    boot("ublk", include_str!("ublk.sh"));
}

#[test]
fn a_killed_daemon_takes_its_ublk_device_over_again() {
    boot("recovery", include_str!("recovery.sh"));
}

#[test]
fn a_killed_daemon_that_is_the_last_holder_has_its_store_again() {
    boot("kept", include_str!("kept.sh"));
}

#[test]
fn a_ublk_device_with_an_overlay_can_be_written() {
    boot("writable", include_str!("writable.sh"));
}

#[test]
fn a_device_of_the_kernels_nbd_client_is_taken_over_too() {
    boot("kernel_nbd", include_str!("kernel_nbd.sh"));
}

#[test]
fn each_version_of_a_tag_is_a_ublk_device() {
    boot("follow-ublk", &format!("driver=ublk\n{}", include_str!("follow.sh")));
}

#[test]
fn each_version_of_a_tag_is_a_device_of_the_kernels_nbd_client() {
    boot("follow-nbd", &format!("driver=nbd\n{}", include_str!("follow.sh")));
}

#[test]
fn what_ublk_lacks_is_said_in_one_line() {
    boot("refusals", include_str!("refusals.sh"));
}
