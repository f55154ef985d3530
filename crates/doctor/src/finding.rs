//! A finding: a fact, what it costs, what to type, and how to take that back.

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Reads are slow or fail because of it.
    Bad,
    /// It costs speed under load.
    Slow,
    /// It may matter.
    Note,
}

impl Weight {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Slow => "slow",
            Self::Note => "note",
        }
    }
}

/// What writes a setting of the kernel; safe to do while a daemon runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// A file below `/proc/sys` or `/sys`, absolute.
    pub path: String,
    /// The text to write.
    pub value: String,
    /// The text that was there.
    pub before: String,
}

impl Fix {
    /// The command that does it.
    pub fn command(&self) -> String {
        format!("echo '{}' > {}", self.value, self.path)
    }

    /// The command that takes it back.
    pub fn undo(&self) -> String {
        format!("echo '{}' > {}", self.before, self.path)
    }
}

/// Something that a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// The fact, with its numbers.
    pub fact: String,
    /// Its cost, with a number from this machine.
    pub consequence: String,
    /// What to type; empty if no command helps.
    pub command: String,
    /// How to take that back; empty if there is nothing to take back.
    pub undo: String,
    /// What `--fix` writes, if it is safe.
    pub fix: Vec<Fix>,
}

impl Finding {
    /// A finding without a command.
    pub fn new(check: &'static str, weight: Weight, fact: String, consequence: String) -> Self {
        Self { check, weight, fact, consequence, command: String::new(), undo: String::new(), fix: Vec::new() }
    }

    /// With a command, and how to take it back.
    pub fn typed(self, command: impl Into<String>, undo: impl Into<String>) -> Self {
        Self { command: command.into(), undo: undo.into(), ..self }
    }

    /// With settings that `--fix` writes.
    pub fn fixed(self, fix: Vec<Fix>) -> Self {
        let join = |of: fn(&Fix) -> String| fix.iter().map(of).collect::<Vec<_>>().join("; ");
        Self { command: join(Fix::command), undo: join(Fix::undo), fix, ..self }
    }
}
