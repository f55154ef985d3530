//! Findings as text for people and as one JSON object.

use crate::checks::CHECKS;
use crate::finding::{Finding, Weight};
use serde::Serialize;
use vfield_console::text::clean;

/// Version of the JSON object: raised when a field is renamed, goes, or changes its meaning.
pub const FORMAT: u32 = 1;

/// All that a doctor says.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// Version of this object, [`FORMAT`].
    pub format: u32,
    /// Number of checks that were made.
    pub checks: usize,
    /// What they found, the gravest first.
    pub findings: &'a [Finding],
    /// What could not be looked at, and why.
    pub unseen: &'a [String],
}

impl<'a> Report<'a> {
    /// Of these findings.
    pub const fn new(findings: &'a [Finding], unseen: &'a [String]) -> Self {
        Self { format: FORMAT, checks: CHECKS.len(), findings, unseen }
    }

    /// One JSON object with a newline.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data becomes JSON") + "\n"
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for finding in self.findings {
            let Finding { check, weight, fact, consequence, command, undo, fix } = finding;
            out.push_str(&format!("{:<5} {}  [{check}]\n", weight.word(), clean(fact)));
            out.push_str(&format!("      costs  {}\n", clean(consequence)));
            if !command.is_empty() {
                let safe = if fix.is_empty() { "" } else { "  (or --fix)" };
                out.push_str(&format!("      do     {}{safe}\n", clean(command)));
            }
            if !undo.is_empty() {
                out.push_str(&format!("      undo   {}\n", clean(undo)));
            }
        }
        for unseen in self.unseen {
            out.push_str(&format!("?     not looked at: {}\n", clean(unseen)));
        }
        let grave = self.findings.iter().filter(|finding| finding.weight != Weight::Note).count();
        let found = self.findings.len();
        out.push_str(&format!("{} checks, {found} findings, {grave} of them cost speed or fail reads\n", self.checks));
        out
    }
}
