//! The lines of `vfield top`, in terminals of several sizes.

use super::*;
use std::time::Duration;
use vfield_node::explained::{FetchStatus, RequestStatus, StepStatus};
use vfield_node::status::{GoneStatus, Status};

/// Two samples, a second apart, of a field of so many nodes beside this one.
fn samples(nodes: usize) -> [Sample; 2] {
    let node = |number: usize| NodeStatus {
        id: format!("{number:016x}"),
        addr: format!("198.18.{}.{}:4440", number / 250, number % 250 + 1),
        state: match number {
            0 => "self",
            3 => "leaving",
            _ => "alive",
        }
        .to_owned(),
        capacity_bytes: if number == 1 { 0 } else { 64 << 20 },
        held_bytes: (number as u64 % 64) << 20,
        origin_of: if number == 1 { vec!["viver.squash".to_owned()] } else { Vec::new() },
        ..NodeStatus::default()
    };
    let image = ImageStatus {
        name: "viver.squash".into(),
        coverage: 0.75,
        multiplicity_min: 1,
        origins: 1,
        capacity_bytes: 64 << 20,
        held_bytes: 32 << 20,
        ..ImageStatus::default()
    };
    let status = |second: u64| {
        let peer = |number: usize| PeerTraffic {
            id: format!("{number:016x}"),
            received_bytes: (second * number as u64) << 20,
            sent_bytes: second << 19,
            ..PeerTraffic::default()
        };
        let node = Status {
            addr: "198.18.0.1:4440".into(),
            version: "0.1.0".into(),
            uptime_s: 192.4,
            images: vec![image.clone()],
            nodes: (0..=nodes).map(node).collect(),
            peers: (1..=nodes.min(3)).map(peer).collect(),
            traffic: Traffic {
                from_store_bytes: second << 24,
                from_peers_bytes: second * (5 << 20),
                from_origin_bytes: second << 20,
                to_peers_bytes: second * (3 << 19),
                to_compressed_bytes: second << 20,
                to_compressed_plain_bytes: second << 21,
                ..Traffic::default()
            },
            ..Status::default()
        };
        DaemonStatus { node, pid: 7, ..DaemonStatus::default() }
    };
    let fetch = FetchStatus {
        stage: "requested".into(),
        age_s: 0.5,
        requests: vec![RequestStatus { addr: "198.18.0.3:4440".into(), ..RequestStatus::default() }],
        ..FetchStatus::default()
    };
    let step = StepStatus { chunk: 17, fetch: Some(fetch), ..StepStatus::default() };
    let wait = ExplainedChunk { image: "viver.squash".into(), offset_bytes: 0, steps: vec![step], hops: Vec::new() };
    let at = Instant::now();
    [0, 1].map(|second| Sample {
        at: at + Duration::from_secs(second),
        status: status(second),
        waits: vec![wait.clone()],
    })
}

fn view(width: usize, height: Option<usize>) -> View {
    View { size: Size { width, height }, order: Order::Traffic, skip: 0 }
}

#[test]
fn a_wide_terminal_shows_all() {
    let [before, now] = samples(4);
    assert_eq!(
        view(120, None).lines(&now, Some(&before)),
        [
            "198.18.0.1:4440  5 nodes  up 3m 12s  version 0.1.0",
            "viver.squash  covered 75.0 %  fewest copies 1  here 32.0 MiB of 64.0 MiB  the origin is needed",
            "in 6.0 MiB/s  out 1.5 MiB/s  from store 16.0 MiB/s  from origins 1.0 MiB/s  \
             saved by compression 1.0 MiB/s",
            "wait 0.5s  viver.squash chunk 17: requested because of 198.18.0.3:4440",
            "",
            "ADDRESS          STATE         IN/S        OUT/S     HELD        OF  ORIGIN OF",
            "198.18.0.1:4440  self                                 0 B  64.0 MiB",
            "198.18.0.4:4440  leaving  3.0 MiB/s  512.0 KiB/s  3.0 MiB  64.0 MiB",
            "198.18.0.3:4440  alive    2.0 MiB/s  512.0 KiB/s  2.0 MiB  64.0 MiB",
            "198.18.0.2:4440  alive    1.0 MiB/s  512.0 KiB/s                     viver.squash",
            "198.18.0.5:4440  alive            -            -  4.0 MiB  64.0 MiB",
        ]
    );
}

#[test]
fn a_narrow_terminal_shows_the_most_important_columns() {
    let [before, now] = samples(4);
    assert_eq!(
        view(42, Some(9)).lines(&now, Some(&before)),
        [
            "198.18.0.1:4440  5 nodes  up 3m 12s",
            "viver.squash  covered 75.0 %",
            "in 6.0 MiB/s  out 1.5 MiB/s",
            "wait 0.5s  viver.squash chunk 17: request…",
            "",
            "ADDRESS               IN/S        OUT/S",
            "198.18.0.1:4440",
            "198.18.0.4:4440  3.0 MiB/s  512.0 KiB/s",
            "3 more nodes; ordered by traffic; o order…",
        ]
    );
}

#[test]
fn no_line_is_too_wide_and_there_are_not_too_many() {
    let [before, now] = samples(1000);
    for width in [1, 2, 10, 39, 80, 200] {
        for height in [None, Some(1), Some(2), Some(7), Some(24), Some(2000)] {
            let lines = view(width, height).lines(&now, Some(&before));
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
            assert!(lines.len() <= height.unwrap_or(NODES_SHOWN + 20), "{} lines", lines.len());
        }
    }
}

#[test]
fn rows_are_scrolled_and_ordered() {
    let [before, now] = samples(1000);
    let mut view = view(100, Some(24));
    let addresses = |view: &View| -> Vec<String> {
        let lines = view.lines(&now, Some(&before));
        let rows = lines.iter().filter(|line| line.starts_with("198.18.") && line.contains("  alive"));
        rows.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    view.order = Order::Address;
    let first = addresses(&view);
    view.scroll(5, Some(&now));
    assert_eq!(addresses(&view)[0], first[3], "this node is the first row, and one leaves");
    view.scroll(-100, Some(&now));
    assert_eq!(addresses(&view), first);
    view.scroll(isize::MAX, Some(&now));
    assert_eq!(view.skip, 1000);
    view.skip = 0;
    view.order = Order::Held;
    assert!(view.lines(&now, None)[8].contains("63.0 MiB"), "{:#?}", view.lines(&now, None));
    assert_eq!(view.order.next().next(), Order::Traffic, "the orders go around");
}

/// After a restart all counts begin anew, and so do the rates.
#[test]
fn rates_are_those_of_one_process() {
    let [mut before, now] = samples(3);
    before.status.pid = 8;
    assert!(view(80, None).lines(&now, Some(&before))[2].starts_with("in -  out -"));
    assert!(view(80, None).lines(&now, None)[2].starts_with("in -  out -"));
}

#[test]
fn deaths_and_slow_links_are_in_sight() {
    let [before, mut now] = samples(4);
    let status = &mut now.status.node;
    for node in &mut status.nodes {
        node.link_bytes_per_s = Some(if node.addr.contains("0.5") { 1_200_000 } else { 12_000_000 });
    }
    let gone = |how: &str| GoneStatus { how: how.into(), ..GoneStatus::default() };
    status.gone = vec![gone("died"), gone("died"), gone("left")];
    (status.images[0].origins, status.images[0].origin_may_leave) = (0, true);
    let lines = view(120, None).lines(&now, Some(&before));
    assert_eq!(lines[0], "198.18.0.1:4440  5 nodes  2 died  1 slow  up 3m 12s  version 0.1.0");
    assert!(lines[1].ends_with("no origin is needed"), "{}", lines[1]);
    assert!(lines.iter().any(|line| line.starts_with("198.18.0.5:4440  slow")), "{lines:#?}");
    now.status.node.images[0].origin_may_leave = false;
    assert!(view(120, None).lines(&now, None)[1].ends_with("no origin is left"));
}
