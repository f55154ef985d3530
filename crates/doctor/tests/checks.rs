//! Each check finds the fault that is made for it, and says nothing about a machine without one.

use std::collections::BTreeSet;
use vfield_doctor::checks::{CHECKS, run};
use vfield_doctor::facts::{Admitted, Ethtool, Facts, Field, Firewall, FirewallProgram, Limit, Link, Machine, Net};
use vfield_doctor::finding::Weight;

const DOCUMENT: &str = include_str!("../../../docs/reference/doctor.md");

/// A machine without a fault, on which everything could be looked at.
fn well() -> Facts {
    let ethtool = Ethtool {
        rx_ring: Some((512, 4096)),
        channels: Some((4, 8)),
        rx_usecs: Some(30),
        adaptive_rx: Some(false),
        gro: Some(true),
        gso: Some(true),
        tso: Some(true),
    };
    let link = Link {
        name: "eth0".into(),
        driver: "ixgbe".into(),
        speed_mbit: Some(10_000),
        offered_mbit: Some(10_000),
        duplex: Some("full".into()),
        mtu: Some(1500),
        numa_node: Some(0),
        carrier_changes: Some(2),
        rx_packets: 10_000_000,
        rps_cpus: vec!["0".into(); 4],
        rps_flow_cnt: vec![0; 4],
        interrupts: vec![250_000; 4],
        ethtool,
        ..Link::default()
    };
    let net = Net {
        tcp_buffers_max: Some((6 << 20, 6 << 20)),
        congestion: Some("cubic".into()),
        window_scaling: Some(true),
        sack: Some(true),
        neighbours: Some((50, 1024)),
        tracked: Some((1000, 262_144)),
        flow_entries: Some(0),
        segments: Some((10_000_000, 1000)),
        datagrams: Some((100_000, 3)),
        listen_overflows: Some(0),
        backlog_dropped: Some(0),
        backlog_max: Some(1000),
    };
    let machine = Machine {
        cpus: 4,
        cpu_flags: ["sse2", "avx2", "aes"].map(str::to_owned).to_vec(),
        governor: Some(("schedutil".into(), "acpi-cpufreq".into())),
        numa_nodes: 1,
        clocksource: Some("tsc".into()),
        memory: Some((8 << 30, 16 << 30)),
        swap_used: Some(0),
        shmem_huge: Some("never".into()),
        descriptors_max: Some(1 << 20),
        locked_max: Some(u64::MAX),
        cpu_pressure: Some(0.5),
    };
    let member = |number: u8| (format!("198.18.0.{number}:4440"), "alive".to_owned(), Some(1_200_000_000));
    let firewall = Firewall {
        by: FirewallProgram::Firewalld { has_service: true },
        admitted: vec![Admitted { tcp: true, udp: true, ports: 4440..=4440 }],
    };
    let field = Field {
        addr: Some(([198, 18, 0, 10], 4440).into()),
        link_bytes_per_s: Some(1_200_000_000),
        members: (1..=9).map(member).collect(),
        is_closed: true,
        store: (1 << 30, 1 << 29),
        ..Field::default()
    };
    Facts { links: vec![link], net, firewalls: vec![firewall], machine, field: Some(field), unseen: Vec::new() }
}

type Break = fn(&mut Facts);

/// What breaks a machine so that a check finds it.
const BROKEN: [(&str, Break); 42] = [
    ("link-speed", |facts| facts.links[0].speed_mbit = Some(100)),
    ("link-speed", |facts| facts.links[0].speed_mbit = Some(1000)),
    ("link-duplex", |facts| facts.links[0].duplex = Some("half".into())),
    ("link-errors", |facts| facts.links[0].rx_crc_errors = 500),
    ("link-flaps", |facts| facts.links[0].carrier_changes = Some(200)),
    ("mtu", |facts| facts.links[0].mtu = Some(1280)),
    ("mtu", |facts| {
        let other = Link { name: "eth1".into(), mtu: Some(9000), ..facts.links[0].clone() };
        facts.links.push(other);
    }),
    ("rx-missed", |facts| facts.links[0].rx_missed = 30_000),
    ("tx-dropped", |facts| facts.links[0].tx_dropped = 30_000),
    ("channels", |facts| facts.links[0].ethtool.channels = Some((1, 8))),
    ("rps", |facts| (facts.links[0].rps_cpus, facts.links[0].rps_flow_cnt) = (vec!["0".into()], vec![0])),
    ("rps", |facts| {
        let link = &mut facts.links[0];
        (link.speed_mbit, link.driver, link.rps_cpus) = (None, "virtio_net".into(), vec!["00".into()]);
    }),
    ("rfs", |facts| facts.links[0].rps_cpus = vec!["e".into(); 4]),
    ("irq-affinity", |facts| facts.links[0].interrupts = vec![1_000_000, 10, 10, 0]),
    ("coalescing", |facts| facts.links[0].ethtool.rx_usecs = Some(0)),
    ("coalescing", |facts| facts.links[0].ethtool.rx_usecs = Some(1000)),
    ("gro", |facts| facts.links[0].ethtool.gro = Some(false)),
    ("gso", |facts| facts.links[0].ethtool.gso = Some(false)),
    ("gso", |facts| facts.links[0].ethtool.tso = Some(false)),
    ("backlog", |facts| facts.net.backlog_dropped = Some(5000)),
    ("tcp-buffers", |facts| facts.net.tcp_buffers_max = Some((212_992, 4 << 20))),
    ("window-scaling", |facts| facts.net.window_scaling = Some(false)),
    ("sack", |facts| facts.net.sack = Some(false)),
    ("congestion", |facts| facts.net.congestion = Some("vegas".into())),
    ("retransmits", |facts| facts.net.segments = Some((1_000_000, 30_000))),
    ("udp-drops", |facts| facts.net.datagrams = Some((100_000, 4000))),
    ("listen-overflows", |facts| facts.net.listen_overflows = Some(900)),
    ("neighbours", |facts| facts.net.neighbours = Some((1000, 1024))),
    ("neighbours", |facts| facts.net.neighbours = Some((2, 8))),
    ("conntrack", |facts| facts.net.tracked = Some((60_000, 65_536))),
    ("firewall", |facts| facts.firewalls[0].admitted.clear()),
    ("firewall", |facts| facts.firewalls[0].admitted[0].udp = false),
    ("cpu-features", |facts| facts.machine.cpu_flags = vec!["sse2".into(), "aes".into()]),
    ("cpu-features", |facts| facts.machine.cpu_flags = vec!["avx2".into()]),
    ("governor", |facts| facts.machine.governor = Some(("powersave".into(), "acpi-cpufreq".into()))),
    ("clocksource", |facts| facts.machine.clocksource = Some("hpet".into())),
    ("memory", |facts| facts.machine.memory = Some((1 << 28, 16 << 30))),
    ("pressure", |facts| facts.machine.cpu_pressure = Some(60.0)),
    ("descriptors", |facts| facts.machine.descriptors_max = Some(1024)),
    ("numa", |facts| facts.machine.numa_nodes = 2),
    ("members", |facts| field(facts).members[3].1 = "unreachable".into()),
    ("members", |facts| field(facts).link_bytes_per_s = Some(12_000_000)),
];

fn field(facts: &mut Facts) -> &mut Field {
    facts.field.as_mut().expect("a daemon runs")
}

#[test]
fn a_machine_that_is_well_has_no_findings() {
    assert_eq!(run(&well()), []);
    assert_eq!(run(&Facts::default()), [], "what was not seen is not wrong");
}

#[test]
fn each_check_finds_what_is_broken_for_it() {
    for (check, breaks) in BROKEN {
        let mut facts = well();
        breaks(&mut facts);
        let found = run(&facts);
        assert!(found.iter().any(|finding| finding.check == check), "{check}: {found:#?}");
        for finding in found {
            assert!(!finding.fact.is_empty() && !finding.consequence.is_empty(), "{finding:#?}");
            assert!(!finding.command.is_empty(), "{finding:#?}");
            assert!(finding.fix.iter().all(|fix| fix.path.starts_with("/proc/sys/") || fix.path.starts_with("/sys/")));
        }
    }
    let broken: BTreeSet<&str> = BROKEN.iter().map(|(check, _)| *check).collect();
    assert_eq!(broken, CHECKS.iter().map(|check| check.name).collect(), "each check is broken once");
}

#[test]
fn slow_members_and_limits_are_named() {
    let mut facts = well();
    field(&mut facts).members[2].2 = Some(12_000_000);
    let limit = |image: Option<&str>, direction, setting: &str, held_s| {
        let (image, setting) = (image.map(str::to_owned), setting.to_owned());
        Limit { image, direction, setting, bytes_per_s: 5_000_000, held_s }
    };
    let limits = vec![
        limit(None, "up", "none,08:00-18:00=5MB", 60.0),
        limit(None, "down", "5MB", 0.0),
        limit(Some("home.img"), "down", "5MB", 2.0),
    ];
    field(&mut facts).limits = limits;
    let found = run(&facts);
    assert!(found.iter().any(|finding| finding.fact.contains("198.18.0.3:4440")), "{found:#?}");
    let limits: Vec<_> = found.iter().filter(|finding| finding.command.starts_with("vfield limit")).collect();
    let lines = limits.iter().map(|finding| (finding.command.as_str(), finding.undo.as_str()));
    let of_node = ("vfield limit --up none", "vfield limit --up none,08:00-18:00=5MB");
    let of_image = ("vfield limit --image home.img --down none", "vfield limit --image home.img --down 5MB");
    assert_eq!(lines.collect::<Vec<_>>(), [of_node, of_image]);
    assert!(limits[1].fact.contains("of home.img of 4.8 MiB/s down"), "{limits:#?}");
}

#[test]
fn a_firewall_is_opened_for_the_port_of_the_node() {
    let closed = |by: FirewallProgram, change: fn(&mut Facts)| {
        let mut facts = well();
        facts.firewalls[0].by = by;
        facts.firewalls[0].admitted[0].tcp = false;
        change(&mut facts);
        let found = run(&facts).into_iter().find(|finding| finding.check == "firewall");
        found.map(|found| (found.weight, found.command, found.undo))
    };
    let with_service = FirewallProgram::Firewalld { has_service: true };
    let line = |what: &str| format!("firewall-cmd --permanent {what} && firewall-cmd --reload");
    let service = (line("--add-service=vfield"), line("--remove-service=vfield"));
    assert_eq!(closed(with_service, |_| ()), Some((Weight::Note, service.0.clone(), service.1.clone())));
    let alone: [fn(&mut Facts); 3] = [
        |facts| facts.field = None,
        |facts| field(facts).members.clear(),
        |facts| field(facts).warnings.push("198.18.0.1 cannot connect to you on TCP 4440: nobody can".into()),
    ];
    for change in alone {
        assert_eq!(closed(with_service, change), Some((Weight::Bad, service.0.clone(), service.1.clone())));
    }
    let another_port: fn(&mut Facts) = |facts| field(facts).addr = Some(([198, 18, 0, 10], 5000).into());
    for by in [with_service, FirewallProgram::Firewalld { has_service: false }] {
        let (_, command, undo) = closed(by, another_port).expect("it is closed");
        let ports = |word: &str| line(&format!("--{word}-port=5000/tcp --{word}-port=5000/udp"));
        assert_eq!((command, undo), (ports("add"), ports("remove")));
    }
    let (_, command, undo) = closed(FirewallProgram::Ufw, |_| ()).expect("it is closed");
    assert_eq!((command.as_str(), undo.as_str()), ("ufw allow 4440", "ufw delete allow 4440"));
    assert_eq!(closed(with_service, |facts| field(facts).addr = Some(([127, 0, 0, 1], 4440).into())), None);
}

#[test]
fn the_gravest_comes_first() {
    let mut facts = well();
    facts.machine.descriptors_max = Some(1024);
    facts.net.window_scaling = Some(false);
    let weights: Vec<Weight> = run(&facts).iter().map(|finding| finding.weight).collect();
    assert_eq!(weights, [Weight::Bad, Weight::Note]);
}

#[test]
fn a_virtual_interface_needs_no_help_with_its_packets() {
    let mut facts = well();
    let link = &mut facts.links[0];
    (link.driver, link.rps_cpus, link.rps_flow_cnt) = (String::new(), vec!["0".into()], vec![0]);
    (link.ethtool.gro, link.speed_mbit) = (Some(false), Some(100_000));
    assert_eq!(run(&facts), []);
}

#[test]
fn what_is_large_already_is_made_no_smaller() {
    let mut facts = well();
    facts.net.tcp_buffers_max = Some((32 << 20, 212_992));
    let found = run(&facts);
    assert_eq!(found[0].check, "tcp-buffers");
    assert!(found[0].command.contains("tcp_rmem='4096 131072 33554432'"), "{}", found[0].command);
}

/// A driver may report any number.
#[test]
fn absurd_numbers_do_no_harm() {
    let mut facts = well();
    let link = &mut facts.links[0];
    (link.rx_packets, link.rx_crc_errors, link.rx_missed, link.tx_dropped) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    (link.mtu, link.speed_mbit, link.carrier_changes) = (Some(68), Some(1), Some(u64::MAX));
    link.ethtool.rx_usecs = Some(u64::MAX);
    facts.net.neighbours = Some((u64::MAX >> 8, u64::MAX >> 8));
    facts.net.tracked = Some((u64::MAX, u64::MAX));
    facts.net.segments = Some((u64::MAX, u64::MAX));
    facts.net.datagrams = Some((u64::MAX, u64::MAX));
    assert!(run(&facts).len() > 5);
}

#[test]
fn the_document_lists_each_check_and_no_other() {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let documented: Vec<(&str, &str)> = rows.map(|(name, rest)| (name, rest.trim_end_matches(" |"))).collect();
    let checks: Vec<(&str, &str)> = CHECKS.iter().map(|check| (check.name, check.about)).collect();
    assert_eq!(documented, checks);
}
