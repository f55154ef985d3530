//! Facts from made-up files of `/proc` and `/sys`, with any text in them.

use proptest::prelude::*;
use std::os::unix::fs::symlink;
use std::path::Path;
use vfield_control::limits::{ImageLimits, LimitStatus};
use vfield_control::message::DaemonStatus;
use vfield_doctor::checks::run;
use vfield_doctor::facts::{Facts, FirewallProgram};
use vfield_doctor::finding::Fix;
use vfield_doctor::fix;
use vfield_doctor::read::Root;
use vfield_node::status::NodeStatus;

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
    std::fs::write(path, text).expect("a temporary file");
}

const FILES: [(&str, &str); 41] = [
    ("sys/class/net/lo/operstate", "unknown\n"),
    ("sys/class/net/down0/operstate", "down\n"),
    ("sys/class/net/eth0/operstate", "up\n"),
    ("sys/class/net/eth0/speed", "100\n"),
    ("sys/class/net/eth0/duplex", "half\n"),
    ("sys/class/net/eth0/mtu", "1500\n"),
    ("sys/class/net/eth0/carrier_changes", "40\n"),
    ("sys/class/net/eth0/statistics/rx_packets", "1000000\n"),
    ("sys/class/net/eth0/statistics/rx_crc_errors", "77\n"),
    ("sys/class/net/eth0/statistics/rx_missed_errors", "500\n"),
    ("sys/class/net/eth0/statistics/tx_dropped", "3\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0000,00000000\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_flow_cnt", "0\n"),
    ("sys/class/net/eth0/queues/rx-10/rps_cpus", "f\n"),
    ("sys/class/net/eth0/queues/rx-2/rps_cpus", "3\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
    ("sys/class/net/virt0/operstate", "unknown\n"),
    ("sys/class/net/virt0/speed", "-1\n"),
    (
        "proc/interrupts",
        "      CPU0  CPU1\n 24:   9  1  PCI-MSI eth0-TxRx-0\n 25:   90  2  PCI-MSI eth0-TxRx-1\n 26:  7 7  PCI-MSI eth01\nNMI:  1 1 x\n",
    ),
    ("proc/cpuinfo", "processor : 0\nflags\t\t: fpu avx2 aes\n\nprocessor : 1\nflags : fpu\n"),
    ("proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:   400 kB\nSwapTotal: 100 kB\nSwapFree: 30 kB\n"),
    (
        "proc/self/limits",
        "Limit Soft Hard Units\nMax open files            1024                 4096                 files\nMax locked memory  8388608 unlimited bytes\n",
    ),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("proc/sys/net/ipv4/tcp_sack", "0\n"),
    ("proc/sys/net/ipv4/tcp_window_scaling", "1\n"),
    ("proc/sys/net/ipv4/neigh/default/gc_thresh3", "1024\n"),
    ("proc/net/arp", "IP address HW type\n198.18.0.1 0x1\n198.18.0.2 0x1\n"),
    ("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 5000 70\nUdp: InDatagrams RcvbufErrors\nUdp: 90 -1\n"),
    ("proc/net/netstat", "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 12\n"),
    ("proc/net/softnet_stat", "0000 0000000a 0\n0001 00000010 0\n"),
    ("proc/pressure/cpu", "some avg10=0.00 avg60=31.50 avg300=1.0 total=5\nfull avg60=0.0\n"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
    ("sys/devices/system/node/node0/cpulist", "0-1\n"),
    ("sys/fs/cgroup/system.slice/firewalld.service/cgroup.procs", "700\n"),
    ("etc/firewalld/firewalld.conf", "# The usual one\nDefaultZone=work\nLogDenied=off\n"),
    ("etc/firewalld/zones/work.xml", "<zone><service name='many'/><port protocol='udp' port='5000-5010'/></zone>"),
    (
        "usr/lib/firewalld/services/many.xml",
        "<service><include service='many'/><port protocol='tcp' port='22'/></service>",
    ),
    ("etc/ufw/ufw.conf", "LOGLEVEL=low\nENABLED=yes\n"),
    ("etc/default/ufw", "DEFAULT_INPUT_POLICY=\"DROP\"\n"),
    (
        "etc/ufw/user.rules",
        "*filter\n### RULES ###\n\n### tuple ### allow tcp 22,80 0.0.0.0/0 any 0.0.0.0/0 in\n-A x\n",
    ),
];

fn made_up() -> (tempfile::TempDir, Facts) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    FILES.iter().for_each(|(file, text)| put(dir.path(), file, text));
    std::fs::create_dir_all(dir.path().join("sys/class/net/eth0/device")).expect("a folder");
    symlink("../../../../bus/pci/drivers/ixgbe", dir.path().join("sys/class/net/eth0/device/driver")).expect("a link");
    let facts = Root::new(dir.path()).facts(Err("no daemon runs"));
    (dir, facts)
}

#[test]
fn facts_are_what_the_files_say() {
    let (_dir, facts) = made_up();
    assert_eq!(facts.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["eth0", "virt0"]);
    let link = &facts.links[0];
    assert_eq!((link.speed_mbit, link.duplex.as_deref(), link.driver.as_str()), (Some(100), Some("half"), "ixgbe"));
    assert_eq!((link.rx_crc_errors, link.rx_missed, link.carrier_changes), (77, 500, Some(40)));
    assert_eq!(link.rps_cpus, ["0000,00000000", "3", "f"], "in the order of the numbers");
    assert!(link.has_rps());
    assert_eq!(link.interrupts, [99, 3], "eth01 is another interface");
    assert_eq!(facts.links[1].speed_mbit, None);
    let (net, machine) = (&facts.net, &facts.machine);
    assert_eq!(net.tcp_buffers_max, Some((6_291_456, 4_194_304)));
    assert_eq!((net.sack, net.window_scaling, net.neighbours), (Some(false), Some(true), Some((2, 1024))));
    assert_eq!((net.segments, net.datagrams, net.listen_overflows), (Some((5000, 70)), None, Some(12)));
    assert_eq!((net.backlog_dropped, net.tracked), (Some(26), None));
    assert_eq!((machine.cpus, machine.numa_nodes, machine.cpu_flags.len()), (2, 1, 3));
    assert_eq!((machine.memory, machine.swap_used), (Some((400 << 10, 1000 << 10)), Some(70 << 10)));
    assert_eq!((machine.descriptors_max, machine.locked_max), (Some(4096), Some(u64::MAX)));
    assert_eq!((machine.cpu_pressure, machine.clocksource.as_deref()), (Some(31.5), Some("hpet")));
    assert_eq!(facts.unseen, ["the field: no daemon runs"]);
}

/// TCP, UDP, and the ports.
fn admitted(facts: &Facts, at: usize) -> Vec<(bool, bool, u16, u16)> {
    let admitted = facts.firewalls[at].admitted.iter();
    admitted.map(|part| (part.tcp, part.udp, *part.ports.start(), *part.ports.end())).collect()
}

#[test]
fn firewalls_are_what_their_files_say() {
    let (dir, facts) = made_up();
    let programs: Vec<_> = facts.firewalls.iter().map(|firewall| firewall.by).collect();
    assert_eq!(programs, [FirewallProgram::Firewalld { has_service: false }, FirewallProgram::Ufw]);
    assert_eq!(admitted(&facts, 0), [(false, true, 5000, 5010), (true, false, 22, 22)]);
    assert_eq!(admitted(&facts, 1), [(true, false, 22, 22), (true, false, 80, 80)]);
    let facts_with = |file: &str, text: &str| {
        put(dir.path(), file, text);
        Root::new(dir.path()).facts(Err("no daemon runs"))
    };
    let service = "<service><port protocol='tcp' port='4440'/><port protocol='udp' port='4440'/></service>";
    let facts = facts_with("usr/lib/firewalld/services/vfield.xml", service);
    assert_eq!(facts.firewalls[0].by, FirewallProgram::Firewalld { has_service: true });
    let (ours, all) = ([(true, false, 4440, 4440), (false, true, 4440, 4440)], [(true, true, 0, 65535)]);
    for (zone, wanted) in [
        ("<zone><service name='vfield'/></zone>", &ours[..]),
        ("<zone><!-- <service name='vfield'/> --></zone>", &[]),
        (
            "<zone><rule family='ipv4'><source address='198.18.0.0/16'/><service name='vfield'/><accept/></rule></zone>",
            &ours,
        ),
        ("<zone><rule><service name='vfield'/><reject/></rule></zone>", &[]),
        ("<zone><port protocol='tcp' port='4440'/></zone>", &ours[..1]),
        ("<zone><port protocol='tcp' port='99999'/><port protocol='tcp'/></zone>", &[]),
        ("<zone target='ACCEPT'/>", &all),
        ("<zone><protocol value='udp'/></zone>", &[(false, true, 0, 65535)]),
        ("<zone><service name='../zones/work'/></zone>", &[]),
        ("<zone", &[]),
    ] {
        assert_eq!(admitted(&facts_with("etc/firewalld/zones/work.xml", zone), 0), wanted, "{zone}");
    }
    // Zones that somebody has made, besides the usual one.
    let facts = facts_with("etc/firewalld/zones/field.xml", "<zone><service name='vfield'/></zone>");
    assert_eq!(admitted(&facts, 0), ours);
    for (rule, wanted) in [
        ("allow any 4440 0.0.0.0/0 any 198.18.0.0/16 in", &[(true, true, 4440, 4440)][..]),
        ("limit udp 4000:5000 0.0.0.0/0 any 0.0.0.0/0 in_eth0", &[(false, true, 4000, 5000)]),
        ("allow tcp 4440 0.0.0.0/0 any 0.0.0.0/0 V-FIELD - in comment=696e", &[(true, false, 4440, 4440)]),
        ("allow any any 0.0.0.0/0 any 198.18.0.1 in", &all),
        ("deny any 4440 0.0.0.0/0 any 0.0.0.0/0 in", &[]),
        ("allow any 4440 0.0.0.0/0 any 0.0.0.0/0 out", &[]),
        ("allow", &[]),
    ] {
        let facts = facts_with("etc/ufw/user.rules", &format!("### tuple ### {rule}\n"));
        assert_eq!(admitted(&facts, 1), wanted, "{rule}");
    }
    assert_eq!(facts_with("etc/default/ufw", "DEFAULT_INPUT_POLICY=\"ACCEPT\"\n").firewalls.len(), 1);
    std::fs::remove_dir_all(dir.path().join("sys/fs")).expect("it was made");
    assert_eq!(facts_with("etc/ufw/ufw.conf", "ENABLED=no\n").firewalls, []);
}

#[test]
fn a_virtio_device_has_the_interrupts_of_the_device_below_it() {
    let (dir, _) = made_up();
    put(dir.path(), "sys/devices/pci/virtio2/features", "0\n");
    put(dir.path(), "sys/devices/pci/msi_irqs/38", "msix\n");
    put(
        dir.path(),
        "proc/interrupts",
        "   CPU0  CPU1\n 38:  9  1  PCI-MSIX virtio2-input.0\n 39:  5  5  x virtio3-rx\n",
    );
    let device = dir.path().join("sys/class/net/eth0/device");
    std::fs::remove_dir_all(&device).expect("it was made");
    symlink("../../../devices/pci/virtio2", device).expect("a link");
    assert_eq!(Root::new(dir.path()).facts(Err("no daemon runs")).links[0].interrupts, [9, 1]);
}

#[test]
fn what_is_broken_there_is_found() {
    let (_dir, facts) = made_up();
    let found: Vec<&str> = run(&facts).iter().map(|finding| finding.check).collect();
    for check in
        ["link-speed", "link-duplex", "link-errors", "link-flaps", "rx-missed", "sack", "clocksource", "descriptors"]
    {
        assert!(found.contains(&check), "{check}: {found:?}");
    }
}

#[test]
fn an_empty_machine_says_what_was_not_seen() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let facts = Root::new(dir.path()).facts(Err("no daemon runs"));
    assert_eq!(facts.unseen.len(), 2, "{:?}", facts.unseen);
    assert_eq!(run(&facts), []);
}

#[test]
fn the_daemons_view_becomes_facts() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut status = DaemonStatus::default();
    let node = |addr: &str, state: &str, rate| NodeStatus {
        addr: addr.into(),
        state: state.into(),
        link_bytes_per_s: rate,
        ..NodeStatus::default()
    };
    status.node.nodes = vec![node("a:1", "self", Some(5)), node("b:1", "unreachable", None)];
    (status.limits.up.bytes_per_s, status.limits.up.held_s) = (Some(1000), 2.0);
    let down = LimitStatus { bytes_per_s: Some(2000), ..LimitStatus::default() };
    status.limits.images = vec![ImageLimits { image: "a.img".into(), down, ..ImageLimits::default() }];
    let field = Root::new(dir.path()).facts(Ok(&status)).field.expect("a daemon");
    assert_eq!((field.link_bytes_per_s, field.members.len()), (Some(5), 1));
    let limits = field.limits.iter().map(|limit| (limit.image.as_deref(), limit.direction, limit.bytes_per_s));
    assert_eq!(limits.collect::<Vec<_>>(), [(None, "up", 1000), (Some("a.img"), "down", 2000)]);
}

#[test]
fn a_fix_is_written_and_looked_at() {
    let (dir, facts) = made_up();
    let outcomes = fix::apply(&run(&facts), dir.path());
    assert!(
        outcomes.iter().any(|outcome| outcome.as_ref().is_ok_and(|text| text.contains("tcp_sack: 1 instead of 0")))
    );
    let now = std::fs::read_to_string(dir.path().join("proc/sys/net/ipv4/tcp_sack")).expect("the file");
    assert_eq!(now, "1");
    let again = Root::new(dir.path()).facts(Err("no daemon runs"));
    assert!(!run(&again).iter().any(|finding| finding.check == "sack"));
}

#[test]
fn a_fix_makes_no_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut finding = run(&made_up().1).remove(0);
    finding.fix = vec![Fix { path: "/proc/sys/none".into(), value: "1".into(), before: "0".into() }];
    assert!(fix::apply(&[finding], dir.path())[0].is_err());
    assert!(!dir.path().join("proc").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever one file says, there are facts, and checks of them.
    #[test]
    fn any_text_is_read(at in 0..FILES.len(), text in "[0-9a-z:,= \n-]{0,80}|\\PC{0,40}|[0-9]{1,30}") {
        let dir = tempfile::tempdir().expect("a temporary folder");
        FILES.iter().for_each(|(file, text)| put(dir.path(), file, text));
        put(dir.path(), FILES[at].0, &text);
        let _ = run(&Root::new(dir.path()).facts(Err("no daemon runs")));
    }
}
