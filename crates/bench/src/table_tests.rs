//! What `vfield bench` looks like.

use super::super::cpu::Shares;
use super::super::link::Link;
use super::super::outcome::{
    Delays, FORMAT, Found, FromPeer, Image, Limit, Matrix, Network, NodeRate, Outcome, Run, State, Target, limit,
    limit_of_nodes,
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
        span_bytes: Some(300 << 20),
        seconds: 2.0,
        bytes,
        requests: bytes >> 18,
        refused: 0,
        unanswered: 0,
        mb_per_s: bytes as f64 / 2e6,
        delay_us: Some(Delays { min: 81.25, median: 999.6, p95: 12_345.0, p99: 543_000.0, max: 1_234_567.0 }),
        cpu: shares(0.634),
        network: Some(Network::of(peers, bytes, 2.0, link).with(Found { hit_bytes: bytes / 4, state: State::Mixed })),
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
            origin: Some(false),
            pid: Some(4711),
            filled: Some(false),
        },
        image: Some(Image { name, id, size_bytes: 300 << 20, chunk_size_bytes: 64 << 10 }),
        limit: limit(&runs),
        link,
        runs,
        matrix: None,
        nodes: Vec::new(),
        interrupted: false,
    }
}

fn matrix(end_bytes: u64) -> Outcome {
    let mut outcome = outcome();
    let link = outcome.link.clone();
    let state = |number: usize| [State::Cold, State::Mixed, State::Warm][number.min(2)];
    let of_row = |(number, row): (usize, super::super::matrix::Row)| {
        let bytes = (40_u64 << 20) >> number;
        let mut run = run(row.pattern, 1, bytes, bytes >> (3 * number), &link);
        (run.depth, run.block_bytes, run.span_bytes) = (1, row.block_bytes, Some(row.span_bytes));
        run.requests = bytes / row.block_bytes;
        let found = Found { hit_bytes: bytes - (bytes >> (2 * number + 1)), state: state(number) };
        run.network = run.network.map(|network| network.with(found));
        run
    };
    outcome.runs = super::super::matrix::rows(end_bytes).into_iter().enumerate().map(of_row).collect();
    (outcome.matrix, outcome.limit) = (Some(Matrix { end_bytes }), limit(&outcome.runs));
    outcome
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
fn a_matrix_of_reads() {
    insta::assert_snapshot!(text(&matrix(9 << 30)));
}

#[test]
fn a_matrix_says_what_the_image_is_too_short_for() {
    let notes = |end_bytes: u64| {
        let text = text(&matrix(end_bytes));
        let is_note = |line: &&str| line.starts_with("the image has");
        let rows = text.lines().filter(|line| !is_note(line) && line.contains(" image ")).count();
        (text.lines().find(is_note).map(str::to_owned), rows)
    };
    assert_eq!(notes(8 << 30), (None, 0));
    let (note, rows) = notes((300 << 20) + 1);
    assert_eq!(note.unwrap(), "the image has 300.0 MiB: instead of 8G, the second span is all of it");
    assert_eq!(rows, 2 * 4);
    let (note, rows) = notes(12_345);
    assert_eq!(note.unwrap(), "the image has 12.1 KiB: there is one span, all of it");
    assert_eq!(rows, 2 * 4);
}

#[test]
fn a_matrix_says_whether_it_measured_memory_or_the_network() {
    let last = |states: [Option<State>; 4]| {
        let mut outcome = matrix(1 << 20);
        for (run, state) in outcome.runs.iter_mut().zip(states) {
            let network = run.network.take().unwrap();
            run.network = state.map(|state| network.with(Found { hit_bytes: 0, state }));
        }
        let text = text(&outcome);
        text.split("\n\n").map(|part| part.lines().last().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    use State::{Cold, Mixed, Warm};
    for (states, want) in [
        ([Some(Warm); 4], "all warm: the bytes were here, and the network was not measured"),
        ([Some(Mixed); 4], "all mixed: a part of the bytes was here, the rest came while they were read"),
        ([Some(Cold); 4], "all cold: the bytes came over the network while they were read"),
        (
            [Some(Cold), Some(Mixed), Some(Warm), Some(Warm)],
            "2 warm, 1 mixed, 1 cold: each run finds what the earlier ones left here",
        ),
        ([None; 4], "no daemon told whether the bytes were in memory: compare no figures of two calls"),
    ] {
        assert!(last(states).contains(&want.to_owned()), "{:?}", last(states));
    }
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
    outcome.target = Target::Export {
        export: "nbd://h/\u{1b}[2J".to_owned(),
        node: None,
        addr: None,
        origin: None,
        pid: None,
        filled: None,
    };
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
    for row in text(&outcome())
        .lines()
        .chain(text(&sweep()).lines())
        .chain(text(&field()).lines())
        .chain(text(&matrix(9 << 30)).lines())
        .chain(text(&matrix(5)).lines())
    {
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
    let all = &(&(&of(&outcome()) | &of(&sweep())) | &of(&field())) | &of(&matrix(9 << 30));
    assert_eq!(documented(DOCUMENT), all);
    assert_eq!(format_of(DOCUMENT), Some(FORMAT));
    assert_eq!(fields(&example(DOCUMENT)), of(&outcome()));
}
