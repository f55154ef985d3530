//! What `vfield bench` looks like.

use super::super::cpu::Shares;
use super::super::link::Link;
use super::super::outcome::{
    Delays, FORMAT, FromPeer, Image, Limit, Network, NodeRate, Outcome, Run, Target, limit, limit_of_nodes,
};
use super::*;
use crate::args::Pattern;
use hdrhistogram::Histogram;
use vfield_control::reference::{documented, example, fields, format_of};

fn shares(machine: f64) -> Shares {
    let [node, bench, softirq] = [0.21, 0.08, 0.114].map(Some);
    Shares { processors: 2, machine: Some(machine), node, bench, softirq, stolen: Some(0.0) }
}

fn run(pattern: Pattern, streams: u64, bytes: u64, network: u64, link: &Link) -> Run {
    let peer = |addr: &str, origin, bytes| FromPeer { addr: addr.to_owned(), origin, bytes };
    let peers =
        vec![peer("192.168.1.1:4440", true, network / 4), peer("192.168.1.2:4440", false, network - network / 4)];
    Run {
        pattern,
        streams,
        depth: 4,
        block_bytes: if pattern == Pattern::Random { 4096 } else { 256 << 10 },
        seconds: 2.0,
        bytes,
        requests: bytes >> 18,
        refused: 0,
        unanswered: 0,
        mb_per_s: bytes as f64 / 2e6,
        delay_us: Some(Delays { min: 81.25, median: 999.6, p95: 12_345.0, p99: 543_000.0, max: 1_234_567.0 }),
        cpu: shares(0.634),
        network: Some(Network::of(peers, bytes, 2.0, link)),
    }
}

fn outcome() -> Outcome {
    let link = Link { device: Some("eth0".to_owned()), bits_per_second: Some(1_000_000_000), given: true };
    let sequential = run(Pattern::Sequential, 4, 300 << 20, 234_000_000, &link);
    let runs = vec![sequential, run(Pattern::Random, 12, 8 << 20, 0, &link)];
    let (name, id) = ("viver.squash".to_owned(), "6f1ed002ab55".repeat(5));
    Outcome {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        target: Target::Export {
            export: "nbd+unix:///viver.squash?socket=/run/vfield.nbd".to_owned(),
            node: Some("2b".repeat(8)),
            addr: Some("192.168.1.3:4440".to_owned()),
            pid: Some(4711),
            filled: Some(false),
        },
        image: Some(Image { name, id, size_bytes: 300 << 20, chunk_size_bytes: 64 << 10 }),
        limit: limit(&runs),
        link,
        runs,
        nodes: Vec::new(),
        interrupted: false,
    }
}

fn sweep() -> Outcome {
    let mut outcome = outcome();
    outcome.link = Link { device: Some("eth0".to_owned()), ..Link::default() };
    outcome.target =
        Target::Peer { node: "1a".repeat(8), addr: "192.168.1.1:4440".to_owned(), origin: true, chunks: 4800 };
    let link = outcome.link.clone();
    outcome.runs =
        [1, 2, 4, 8, 12].map(|streams| run(Pattern::Sequential, streams, streams << 26, streams << 26, &link)).to_vec();
    outcome.limit = limit(&outcome.runs);
    outcome
}

fn field() -> Outcome {
    let mut outcome = outcome();
    outcome.target = Target::Field { node: "2b".repeat(8), addr: "192.168.1.3:4440".to_owned() };
    let rate = |host: u8, mbit: [Option<u64>; 3]| {
        let [up_bytes_per_s, down_bytes_per_s, link_bytes_per_s] = mbit.map(|mbit| Some(mbit? * 125_000));
        let (node, addr) = (format!("{host}a").repeat(8), format!("192.168.1.{host}:4440"));
        NodeRate { node, addr, up_bytes_per_s, down_bytes_per_s, link_bytes_per_s, slow: host == 2, failure: None }
    };
    outcome.nodes = vec![
        rate(1, [Some(941), Some(938), None]),
        rate(2, [Some(94), Some(95), Some(90)]),
        rate(4, [None, Some(937), Some(930)]),
        NodeRate {
            failure: Some("node 192.168.1.5:4440: connection refused".to_owned()),
            ..rate(5, [None, None, Some(900)])
        },
    ];
    (outcome.image, outcome.runs) = (None, Vec::new());
    outcome.limit = limit_of_nodes(&outcome.nodes, &outcome.link);
    outcome
}

#[test]
fn an_image_read_here() {
    insta::assert_snapshot!(text(&outcome()));
}

#[test]
fn a_node_read_over_the_network() {
    insta::assert_snapshot!(text(&sweep()));
}

#[test]
fn all_nodes_of_a_field() {
    insta::assert_snapshot!(text(&field()));
}

#[test]
fn a_slow_machine_does_not_call_all_others_slow() {
    let limit_line = |outcome: &Outcome| text(outcome).split("\nlimit: ").nth(1).unwrap_or_default().to_owned();
    let mut outcome = field();
    assert!(limit_line(&outcome).starts_with("the link of this machine, 1 Gbit/s"));
    outcome.link.bits_per_second = Some(10_000_000_000);
    outcome.limit = limit_of_nodes(&outcome.nodes, &outcome.link);
    assert_eq!(limit_line(&outcome), "the nodes, 941 Mbit/s at most\n");
    outcome.link.bits_per_second = None;
    outcome.limit = limit_of_nodes(&outcome.nodes, &outcome.link);
    assert!(limit_line(&outcome).starts_with("unknown; give the rate"));
    for node in &mut outcome.nodes {
        (node.up_bytes_per_s, node.down_bytes_per_s) = (Some(1_000_000), None);
    }
    assert!(limit_line(&outcome).starts_with("this machine: 8.00 Mbit/s at most, nodes say 900"));
    outcome.nodes.clear();
    assert_eq!(limit_line(&outcome), "nothing was measured\n");
}

#[test]
fn what_is_not_known_is_not_guessed() {
    let mut outcome = outcome();
    outcome.target =
        Target::Export { export: "nbd://h/\u{1b}[2J".to_owned(), node: None, addr: None, pid: None, filled: None };
    (outcome.image, outcome.link, outcome.interrupted) = (None, Link::default(), true);
    for run in &mut outcome.runs {
        (run.network, run.delay_us, run.unanswered, run.refused) = (None, None, 3, 1);
        run.cpu = Shares::default();
    }
    outcome.limit = limit(&outcome.runs);
    insta::assert_snapshot!(text(&outcome));
}

#[test]
fn lines_fit_into_eighty_columns() {
    for row in text(&outcome()).lines().chain(text(&sweep()).lines()).chain(text(&field()).lines()) {
        assert!(row.chars().count() <= 80, "{row}");
    }
}

#[test]
fn the_limit_is_what_is_full() {
    let link = Link { device: None, bits_per_second: Some(1_000_000_000), given: true };
    let of = |network, machine| {
        let mut run = run(Pattern::Sequential, 1, 100_000_000, network, &link);
        run.cpu = shares(machine);
        limit(&[run])
    };
    assert_eq!(of(234_000_000, 0.95), Limit::Link);
    assert_eq!(of(100_000_000, 0.95), Limit::Processors);
    assert_eq!(of(1_000_000, 0.3), Limit::OwnStore);
    assert_eq!(of(100_000_000, 0.3), Limit::Elsewhere);
    assert_eq!(limit(&[]), Limit::Unknown);
    assert_eq!(limit(&[run(Pattern::Sequential, 1, 1000, 1000, &Link::default())]), Limit::Unknown);
}

#[test]
fn delays_are_quantiles_in_microseconds() {
    let mut nanos = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
    assert_eq!(Delays::of(&nanos), None);
    (1..=1000).for_each(|delay| nanos.record(delay * 1000).unwrap());
    let delays = Delays::of(&nanos).unwrap();
    let near = |value: f64, want: f64| (value - want).abs() <= want * 0.002;
    for (value, want) in [(delays.min, 1.0), (delays.median, 500.0), (delays.p95, 950.0), (delays.p99, 990.0)] {
        assert!(near(value, want), "{value} for {want}");
    }
    assert!(near(delays.max, 1000.0), "{delays:?}");
}

#[test]
fn what_came_over_the_network_is_compared_with_the_link() {
    let link = Link { device: None, bits_per_second: Some(100_000_000), given: true };
    let peer = |addr: &str, bytes| FromPeer { addr: addr.to_owned(), origin: false, bytes };
    let network = Network::of(vec![peer("a", 1_000_000), peer("b", 0), peer("c", 24_000_000)], 30_000_000, 4.0, &link);
    assert_eq!((network.bytes, network.of_link, network.own_store_bytes), (25_000_000, Some(0.5), 5_000_000));
    assert_eq!(network.peers, [peer("c", 24_000_000), peer("a", 1_000_000)]);
    // Read-ahead brings more than was read.
    assert_eq!(Network::of(vec![peer("a", 50)], 10, 0.0, &Link::default()).own_store_bytes, 0);
}

#[test]
fn the_json_has_the_promised_names() {
    let json = serde_json::to_value(outcome()).unwrap();
    assert_eq!(json["target"]["kind"], "export");
    assert_eq!(json["limit"], "link");
    assert_eq!(json["link"]["bits_per_second"], 1_000_000_000);
    for key in ["version", "target", "image", "link", "runs", "interrupted", "limit"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    let run = &json["runs"][0];
    for key in [
        "pattern",
        "streams",
        "depth",
        "block_bytes",
        "seconds",
        "bytes",
        "requests",
        "refused",
        "unanswered",
        "mb_per_s",
    ] {
        assert!(run.get(key).is_some(), "{key}");
    }
    for key in ["min", "median", "p95", "p99", "max"] {
        assert!(run["delay_us"][key].is_f64(), "{key}");
    }
    for key in ["processors", "machine", "node", "bench", "softirq", "stolen"] {
        assert!(run["cpu"][key].is_number(), "{key}");
    }
    for key in ["bytes", "mb_per_s", "of_link", "own_store_bytes", "peers"] {
        assert!(run["network"].get(key).is_some(), "{key}");
    }
    let json = serde_json::to_value(sweep()).unwrap();
    assert_eq!((&json["target"]["kind"], &json["target"]["chunks"]), (&"peer".into(), &4800.into()));
}

#[test]
fn each_field_of_the_object_is_documented_and_no_other() {
    const DOCUMENT: &str = include_str!("../../../docs/reference/bench-json.md");
    let of = |outcome: &Outcome| fields(&serde_json::to_value(outcome).expect("plain data becomes JSON"));
    let all = &(&of(&outcome()) | &of(&sweep())) | &of(&field());
    assert_eq!(documented(DOCUMENT), all);
    assert_eq!(format_of(DOCUMENT), Some(FORMAT));
    assert_eq!(fields(&example(DOCUMENT)), of(&outcome()));
}
