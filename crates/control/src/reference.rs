//! The reference documents of the objects that `--json` prints, read so that tests can compare them
//! with the objects.
//!
//! Owns how a field is named: keys joined by dots, `[]` behind a list, as in `images[].coverage`.
//! Called by the tests of `status` and `bench` (feature `reference`); no part of the program.

use serde_json::Value;
use std::collections::BTreeSet;

/// The names of all fields in `value`, and of those in the objects and lists within it.
pub fn fields(value: &Value) -> BTreeSet<String> {
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
pub fn documented(document: &str) -> BTreeSet<String> {
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
pub fn example(document: &str) -> Value {
    let block = document.rsplit("```json\n").next().and_then(|rest| rest.split("```").next());
    serde_json::from_str(block.expect("an example")).expect("JSON")
}

/// The number behind "`format` is the version of the object, now".
pub fn format_of(document: &str) -> Option<u32> {
    let (_, rest) = document.split_once("`format` is the version of the object, now ")?;
    rest.split('.').next()?.parse().ok()
}
