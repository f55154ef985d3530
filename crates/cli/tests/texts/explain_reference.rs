//! The reference of `vfield explain --json` names each field of the object, and no other.

use std::collections::BTreeSet;
use vfield_control::reference::{documented, fields};
use vfield_core::fetch::STAGES;
use vfield_node::explained::{
    Explained, ExplainedChunk, FetchStatus, HolderStatus, HopStatus, RequestStatus, SlowReadStatus, StepStatus,
};

const DOCUMENT: &str = include_str!("../../../../docs/reference/explain-json.md");

#[test]
fn each_field_of_an_explanation_is_documented_and_no_other() {
    let fetch = FetchStatus { requests: vec![RequestStatus::default()], ..FetchStatus::default() };
    let step = StepStatus { fetch: Some(fetch), holders: vec![HolderStatus::default()], ..StepStatus::default() };
    let chunk = ExplainedChunk { steps: vec![step], hops: vec![HopStatus::default()], ..ExplainedChunk::default() };
    let all = Explained { chunks: vec![chunk], slow: vec![SlowReadStatus::default()] };
    let value = serde_json::to_value(all).expect("plain data becomes JSON");
    assert_eq!(documented(DOCUMENT), fields(&value));
}

#[test]
fn each_stage_is_documented() {
    let (_, table) = DOCUMENT.split_once("## Stages").expect("the table of stages");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let named: BTreeSet<&str> = rows.filter(|name| *name != "stage").collect();
    assert_eq!(named, STAGES.into_iter().collect());
}
