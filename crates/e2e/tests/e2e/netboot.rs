//! What machines start from: that nothing of it is left when it goes, and who may not keep it from
//! others. Real machines start from it in `tests/diskless`.

use crate::tags::{self, Room};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, LabError, Link, wait_until};

/// Starting and ending take a fraction of a second.
const SOON: Duration = Duration::from_secs(20);
/// Port 67 for DHCP, as `/proc/net/udp` has it.
const DHCP: &str = ":0043 ";

#[test]
fn a_network_boot_that_is_killed_leaves_no_dhcp_server() -> Outcome {
    if !have(&[Need::Root, Need::Tool("dnsmasq")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::namespaces(1, Link::FAST)?, vfield());
    let host = lab.host(0);
    let files = ["root.squashfs", "vmlinuz", "initrd"].map(|name| lab.dir().join(name));
    for (seed, file) in (1..).zip(&files) {
        random_file(file, MIB, seed)?;
    }
    let origin = vfield.serve(host, &files.each_ref().map(|file| file.as_path())).name("origin").ready()?;
    let mut foreign = host.command(vfield.path());
    foreign.args(["netboot", "root.squashfs", "--dhcp", "10.0.0.5-10.0.0.9", "--print", "--control"]);
    let refused = foreign.arg(origin.control()).output()?;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("10.0.0.5 is no address to give in 198.18."), "{said}");
    let answers = || run(host.command("cat").arg("/proc/net/udp")).is_ok_and(|sockets| sockets.contains(DHCP));
    let mut command = host.command(vfield.path());
    command.args(["netboot", "root.squashfs", "--dhcp", "198.18.0.100-198.18.0.150", "--control"]);
    let mut netboot = host.spawn("netboot", command.arg(origin.control()))?;
    wait_until("somebody answers DHCP", SOON, answers)?;
    netboot.kill();
    wait_until("nobody answers DHCP", SOON, || !answers())?;
    Ok(())
}

/// Prints what a site answers.
const GETS: &str = "
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode(), end='')";

/// Machines that follow a tag: the next boot has the next version, and a version that does not
/// start is left after three boots.
#[test]
fn a_machine_boots_what_a_tag_names_and_goes_back_from_what_fails() -> Outcome {
    if !have(&[Need::Root, Need::Tool("minisign"), Need::Tool("python3")]) {
        return Ok(());
    }
    let room = Room::in_lab(Lab::namespaces(2, Link::FAST)?, &["v1.img", "v2.img"], tags::image)?;
    let (site, machine) = (room.lab.host(0), room.lab.host(1));
    for name in ["vmlinuz", "initrd"] {
        random_file(&room.file(name), MIB, 9)?;
    }
    room.publish("v1.img")?;
    let mut command = site.command(vfield().path());
    command.args(["netboot", "prod", "--dhcp", "none", "--kernel"]).arg(room.file("vmlinuz")).arg("--initrd");
    let netboot =
        site.spawn("netboot", command.arg(room.file("initrd")).arg("--control").arg(room.origin.control()))?;
    wait_until("it serves", SOON, || netboot.log().contains("machines start from"))?;
    let at = format!("http://{}:4480", site.addr().ip());
    let get = |path: &str| run(machine.client(SOON, "python3").args(["-c", GETS, &format!("{at}{path}")]));
    // The word that names the image, and the one that says whom to tell.
    let boot = || -> Result<(String, String), LabError> {
        let script = get("/machine/52-54-00-00-00-01.ipxe")?;
        let word =
            |of: &str| script.split_whitespace().find_map(|word| word.strip_prefix(of)).unwrap_or_default().to_owned();
        Ok((word("root=vfield:prod="), word("vfield.booted=")))
    };
    let tells = |report: &str| run(machine.command(vfield().path()).args(["booted", report, "--after", "0s"]));
    let id = |name: &str| run(site.command(vfield().path()).arg("id").arg(room.file(name)));
    let (v1, v2) = (id("v1.img")?, id("v2.img")?);
    let names = |root: &str, id: &str| root.len() > 64 && root.starts_with(id.split_whitespace().next().unwrap_or("-"));

    let (root, report) = boot()?;
    assert!(names(&root, &v1) && report == format!("{at}/booted/52-54-00-00-00-01/1"), "{root} {report}");
    tells(&report)?;
    assert_eq!(get("/boots")?, "52:54:00:00:00:01 serial 1: runs");
    room.publish("v2.img")?;
    for _ in 0..3 {
        let (root, report) = boot()?;
        assert!(names(&root, &v2) && report.ends_with("/2"), "{root} {report}");
    }
    let (root, report) = boot()?;
    assert!(names(&root, &v1) && report.ends_with("/1"), "{root} {report}");
    let said = "machine 52:54:00:00:00:01: 3 boots of tag prod serial 2 without a success; it gets serial 1";
    wait_until("it says so", SOON, || netboot.log().contains(said))?;
    tells(&report)?;
    // Another machine, and the next serial, are tried anew.
    assert!(get("/machine/52-54-00-00-00-02.ipxe")?.contains("/booted/52-54-00-00-00-02/2"));
    room.operator(&["tag", "set", "prod", "v2.img"])?;
    let (root, report) = boot()?;
    assert!(names(&root, &v2) && report.ends_with("/3"), "{root} {report}");
    assert!(tells(&format!("{at}/booted/52-54-00-00-00-01/")).is_err(), "nobody takes that");
    Ok(())
}

/// Asks for a file as often as it can be asked for, and reads nothing.
const READS_NOTHING: &str = "
import socket, sys, time
asking = [socket.create_connection((sys.argv[1], 4480)) for _ in range(300)]
for one in asking:
    try: one.sendall(b'GET /initrd HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')
    except OSError: pass
print('asked', flush=True)
time.sleep(3600)";
/// Reads a file, and compares it.
const READS: &str = "
import sys, urllib.request
with urllib.request.urlopen('http://' + sys.argv[1] + ':4480/kernel', timeout=20) as answer, open(sys.argv[2], 'rb') as file:
    sys.exit(answer.read() != file.read())";

#[test]
fn who_reads_nothing_keeps_nobody_from_booting() -> Outcome {
    if !have(&[Need::Root, Need::Tool("python3")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::namespaces(3, Link::FAST)?, vfield());
    let [site, bully, machine] = [lab.host(0), lab.host(1), lab.host(2)];
    let (kernel, initrd) = (lab.dir().join("vmlinuz"), lab.dir().join("initrd"));
    random_file(&kernel, MIB, 1)?;
    // More than the buffers between them hold. It is read through the daemon, whose connections are
    // few.
    random_file(&initrd, 32 * MIB, 2)?;
    let origin = vfield.serve(site, &[&kernel, &initrd]).name("origin").ready()?;
    let mut command = site.command(vfield.path());
    command.args(["netboot", "vmlinuz", "--dhcp", "none", "--control"]);
    let netboot = site.spawn("netboot", command.arg(origin.control()))?;
    wait_until("it serves", SOON, || netboot.log().contains("machines start from"))?;
    // What an administrator compares with the files that were built.
    for (part, file) in [("kernel", &kernel), ("initramfs", &initrd)] {
        let sum = run(Command::new("sha256sum").arg(file))?;
        let sum = format!(": sha256 {}", sum.split(' ').next().unwrap_or_default());
        let is_said =
            |line: &str| line.starts_with(&format!("{part} ")) && line.contains("(id ") && line.ends_with(&sum);
        wait_until("it says what they are", SOON, || netboot.log().lines().any(is_said))?;
    }
    let (descriptors, addr) = (netboot.descriptors(), site.addr().ip().to_string());

    let mut asks = bully.command("python3");
    let asks = bully.spawn("bully", asks.args(["-c", READS_NOTHING, &addr]))?;
    wait_until("all have been asked for", SOON, || asks.log().contains("asked"))?;
    run(machine.client(SOON, "python3").args(["-c", READS, &addr]).arg(&kernel))?;
    origin.status()?;
    // And it is rid of them, after 20 s.
    wait_until("who reads nothing is cut off", 3 * SOON, || netboot.descriptors() <= descriptors)?;
    Ok(())
}
