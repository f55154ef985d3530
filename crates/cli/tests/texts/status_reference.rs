//! The reference of `vfield status --json` names each field of the object, and no other.

use vfield_control::limits::{ImageLimits, LimitsStatus};
use vfield_control::message::{DaemonStatus, FollowingStatus, OverlayStatus, STATUS_FORMAT};
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_control::reference::{documented, example, fields, format_of};
use vfield_node::status::{
    AdmissionStatus, GoneStatus, ImageStatus, NamesakeStatus, NodeStatus, PeerTraffic, RiskStatus, RubbishStatus,
    SignatureStatus, SourceStatus, Status, TagStatus, VersionStatus, WaitingChunk,
};

const STATUS: &str = include_str!("../../../../docs/reference/status-json.md");

/// A status in which nothing is empty, so that each field of each object in it is there.
fn full_status() -> DaemonStatus {
    let image = ImageStatus {
        at_risk: Some(RiskStatus::default()),
        source: Some(SourceStatus::default()),
        signed: Some(SignatureStatus::default()),
        namesakes: vec![NamesakeStatus::default()],
        rubbish: Some(RubbishStatus::default()),
        waiting: vec![WaitingChunk::default()],
        ..ImageStatus::default()
    };
    let node = Status {
        images: vec![image],
        nodes: vec![NodeStatus::default()],
        gone: vec![GoneStatus::default()],
        peers: vec![PeerTraffic::default()],
        admission: Some(AdmissionStatus::default()),
        tags: vec![TagStatus { versions: vec![VersionStatus::default()], ..TagStatus::default() }],
        ..Status::default()
    };
    let exports = vec![ExportStatus::of_all(ExportKind::Nbd, "")];
    let (overlays, following) = (vec![OverlayStatus::default()], vec![FollowingStatus::default()]);
    let limits = LimitsStatus { images: vec![ImageLimits::default()], ..LimitsStatus::default() };
    DaemonStatus { node, exports, overlays, following, limits, ..DaemonStatus::default() }
}

#[test]
fn each_field_of_a_status_is_documented_and_no_other() {
    let status = serde_json::to_value(full_status()).expect("plain data becomes JSON");
    assert_eq!(documented(STATUS), fields(&status));
    assert_eq!(format_of(STATUS), Some(STATUS_FORMAT));
}

#[test]
fn the_example_of_a_status_is_one() {
    let example = example(STATUS);
    let status: DaemonStatus = serde_json::from_value(example.clone()).expect("a status");
    let again = serde_json::to_value(&status).expect("plain data becomes JSON");
    assert_eq!(fields(&again), fields(&example));
    assert_eq!(status.format, STATUS_FORMAT);
}
