//! What machines start from: that nothing of it is left when it goes, and who may not keep it from
//! others. Real machines start from it in `tests/diskless`.

use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, Link, wait_until};

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
