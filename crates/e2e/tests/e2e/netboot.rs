//! What machines start from: here, that nothing of it is left when it goes. Real machines start from it in `tests/diskless`.

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
