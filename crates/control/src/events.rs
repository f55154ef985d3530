//! What a daemon did last, as `vfield events` lists it.

use serde::{Deserialize, Serialize};

/// An event of a daemon, or of an earlier one whose memory it took over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStatus {
    /// Its number: higher than those of all earlier events.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Process id of the daemon that it happened to.
    pub pid: u32,
    /// What happened, in one word.
    pub event: String,
    /// The same for people; cut if it is long.
    pub text: String,
}
