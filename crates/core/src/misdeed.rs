//! Misdeeds: each kind of misconduct that is counted, with its name in JSON and its words for
//! people.
//!
//! The core counts those of peers, the shell those on connections; both in a [`Tally`]. The status
//! and its text iterate over [`Misdeed::ALL`], so a new kind is one row here, and the call.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Makes the kinds from their rows: variant, name in JSON, words after a number.
macro_rules! misdeeds {
    ($($(#[$comment:meta])* $kind:ident = $name:literal, $words:literal;)*) => {
        /// A kind of misconduct by strangers or peers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Misdeed {
            $($(#[$comment])* $kind,)*
        }

        impl Misdeed {
            /// All kinds, in the order in which they are shown.
            pub const ALL: [Self; [$(Self::$kind),*].len()] = [$(Self::$kind),*];

            /// The key in `vfield status --json`. Scripts depend on it: it is never renamed.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The words that follow the number in `vfield status`.
            pub const fn words(self) -> &'static str {
                match self { $(Self::$kind => $words,)* }
            }
        }
    };
}

misdeeds! {
    /// Wrong bytes, and broken protocols: each bans its peer for a minute or more.
    Lies = "lies", "lies";
    /// Refusals of announced chunks.
    FalseClaims = "false_claims", "false claims";
    /// Bans of a peer because nothing whole came from it in time.
    Drags = "drags", "bans for delivering nothing";
    /// Denials of false statements that this node is dead, or another at its address.
    Denials = "denials", "denials of its own death";
    /// Connections that did not greet in time.
    Silent = "silent", "silent connections";
    /// Connections that were closed to make room for others.
    ShownOut = "shown_out", "closed to make room";
    /// Frames that did not come whole in time.
    SlowFrames = "slow_frames", "slow frames";
    /// Invalid frames, and valid ones out of place.
    BrokenFrames = "broken_frames", "broken frames";
    /// Connections whose requested answers were not read.
    Unread = "unread", "answers not read";
}

/// How often each kind happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, u64>")]
pub struct Tally([u64; Misdeed::ALL.len()]);

impl Tally {
    /// Counts one more.
    pub const fn add(&mut self, misdeed: Misdeed) {
        self.add_many(misdeed, 1);
    }

    /// Counts `times` more.
    pub const fn add_many(&mut self, misdeed: Misdeed, times: u64) {
        let count = &mut self.0[misdeed as usize];
        *count = count.saturating_add(times);
    }

    /// How often this kind happened.
    pub const fn of(&self, misdeed: Misdeed) -> u64 {
        self.0[misdeed as usize]
    }

    /// The kinds that happened at all, each with its count.
    pub fn counted(&self) -> impl Iterator<Item = (Misdeed, u64)> {
        Misdeed::ALL.into_iter().map(|misdeed| (misdeed, self.of(misdeed))).filter(|(_, times)| *times > 0)
    }
}

impl Extend<(Misdeed, u64)> for Tally {
    fn extend<T: IntoIterator<Item = (Misdeed, u64)>>(&mut self, counts: T) {
        counts.into_iter().for_each(|(misdeed, times)| self.add_many(misdeed, times));
    }
}

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Misdeed::ALL.map(|misdeed| (misdeed.name(), self.of(misdeed))))
    }
}

/// A newer daemon may count what this program does not know, an older one less.
impl From<BTreeMap<String, u64>> for Tally {
    fn from(counts: BTreeMap<String, u64>) -> Self {
        Self(Misdeed::ALL.map(|misdeed| counts.get(misdeed.name()).copied().unwrap_or_default()))
    }
}
