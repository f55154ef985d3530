//! Extent of the sandbox, `--sandbox`.

use clap::ValueEnum;

/// Extent of the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// As far as kernel and exports allow.
    #[default]
    Auto,
    /// Complete, or the daemon refuses to start.
    Require,
    /// No sandbox at all.
    Off,
}
