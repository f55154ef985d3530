//! Metrics in Prometheus' text format (0.0.4).
//!
//! Owns the families: name, kind, labels, help and value of each. `docs/reference/metrics.md` lists
//! them, and a test compares the two. Bounded: [`SERIES_MAX`] series, and [`OF_IMAGE_MAX`] for each
//! image; none for each peer, since a field has a thousand.

mod families;

pub use families::FAMILIES;

use super::view::View;
use std::fmt::Write as _;

/// The content type of what [`render`] makes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Most series of a node without images.
pub const SERIES_MAX: usize = 64;
/// Most series of one image.
pub const OF_IMAGE_MAX: usize = 20;

/// The kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, from 0 at the start of the daemon.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Counts within bounds.
    Histogram,
}

impl Kind {
    /// Its name in the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The metrics of one name.
#[derive(Debug)]
pub struct Family {
    /// The name, with its unit.
    pub name: &'static str,
    /// How its numbers move.
    pub kind: Kind,
    /// The names of its labels, joined by commas; empty for one series.
    pub labels: &'static str,
    /// What it says, in one line.
    pub help: &'static str,
    /// Appends its samples.
    pub samples: fn(&View, &mut Samples<'_>),
}

/// Takes the samples of one family.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Samples<'_> {
    /// The one sample of a family without labels.
    pub fn value(&mut self, value: f64) {
        self.put("", &[], value);
    }

    /// The one sample of a family without labels, if there is a value.
    pub fn known(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.value(value as f64);
        }
    }

    /// A sample with these labels.
    pub fn of(&mut self, labels: &[(&str, &str)], value: f64) {
        self.put("", labels, value);
    }

    /// A sample with these labels, if there is a value.
    pub fn of_known(&mut self, labels: &[(&str, &str)], value: Option<u64>) {
        if let Some(value) = value {
            self.of(labels, value as f64);
        }
    }

    /// A sample of a histogram: `_bucket`, `_sum` or `_count`.
    pub fn part(&mut self, part: &str, labels: &[(&str, &str)], value: f64) {
        self.put(part, labels, value);
    }

    fn put(&mut self, part: &str, labels: &[(&str, &str)], value: f64) {
        let Self { text, name } = self;
        text.push_str(name);
        text.push_str(part);
        for (at, (label, value)) in labels.iter().enumerate() {
            text.push(if at == 0 { '{' } else { ',' });
            text.push_str(label);
            text.push_str("=\"");
            escape(value, text);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

/// Peers choose the names of images: no character of theirs ends a label or a line.
fn escape(value: &str, text: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// All metrics of a daemon.
pub fn render(view: &View) -> String {
    let mut text = String::with_capacity(16 << 10);
    for Family { name, kind, help, samples, .. } in &FAMILIES {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        samples(view, &mut Samples { text: &mut text, name });
    }
    text
}
