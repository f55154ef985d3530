//! How much a daemon gives up: `--sandbox`.

use clap::ValueEnum;

/// How much a daemon gives up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// What it can.
    #[default]
    Auto,
    /// Everything, or it does not start.
    Require,
    /// Nothing.
    Off,
}
