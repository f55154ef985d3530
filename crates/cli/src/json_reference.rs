//! Whether the reference documents of the objects that `--json` prints name each of their fields.
//!
//! Owns how a field is named: keys joined by dots, `[]` behind a list, as in `images[].coverage`.
//! Called by the tests of `status` and `bench`; no part of the program.

use crate::control::message::{DaemonStatus, OverlayStatus, STATUS_FORMAT};
use crate::control::offer::{ExportKind, ExportStatus};
use serde_json::Value;
use std::collections::BTreeSet;
use vfield_node::status::{
    GoneStatus, ImageStatus, NamesakeStatus, NodeStatus, PeerTraffic, RiskStatus, SignatureStatus, SourceStatus,
    Status, WaitingChunk,
};

const STATUS: &str = include_str!("../../../docs/reference/status-json.md");

/// The names of all fields in `value`, and of those in the objects and lists within it.
pub(crate) fn fields(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    gather(value, "", &mut found);
    found
}

fn gather(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                gather(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| gather(value, &format!("{path}[]"), found)),
        _ => {}
    }
}

/// The fields that a document has a row for: first cells in backticks of tables headed by `field`.
pub(crate) fn documented(document: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in document.lines() {
        inside = line.starts_with("| field |") || (inside && line.starts_with('|'));
        let cell = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
        found.extend(cell.filter(|_| inside).map(str::to_owned));
    }
    found
}

/// The object in the document's last block of JSON.
pub(crate) fn example(document: &str) -> Value {
    let block = document.rsplit("```json\n").next().and_then(|rest| rest.split("```").next());
    serde_json::from_str(block.expect("an example")).expect("JSON")
}

/// The number behind "`format` is the version of the object, now".
pub(crate) fn format_of(document: &str) -> Option<u32> {
    let (_, rest) = document.split_once("`format` is the version of the object, now ")?;
    rest.split('.').next()?.parse().ok()
}

/// A status in which nothing is empty, so that each field of each object in it is there.
fn full_status() -> DaemonStatus {
    let image = ImageStatus {
        at_risk: Some(RiskStatus::default()),
        source: Some(SourceStatus::default()),
        signed: Some(SignatureStatus::default()),
        namesakes: vec![NamesakeStatus::default()],
        waiting: vec![WaitingChunk::default()],
        ..ImageStatus::default()
    };
    let node = Status {
        images: vec![image],
        nodes: vec![NodeStatus::default()],
        gone: vec![GoneStatus::default()],
        peers: vec![PeerTraffic::default()],
        ..Status::default()
    };
    let exports = vec![ExportStatus::of_all(ExportKind::Nbd, "")];
    DaemonStatus { node, exports, overlays: vec![OverlayStatus::default()], ..DaemonStatus::default() }
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
