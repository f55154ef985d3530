//! What `vfield status` looks like.

use super::*;
use vfield_control::limits::LimitsStatus;
use vfield_control::message::STATUS_FORMAT;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_core::misdeed::Misdeed;
use vfield_node::status::{GoneStatus, IdentityStatus, SourceStatus, TagStatus, Traffic, WaitingChunk};

fn origin() -> DaemonStatus {
    let image = ImageStatus {
        name: "viver.squash".to_owned(),
        id: "6f1ed002ab5595859014ebf0951522d9".repeat(2),
        size_bytes: 300 << 20,
        chunk_size_bytes: 64 << 10,
        coverage: 0.8123,
        multiplicity_min: 0,
        origins: 1,
        source: Some(SourceStatus {
            path: "viver.squash".to_owned(),
            state: "intact".to_owned(),
            why: String::new(),
            moved: String::new(),
        }),
        filled: true,
        ..ImageStatus::default()
    };
    let node = |id: &str, addr: &str, state: &str, held: u64, origin_of: &[&str]| NodeStatus {
        id: id.repeat(8),
        addr: addr.to_owned(),
        state: state.to_owned(),
        capacity_bytes: if origin_of.is_empty() { 128 << 20 } else { 0 },
        held_bytes: held,
        origin_of: origin_of.iter().map(|name| (*name).to_owned()).collect(),
        ..NodeStatus::default()
    };
    DaemonStatus {
        limits: LimitsStatus::default(),
        node: Status {
            node: "1a".repeat(8),
            addr: "192.168.1.1:4440".to_owned(),
            version: "0.1.0".to_owned(),
            uptime_s: 192.4,
            draining: false,
            images: vec![image],
            zone: ZoneStatus::default(),
            nodes: vec![
                node("1a", "192.168.1.1:4440", "self", 0, &["viver.squash"]),
                node("2b", "192.168.1.2:4440", "alive", 128 << 20, &[]),
                node("3c", "192.168.1.3:4440", "suspect", 99 << 20, &[]),
            ],
            gone: vec![GoneStatus {
                id: "4d".repeat(8),
                addr: "192.168.1.4:4440".to_owned(),
                how: "left".to_owned(),
                ago_s: 123.4,
            }],
            traffic: Traffic { from_store_bytes: 1 << 20, to_peers_bytes: 227 << 20, ..Traffic::default() },
            peers: vec![PeerTraffic {
                id: "2b".repeat(8),
                addr: "192.168.1.2:4440".to_owned(),
                sent_bytes: 128 << 20,
                ..PeerTraffic::default()
            }],
            field: FieldStatus::default(),
            identity: IdentityStatus::default(),
            admission: None,
            tags: Vec::new(),
            misdeeds: Tally::default(),
            warnings: Vec::new(),
        },
        format: STATUS_FORMAT,
        following: Vec::new(),
        exports: vec![ExportStatus::of_all(ExportKind::Nbd, "nbd://127.0.0.1:10809/")],
        memory: MemoryStatus {
            store_bytes: 0,
            transient_bytes: 12 << 20,
            process_bytes: 30 << 20,
            limit_bytes: Some(512 << 20),
            limit_by: Some("cgroup".to_owned()),
        },
        overlays: Vec::new(),
        sandbox: vec!["capabilities: none".to_owned(), "files: only its own (landlock)".to_owned()],
        control: "/run/vfield/control.sock".to_owned(),
        pid: 7,
    }
}

#[test]
fn an_origin_that_has_to_stay() {
    insta::assert_snapshot!(text(&origin()));
}

#[test]
fn what_compression_gains_stands_below_the_traffic() {
    let mut traffic = Traffic { to_peers_bytes: 227 << 20, ..Traffic::default() };
    assert_eq!(compressed_text(&traffic), None);
    (traffic.to_compressed_bytes, traffic.to_compressed_plain_bytes) = (100 << 20, 230 << 20);
    assert_eq!(compressed_text(&traffic).as_deref(), Some("compressed: 230.0 MiB went as 100.0 MiB (2.3 x)"));
    (traffic.from_compressed_bytes, traffic.from_compressed_plain_bytes) = (2 << 20, 3 << 20);
    let both = "compressed: 3.0 MiB came as 2.0 MiB (1.5 x), 230.0 MiB went as 100.0 MiB (2.3 x)";
    assert_eq!(compressed_text(&traffic).as_deref(), Some(both));
    let mut status = origin();
    status.node.traffic = traffic;
    assert!(text(&status).contains(&format!("\n{both}\n")), "{}", text(&status));
}

#[test]
fn a_store_on_a_disk_is_called_so_and_its_faults_are_counted() {
    let mut status = origin();
    let image = &mut status.node.images[0];
    (image.source, image.capacity_bytes, image.held_bytes, image.filled) = (None, 64 << 20, 64 << 20, true);
    assert!(!text(&status).contains("disk"));
    status.node.images[0].on_disk = true;
    assert!(text(&status).contains("  held here  64.0 MiB of 64.0 MiB, filled, on the disk"), "{}", text(&status));
    assert!(!text(&status).contains("spoiled"));
    status.node.images[0].spoiled_chunks = 3;
    assert!(text(&status).contains("  spoiled    3 chunks on the disk"), "{}", text(&status));
    assert!(!text(&status).contains("withheld"));
    status.node.images[0].withheld_chunks = 64;
    assert!(text(&status).contains("  withheld   64 chunks, which the disk does not deliver"), "{}", text(&status));
}

#[test]
fn a_gateway_of_one_of_three_zones() {
    let mut status = origin();
    status.node.zone = ZoneStatus { name: "192.168.1.0/24".to_owned(), gateway: true, zones: 3, gateways: 9 };
    for node in &mut status.node.nodes {
        node.zone = "192.168.1.0/24".to_owned();
        node.gateway = node.state == "alive";
    }
    status.node.nodes.push(NodeStatus {
        id: "4d".repeat(8),
        addr: "192.168.2.1:4440".to_owned(),
        state: "alive".to_owned(),
        zone: "192.168.2.0/24".to_owned(),
        gateway: true,
        ..NodeStatus::default()
    });
    status.node.peers[0].zone = "192.168.1.0/24".to_owned();
    let far = PeerTraffic {
        addr: "192.168.2.1:4440".to_owned(),
        zone: "192.168.2.0/24".to_owned(),
        sent_bytes: 99 << 20,
        ..PeerTraffic::default()
    };
    status.node.peers.push(far);
    insta::assert_snapshot!(text(&status));
}

#[test]
fn zones_are_told_of_where_there_are_any() {
    let zone = |name: &str, zones, gateways| ZoneStatus { name: name.to_owned(), gateway: false, zones, gateways };
    assert_eq!(zone_text(&zone("", 1, 0)), None);
    assert_eq!(zone_text(&zone("", 2, 1)).as_deref(), Some("no name; knows 2 zones, 1 gateway"));
    assert_eq!(zone_text(&zone("a", 1, 4)).as_deref(), Some("a; knows 1 zone, 4 gateways"));
}

#[test]
fn what_was_written_stands_with_its_image() {
    let mut status = origin();
    let overlay = OverlayStatus {
        image: "viver.squash".to_owned(),
        id: status.node.images[0].id.clone(),
        place: "ram".to_owned(),
        held_bytes: 5 << 20,
        zero_bytes: 8 << 10,
        max_bytes: 1 << 30,
        refused_bytes: 0,
    };
    status.overlays = vec![overlay];
    let text = text(&status);
    assert!(text.contains("\n  written    5.0 MiB of 1.0 GiB, in memory, and 8.0 KiB of zeros\n"), "{text}");
    status.overlays[0].refused_bytes = 4096;
    let text = self::text(&status);
    assert!(text.contains("of zeros; writes were refused, so flushes fail: `vfield overlay reset`, or"), "{text}");
}

#[test]
fn what_was_taken_over_is_shown_if_there_is_any() {
    let mut status = origin();
    assert!(!text(&status).contains("taken over"));
    status.node.images[0].taken_over_bytes = 60 << 20;
    let text = text(&status);
    assert!(text.contains("\n  taken over 60.0 MiB from the daemon before this one\n"), "{text}");
}

#[test]
fn what_versions_share_is_shown_if_there_is_any() {
    let mut status = origin();
    assert!(!text(&status).contains("shared"));
    status.node.images[0].shared_bytes = 40 << 20;
    assert!(text(&status).contains("\n  shared     40.0 MiB lie in the memory of other versions\n"));
}

#[test]
fn misdeeds_are_counted_where_there_are_any() {
    let mut status = origin();
    assert!(!text(&status).contains("misdeeds"));
    status.node.misdeeds.extend([(Misdeed::Lies, 2), (Misdeed::Unread, 1)]);
    assert!(text(&status).contains("\n  misdeeds  2 lies, 1 answers not read\n"));
    let json = serde_json::to_string(&status.node.misdeeds).unwrap();
    // A new counter comes last; the names and the order of these stay.
    let (none, rest) = (r#""false_claims":0,"drags":0,"denials":0,"silent":0,"shown_out":0"#, r#""slow_frames":0"#);
    let first = format!(r#"{{"lies":2,{none},{rest},"broken_frames":0,"unread":1"#);
    assert!(json.starts_with(&first), "{json}");
    assert_eq!(serde_json::from_str::<Tally>(&json).unwrap(), status.node.misdeeds);
    let newer: Tally = serde_json::from_str(r#"{"lies":3,"unheard_of":1}"#).unwrap();
    assert_eq!(newer.counted().collect::<Vec<_>>(), [(Misdeed::Lies, 3)], "unknown counters are skipped");
}

#[test]
fn what_stores_announce_is_not_taken_for_true() {
    let mut status = origin();
    let image = &mut status.node.images[0];
    (image.coverage, image.multiplicity_min, image.verified, image.origin_may_leave) = (1.0, 2, 0.6, false);
    let shown = |status: &DaemonStatus| {
        let text = text(status);
        text.lines().filter(|line| line.contains("coverage") || line.contains("leave")).map(str::to_owned).collect()
    };
    let lines: Vec<String> = shown(&status);
    assert_eq!(lines[0], "  coverage   100.0 %, lowest multiplicity 2; 60.0 % verified");
    assert_eq!(lines[1], "  the origin may leave: not yet, this node is still verifying what the stores announce");
    status.node.images[0].origin_may_leave = true;
    let lines: Vec<String> = shown(&status);
    assert_eq!(lines[0], "  coverage   100.0 %, lowest multiplicity 2");
    assert_eq!(lines[1], "  the origin may leave: yes, the stores hold all of it");
    let image = &mut status.node.images[0];
    (image.origin_may_leave, image.dependents) = (false, vec!["192.168.1.7:4440".into()]);
    let lines: Vec<String> = shown(&status);
    assert_eq!(lines[1], "  the origin may leave: no, 192.168.1.7:4440 has no way to stores with the rest");
    status.node.images[0].origins = 0;
    let lines: Vec<String> = shown(&status);
    assert_eq!(lines[1], "  the origin may leave: it is gone; 192.168.1.7:4440 has no way to stores with the rest");
}

#[test]
fn a_node_that_waits_for_lost_chunks() {
    let mut status = origin();
    let image = &mut status.node.images[0];
    image.source = None;
    image.origins = 0;
    image.coverage = 0.99999;
    (image.capacity_bytes, image.held_bytes, image.filled) = (128 << 20, 64 << 20, false);
    image.transient_bytes = 12 << 20;
    let waiting = |chunk| WaitingChunk { chunk, for_s: 3.0 * chunk as f64, why: "no live node holds it".to_owned() };
    image.waiting = (1..9).map(waiting).collect();
    status.node.warnings.push("peer 192.168.1.9:4440 sent chunks that do not verify\u{1b}[2J".to_owned());
    status.node.nodes.clear();
    status.node.peers.clear();
    insta::assert_snapshot!(text(&status));
}

#[test]
fn a_chunk_that_is_waited_for_is_one_of_the_image_or_a_hash_page() {
    let mut status = origin();
    let image = &mut status.node.images[0];
    (image.size_bytes, image.chunk_size_bytes) = (64 << 20, 64 << 10);
    let waiting = |chunk| WaitingChunk { chunk, for_s: 1.0, why: "no live node holds it".to_owned() };
    // 1024 chunks, 0 to 1023, then one page.
    image.waiting = [1023, 1024].map(waiting).to_vec();
    let text = text(&status);
    assert!(text.contains("    chunk 1023 at 63.9 MiB for 1.0s: no live"), "{text}");
    assert!(text.contains("    hash page 0 for 1.0s: no live"), "{text}");
}

#[test]
fn what_came_from_here_is_called_what_it_is() {
    let mut status = origin();
    assert!(text(&status).contains("\nown file "));
    status.node.images.push(ImageStatus { name: "b".to_owned(), ..ImageStatus::default() });
    assert!(text(&status).contains("\nown file and memory "));
    status.node.images.remove(0);
    assert!(text(&status).contains("\nown memory "));
}

#[test]
fn memory_without_a_limit_is_said_to_have_none() {
    let mut status = origin();
    (status.memory.limit_bytes, status.memory.limit_by) = (None, None);
    assert!(text(&status).contains("process 30.0 MiB, no limit\n"));
}

#[test]
fn lines_fit_into_eighty_columns() {
    let mut whole = origin();
    whole.sandbox = [
        "capabilities: only dac_override, dac_read_search, lease",
        "files: only its own, and its ports (landlock)",
        "system calls: only 130 (seccomp), no new privileges",
    ]
    .map(str::to_owned)
    .to_vec();
    for row in text(&origin()).lines().chain(text(&whole).lines()) {
        assert!(row.chars().count() <= 80, "{row}");
    }
}

#[test]
fn all_is_said_of_all_only() {
    assert_eq!(percent(1.0), "100.0 %");
    assert_eq!(percent(0.9999), "99.9 %");
    assert_eq!(percent(0.0001), "under 0.1 %");
    assert_eq!(percent(0.0), "0.0 %");
    for (covered, rest) in [
        (0.5996, "40.1 %"),
        (0.6, "40.0 %"),
        (0.0, "100.0 %"),
        (1.0, "0.0 %"),
        (0.9999, "under 0.1 %"),
        (0.0001, "100.0 %"),
    ] {
        assert_eq!(missing(covered), rest, "{covered}");
    }
    assert_eq!(percent(f64::NAN), "NaN %");
}

#[test]
fn the_json_has_the_promised_names() {
    let json = serde_json::to_value(origin()).unwrap();
    for key in ["images", "nodes", "traffic", "exports", "peers", "warnings", "misdeeds", "zone"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    for key in ["name", "gateway", "zones", "gateways"] {
        assert!(json["zone"].get(key).is_some(), "{key}");
    }
    for key in ["zone", "gateway"] {
        assert!(json["nodes"][0].get(key).is_some(), "{key}");
    }
    assert!(json["peers"][0].get("zone").is_some());
    for key in [
        "name",
        "id",
        "size_bytes",
        "chunk_size_bytes",
        "coverage",
        "multiplicity_min",
        "verified",
        "origin_may_leave",
        "waiting",
    ] {
        assert!(json["images"][0].get(key).is_some(), "{key}");
    }
    assert_eq!(json["format"], 3);
    assert_eq!(
        json["exports"],
        serde_json::json!([{"kind": "nbd", "address": "nbd://127.0.0.1:10809/", "image": null}])
    );
    for key in ["store_bytes", "transient_bytes", "process_bytes", "limit_bytes", "limit_by"] {
        assert!(json["memory"].get(key).is_some(), "{key}");
    }
    let back: DaemonStatus = serde_json::from_value(json).unwrap();
    assert_eq!(back, origin());
}

#[test]
fn a_slow_link_is_named() {
    let node = |addr: &str, link_bytes_per_s| NodeStatus {
        id: "1a".repeat(8),
        addr: addr.to_owned(),
        link_bytes_per_s,
        ..NodeStatus::default()
    };
    let link = |mbit: u64| Some(mbit * 125_000);
    let nodes = [
        node("198.18.0.1:4440", link(94)),
        node("198.18.0.2:4440", link(90)),
        node("198.18.0.3:4440", link(10)),
        node("198.18.0.4:4440", None),
        node("198.18.0.5:4440", link(50)),
    ];
    let line = "198.18.0.3:4440 has a link of 10 Mbit/s, others 90: cable, port or load?";
    assert!(nodes_text(&nodes, "").ends_with(&format!("\n{line}\n")));
    assert!(!nodes_text(&nodes[3..4], "").contains("has a link of"));
}

#[test]
fn a_tag_says_who_runs_what_and_how_far_this_node_is() {
    let mut status = origin();
    assert!(!text(&status).contains("tag "));
    let version = |serial, image: &str, nodes, filled| VersionStatus { serial, image: image.repeat(32), nodes, filled };
    status.node.tags = vec![TagStatus {
        name: "prod".to_owned(),
        serial: 8,
        image: Some("2b".repeat(32)),
        keep: 2,
        rollout: 10,
        signer: "RW".to_owned(),
        versions: vec![version(8, "2b", 2, 1), version(7, "1a", 20, 20)],
    }];
    status.following = vec![FollowingStatus {
        tag: "prod".to_owned(),
        serial: 7,
        image: "prod-1a1a1a1a1a1a".to_owned(),
        id: "1a".repeat(32),
        state: "filling".to_owned(),
        why: "the store fills with serial 8".to_owned(),
    }];
    let said = text(&status);
    let expected = "\ntag prod: serial 8, 2b2b2b2b2b2b, for 10 % of the nodes\n  serial 8   on 2 nodes, 1 filled\n  serial 7   on 20 nodes, 20 filled\nfollows prod: serial 7, prod-1a1a1a1a1a1a; filling: the store fills with serial 8\n";
    assert!(said.contains(expected), "{said}");
}
