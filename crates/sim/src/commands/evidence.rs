//! The trace file of a violation: enough to repeat it with the same build, and to read its last
//! steps.

use crate::scenario::chaos::{Chaos, Drawn, Malicious};
use crate::trial::Outcome;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use vfield_core::wire;

/// The format of these files and of the draw from a seed: both sides of a replay must agree on it.
pub const FORMAT: u32 = 4;

/// The content of a trace file.
#[derive(Debug, Serialize)]
pub struct Evidence {
    vfield_sim_trace: Head,
    drawn: Drawn,
    last: Vec<String>,
    view: Vec<String>,
}

/// The part that a replay reads.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    /// The file's format: [`FORMAT`].
    pub format: u32,
    /// The program's version.
    pub version: String,
    /// The version of the wire protocol.
    pub protocol: u32,
    /// The seed of the chaos.
    pub seed: u64,
    /// The malicious members that were asked for; older formats have no word of them.
    #[serde(default)]
    pub attack: Malicious,
    /// The violation in words.
    pub violation: String,
    /// The number of steps until then.
    pub steps: u64,
    /// The hash of all that.
    pub hash: String,
}

impl Head {
    /// Why this build cannot repeat it, if it cannot.
    pub fn stranger(&self) -> Option<String> {
        let mine = (FORMAT, env!("CARGO_PKG_VERSION"), wire::VERSION);
        let theirs = (self.format, self.version.as_str(), self.protocol);
        (mine != theirs)
            .then(|| format!("a trace of another version: format, version and protocol are {theirs:?}, here {mine:?}"))
    }
}

/// The part of a trace file that a replay needs.
#[derive(Debug, Deserialize)]
pub struct Kept {
    /// The head, which a replay reads.
    pub vfield_sim_trace: Head,
}

impl Evidence {
    /// The evidence of a failed trial.
    pub fn of_chaos(chaos: &Chaos, outcome: &Outcome) -> Self {
        let head = Head {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: wire::VERSION,
            seed: chaos.seed,
            attack: chaos.malicious,
            violation: outcome.violation.as_ref().map(ToString::to_string).unwrap_or_default(),
            steps: outcome.steps,
            hash: outcome.trace.clone(),
        };
        let view = outcome.view.lines().map(str::to_owned).collect();
        Self { vfield_sim_trace: head, drawn: chaos.in_words(), last: outcome.last.clone(), view }
    }

    /// Writes it down and says where.
    pub fn keep(&self, file: Option<&Path>) -> String {
        let seed = self.vfield_sim_trace.seed;
        let path = file.map_or_else(|| PathBuf::from(format!("target/sim/chaos-{seed}.json")), Path::to_owned);
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let written = dir.map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
        match written {
            Ok(()) => format!("trace kept in {0} (cargo sim -- replay {0})", path.display()),
            Err(error) => format!("trace not kept: {}: {error}", path.display()),
        }
    }
}
