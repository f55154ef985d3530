//! Metrics are what Prometheus takes, within their bounds, and as the reference says.

use crate::room::{HOSTILE, Room};
use std::collections::{BTreeMap, BTreeSet};
use vfield_dashboard::metrics::{FAMILIES, Kind, OF_IMAGE_MAX, SERIES_MAX, render};
use vfield_dashboard::view::View;

const DOCUMENT: &str = include_str!("../../../../docs/reference/metrics.md");
const RULES: &str = include_str!("../../../../dist/prometheus/vfield.rules.yml");
const BOARD: &str = include_str!("../../../../dist/grafana/vfield.json");

type Labels = Vec<(String, String)>;

/// A sample of the text format, read strictly.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

/// All samples by family. Panics at anything that the format does not allow.
fn parse(text: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
    assert!(text.ends_with('\n'), "the last line has an end");
    let mut families: BTreeMap<String, (String, Vec<Sample>)> = BTreeMap::new();
    let (mut current, mut helped) = (String::new(), None);
    for line in text.trim_end_matches('\n').split('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a help text");
            assert!(!words.is_empty() && helped.replace(name.to_owned()).is_none(), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert_eq!(helped.take().as_deref(), Some(name), "a help before each type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(families.insert(name.to_owned(), (kind.to_owned(), Vec::new())).is_none(), "{name} comes twice");
            current = name.to_owned();
        } else {
            let sample = sample(line);
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| sample.name.strip_suffix(part));
            let (kind, samples) = families.get_mut(&current).expect("a type before each sample");
            let its = if kind == "histogram" { family.unwrap_or_default() } else { &sample.name };
            assert_eq!(its, current, "{line}");
            samples.push(sample);
        }
    }
    families
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    first && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            let (label, value) = inside.split_once("=\"").expect("a label");
            assert!(is_name(label), "{line}");
            let (value, after) = quoted(value);
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(more) => inside = more,
                None => break rest = after.strip_prefix('}').expect("an end of labels"),
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("a space").parse().unwrap_or_else(|_| panic!("{line}"));
    Sample { name: name.to_owned(), labels, value }
}

/// A value up to its quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next().map(|(_, letter)| letter) {
                Some('n') => value.push('\n'),
                Some(letter @ ('"' | '\\')) => value.push(letter),
                other => panic!("{other:?} behind a backslash"),
            },
            other => value.push(other),
        }
    }
    panic!("no end of {text}");
}

#[test]
fn the_text_is_what_prometheus_takes() {
    let families = parse(&render(&Room::of(50).view(7)));
    for (name, (kind, samples)) in &families {
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        assert!(kind != "counter" || samples.iter().all(|sample| sample.value >= 0.0), "{name}");
        let series: BTreeSet<(&str, &Labels)> = samples.iter().map(|one| (one.name.as_str(), &one.labels)).collect();
        assert_eq!(series.len(), samples.len(), "{name} has a series twice");
    }
    let (_, waits) = &families["vfield_read_wait_seconds"];
    let buckets: Vec<f64> = waits.iter().filter(|one| one.name.ends_with("_bucket")).map(|one| one.value).collect();
    assert!(buckets.is_sorted() && buckets.len() == 11);
    assert_eq!((buckets[0], buckets[10], waits.last().unwrap().value), (5.0, 22.0, 22.0));
    assert_eq!(waits[10].labels, [("le".to_owned(), "+Inf".to_owned())]);
    let names: Vec<&str> =
        families["vfield_image_coverage_ratio"].1.iter().map(|one| one.labels[0].1.as_str()).collect();
    assert_eq!(names, [HOSTILE, "viver.squash=020202020202", "viver.squash=030303030303"]);
}

#[test]
fn series_are_bounded_and_none_is_a_peers() {
    let count = |view: &View| parse(&render(view)).values().map(|(_, samples)| samples.len()).sum::<usize>();
    let (small, large) = (Room::of(2).view(1), Room::of(1000).view(1));
    assert_eq!(count(&small), count(&large));
    let images = large.status.node.images.len();
    assert!(count(&large) <= SERIES_MAX + images * OF_IMAGE_MAX, "{}", count(&large));
    assert!(count(&View::default()) <= SERIES_MAX);
    assert!(render(&large).len() < 64 << 10);
}

#[test]
fn the_reference_has_each_metric_and_no_other() {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let documented: BTreeSet<Vec<String>> = rows
        .filter(|row| row.starts_with("vfield_") || row.starts_with("process_"))
        .map(|row| row.split(" | ").map(|cell| cell.trim_matches('`').replace("`, `", ",")).collect())
        .map(|mut row: Vec<String>| {
            row[3] = row[3].replace('`', "");
            row
        })
        .collect();
    let known: BTreeSet<Vec<String>> = FAMILIES
        .iter()
        .map(|family| {
            let labels = if family.kind == Kind::Histogram { "le" } else { family.labels };
            [family.name, family.kind.name(), labels, &family.help.replace('`', "")].map(str::to_owned).to_vec()
        })
        .collect();
    assert_eq!(documented, known);
    assert!(
        DOCUMENT.contains(&format!("| series of a node | {SERIES_MAX} |\n| series of each image | {OF_IMAGE_MAX} |"))
    );
}

#[test]
fn labels_are_those_of_the_table() {
    for (name, (kind, samples)) in parse(&render(&Room::of(9).view(1))) {
        let family = FAMILIES.iter().find(|family| family.name == name).expect("a family");
        for sample in samples.iter().filter(|_| kind != "histogram") {
            let labels: Vec<&str> = sample.labels.iter().map(|(label, _)| label.as_str()).collect();
            assert_eq!(labels.join(","), family.labels, "{name}");
        }
    }
}

/// The words of a text that look like a metric of ours.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("vfield_") || word.starts_with("process_")).collect()
}

#[test]
fn alerts_and_the_board_ask_for_metrics_that_exist() {
    serde_json::from_str::<serde_json::Value>(BOARD).expect("JSON");
    for (file, text) in [("rules", RULES), ("board", BOARD)] {
        let asked = metrics_in(text);
        assert!(asked.len() > 8, "{file}: {asked:?}");
        for metric in asked {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| metric.strip_suffix(part));
            let known = |name: &str| FAMILIES.iter().any(|family| family.name == name);
            assert!(known(metric) || base.is_some_and(known), "{file}: {metric}");
        }
    }
    // Each alert says what to do.
    let count = |word: &str| RULES.matches(word).count();
    assert_eq!(count("- alert:"), count("action:"));
}
