//! Rooms of machines without disks, booted for real: emulated ones with a Debian, one wire each,
//! nothing handed to them.
//!
//! `make test-diskless` makes what they start from and runs these; consoles are kept in
//! `target/diskless/consoles`. An emulated machine takes about a minute to come up, so bounds are
//! generous.

mod attacked;
mod dracut;
mod moving;
mod room;
mod sealed;

use room::{COMMAND, CONSOLE, IP, Room, UP, USR_SUM};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_lab::diskless::{CARD_MBIT, Diskless, Parts, UEFI};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{LabError, wait_until};

const NEEDS: [Need; 4] = [Need::Root, Need::Diskless, Need::Tool("dnsmasq"), Need::Tool("mke2fs")];

/// Reads a root's device past the page cache, and fails if one read does; the seventh word that it
/// prints are the longest's nanoseconds.
const READ_ROOT: &str = "ioping -B -D -i 0 -w 20 -s 64k DEVICE >/run/reads";
const LONGEST: &str = "cut -d ' ' -f 7 /run/reads";

/// Kills the daemon of a machine, not its guard, which is the older one.
const KILL_DAEMON: &str = "for process in /proc/[0-9]*; do
        [ \"$(cat $process/comm)\" = vfield ] && tr '\\0' '\\n' <$process/environ | grep -q ^VFIELD_GUARD= && kill -KILL ${process#/proc/}
    done; true";

#[test]
fn a_room_boots_from_one_machine_that_goes() -> Outcome {
    boot_a_room("root.erofs", "ublk", "/dev/ublkb0")
}

#[test]
fn a_room_boots_with_the_kernels_nbd_client() -> Outcome {
    boot_a_room("root.squashfs", "nbd", "/dev/nbd0")
}

fn boot_a_room(image: &str, driver: &str, device: &str) -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let append = format!("vfield.store=all vfield.also=vmlinuz,initrd vfield.device={driver}");
    let name = |machine: &str| format!("{machine}-{driver}");
    let mut room = Room::new(4, image)?;
    room.netboot_from_origin(image, "initrd", &append)?;
    let usr = room.checksum_of_usr()?;

    // It is the room's first machine, and one of its members for all that follow.
    let mut first = room.boot(1, &name("first"), &Parts::default())?;
    assert_eq!(first.run(USR_SUM, COMMAND)?, usr, "the first machine's files");
    // The origin alone does not show how fast it is.
    let status: Value = serde_json::from_str(&first.run("vfield status --json", COMMAND)?)?;
    let links: Vec<&Value> =
        status["nodes"].as_array().into_iter().flatten().map(|node| &node["link_bytes_per_s"]).collect();
    let said = |link: &&&Value| link.as_u64().is_some_and(|rate| rate.abs_diff(CARD_MBIT * 125_000) < 12_500_000);
    assert_eq!(links.iter().filter(said).count(), 1, "its card's word is known: {links:?}");
    first.run("echo changed >/usr/changed && sync && grep -q changed /usr/changed", COMMAND)?;
    first.run("vfield status --wait filled --timeout 200s", COMMAND)?;

    // The next ones start from the first, which does not even know the origin's network boot.
    room.end_netboot();
    let netboot = "systemd-run --quiet --unit=netboot vfield netboot";
    let dhcp = "--dhcp 198.18.0.160-198.18.0.190";
    first.run(&format!("{netboot} {image} {dhcp} --append '{} {append}'", CONSOLE), COMMAND)?;
    let mut second = room.boot(2, &name("second"), &Parts::default())?;
    assert_eq!(second.run("ls /usr/changed 2>/dev/null | wc -l", COMMAND)?, "0", "another machine's changes");
    first.run("vfield status --wait covered --timeout 200s", COMMAND)?;
    room.kill_origin();
    let mut third = room.boot(3, &name("third"), &Parts::default())?;
    assert_eq!(third.run(USR_SUM, COMMAND)?, usr, "the third machine's files, without the origin");

    // A daemon that dies under the root file system.
    second.run(
        &format!(
            "{} & sleep 4; for n in 1 2 3; do {KILL_DAEMON}; sleep 4; done; wait $!",
            READ_ROOT.replace("DEVICE", device)
        ),
        COMMAND,
    )?;
    let longest_ms = second.run(LONGEST, COMMAND)?.trim().parse::<u64>()? / 1_000_000;
    eprintln!("longest stall over three deaths of the daemon: {longest_ms} ms");
    assert_eq!(second.run(USR_SUM, COMMAND)?, usr, "files after the daemon's deaths");
    second.run("! dmesg | grep -i 'i/o error'", COMMAND)?;

    first.power_off(UP)?;
    second.run("cat /usr/bin/* >/dev/null", COMMAND)?;
    Ok(())
}

#[test]
fn a_machine_with_uefi_boots() -> Outcome {
    if !have(&NEEDS) || !have(&[Need::File(UEFI), Need::File("/usr/lib/ipxe/ipxe.efi")]) {
        return Ok(());
    }
    let mut room = Room::new(2, "root.erofs")?;
    room.netboot_from_origin("root.erofs", "initrd", "vfield.store=64M")?;
    let mut machine = room.boot(1, "uefi", &Parts { uefi: true, ..Parts::default() })?;
    machine.run("test -d /sys/firmware/efi", COMMAND)?;
    // Not by HTTP boot, to which it comes when it has given up.
    assert!(room.netboot_log().contains("sent /usr/lib/ipxe/ipxe.efi to"), "{}", room.netboot_log());
    machine.power_off(UP)?;
    Ok(())
}

#[test]
fn what_was_saved_is_found_after_a_reboot() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let room = Room::new(2, "root.ext4")?;
    let disk = room.lab.dir().join("saved.img");
    run(Command::new("truncate").args(["-s", "64M"]).arg(&disk))?;
    run(Command::new("mke2fs").args(["-q", "-t", "ext4", "-L", "saved"]).arg(&disk))?;
    // A member that is not there is tried as well.
    let command_line = format!(
        "{CONSOLE} {IP} root=vfield:root.ext4@198.18.0.9,198.18.0.1 vfield.store=64M \
         vfield.overlay=ram vfield.overlay_size=256M vfield.overlay_from=LABEL=saved:/root.vfo"
    );
    let parts = Parts { command_line: Some(command_line), disk: Some(disk), ..Parts::default() };
    let boot = |name: &str| -> Result<Diskless, LabError> { room.boot(1, name, &parts) };

    let mut machine = boot("saving")?;
    machine.run("mkdir /root/kept && seq 1 100000 >/root/kept/numbers && sync", COMMAND)?;
    machine.run("vfield overlay save /run/vfield/saved/root.vfo", COMMAND)?;
    machine.run("echo later >/root/kept/later && sync", COMMAND)?;
    machine.power_off(UP)?;

    let mut machine = boot("saved")?;
    assert_eq!(machine.run("seq 1 100000 | cmp - /root/kept/numbers && ls /root/kept", COMMAND)?, "numbers");
    // Changes outlive the daemon, also those that were never saved.
    machine.run(&format!("echo again >/root/kept/again && sync; {KILL_DAEMON}"), COMMAND)?;
    machine.run(
        "echo 3 >/proc/sys/vm/drop_caches; cat /root/kept/again && seq 1 100000 | cmp - /root/kept/numbers",
        COMMAND,
    )?;
    // Nobody drops what the system stands on; it goes with the machine.
    let refused = machine.run("! vfield overlay reset", COMMAND)?;
    assert!(refused.contains("this machine's root is the image"), "{refused}");
    machine.run("rm /run/vfield/saved/root.vfo", COMMAND)?;
    machine.power_off(UP)?;

    let mut machine = boot("reset")?;
    assert_eq!(machine.run("ls /root | wc -l", COMMAND)?, "0", "what was saved once");
    machine.run("! dmesg | grep -i -E 'i/o error|ext4-fs error'", COMMAND)?;
    Ok(())
}

#[test]
fn machines_wait_for_a_member_and_say_so() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let mut room = Room::new(2, "root.squashfs")?;
    room.kill_origin();
    let command_line =
        format!("{CONSOLE} {IP} root=vfield:root.squashfs@198.18.0.1 vfield.store=64M vfield.overlay=none");
    let parts = Parts { command_line: Some(command_line), ..Parts::default() };
    let mut machine = Diskless::start(&room.images, room.lab.host(1), "waiting", &parts)?;
    let said = || room.console("waiting").matches("no bootstrap node could be joined: 198.18.0.1:4440").count();
    wait_until("the console says three times that nobody answers", UP, || said() >= 3)?;
    room.start_origin("root.squashfs")?;
    machine.up(UP)?;
    machine.run("! touch /root/x 2>/dev/null", Duration::from_secs(60))?;
    Ok(())
}
