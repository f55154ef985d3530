//! How the command line says that something went wrong: a fact that names the thing, and a hint.
//!
//! Owns the kinds of failure and their exit codes. Every error that reaches a user passes through
//! here; its fact comes from the place that found it.

use std::fmt;
use std::process::ExitCode;

/// Kinds of failures by exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A valid request that failed: exit code 1.
    Failed,
    /// An invalid request: exit code 2.
    Usage,
    /// The reader of stdout is gone: exit code 0, no line.
    Quiet,
}

/// A fact in lower case, and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    kind: Kind,
    /// True if it was said already, as a log line.
    said: bool,
    fact: String,
    hint: Option<String>,
}

impl Failure {
    /// Something that could not be done.
    pub fn failed(fact: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, said: false, fact: fact.into(), hint: None }
    }

    /// Something that cannot be asked for.
    pub fn usage(fact: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, said: false, fact: fact.into(), hint: None }
    }

    /// The end of our output's reader: no failure to speak of.
    pub const fn quiet() -> Self {
        Self { kind: Kind::Quiet, said: false, fact: String::new(), hint: None }
    }

    /// The same failure after it has been logged; its exit code stays.
    pub fn already_said(self) -> Self {
        Self { said: true, ..self }
    }

    /// The same failure about an option under its other name.
    pub fn renamed(mut self, from: &str, to: &str) -> Self {
        if let Some(rest) = self.fact.strip_prefix(from).filter(|rest| rest.starts_with(':')) {
            self.fact = format!("{to}{rest}");
        }
        self
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The fact alone.
    pub fn fact(&self) -> &str {
        &self.fact
    }

    /// The hint alone.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// True if there is nothing to say.
    pub fn is_quiet(&self) -> bool {
        self.said || self.kind == Kind::Quiet
    }

    /// 1 for a failed request, 2 for an invalid one.
    pub fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Failed => ExitCode::from(1),
            Kind::Usage => ExitCode::from(2),
            Kind::Quiet => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vfield: {}", self.fact)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

/// Text on a command line or in a configuration file that is no value of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadValue {
    /// The fault, with the name of the value.
    pub fact: String,
    /// What would be right.
    pub hint: String,
}

impl BadValue {
    /// A fact and a hint.
    pub fn new(fact: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { fact: fact.into(), hint: hint.into() }
    }
}

impl BadValue {
    /// Between the two where they have to be one text, as in the errors of a parser of files.
    const HINT: &str = "\nhint: ";

    /// The fact, and the hint if there is one, in what such a parser says.
    pub fn split(text: &str) -> (&str, Option<&str>) {
        text.split_once(Self::HINT).map_or((text, None), |(fact, hint)| (fact, Some(hint)))
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.fact, Self::HINT, self.hint)
    }
}

impl std::error::Error for BadValue {}

/// The system's words for `error` without its number: "permission denied".
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
