//! Bad weather: the faults of a storm and their moments, typed as `3s:slow:2:10`, and machines that
//! are unequal from the start, typed as `100M,10M@3`.
//!
//! Owns the grammar, so that a storm in the laboratory and one in the simulator take the same
//! words. Invariant: an event or a list is read back as it is written. It has no dependencies and
//! causes no fault.

pub mod busy;
pub mod each;
pub mod link;
pub mod think;

pub use busy::{Busy, Share};
pub use each::Each;
pub use link::{Link, Links, Rate, Rates};
pub use think::Thinks;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A fault and its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time after the start. An event at zero precedes the readers' start.
    pub after: Duration,
    /// The fault that begins then.
    pub trouble: Trouble,
}

/// A fault of one host (0 is the origin), or a change of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The host's link is slower in both directions.
    Slow {
        /// The host's number; 0 is the origin.
        host: usize,
        /// Divisor of the rate, at least 1.
        factor: u64,
    },
    /// The host's node is stopped: connections stay open and silent.
    Stop {
        /// The host's number; 0 is the origin.
        host: usize,
    },
    /// The host's node is killed: its connections break.
    Kill {
        /// The host's number; 0 is the origin.
        host: usize,
    },
    /// The host's node is told to leave.
    Leave {
        /// The host's number; 0 is the origin.
        host: usize,
    },
    /// The host's link is cut.
    Cut {
        /// The host's number; 0 is the origin.
        host: usize,
    },
    /// The host's link and node recover, unless the node was killed or has left.
    Back {
        /// The host's number; 0 is the origin.
        host: usize,
    },
    /// More readers join.
    Join {
        /// How many of them, at least 1.
        count: usize,
    },
}

impl Trouble {
    /// The host it befalls.
    pub fn host(self) -> Option<usize> {
        match self {
            Self::Slow { host, .. }
            | Self::Stop { host }
            | Self::Kill { host }
            | Self::Leave { host }
            | Self::Cut { host }
            | Self::Back { host } => Some(host),
            Self::Join { .. } => None,
        }
    }

    /// True if the host's own reader may stall for good.
    pub fn ends_reading(self) -> bool {
        matches!(self, Self::Stop { .. } | Self::Kill { .. } | Self::Leave { .. } | Self::Cut { .. })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow { host, factor } => write!(f, "slow:{host}:{factor}"),
            Self::Stop { host } => write!(f, "stop:{host}"),
            Self::Kill { host } => write!(f, "kill:{host}"),
            Self::Leave { host } => write!(f, "leave:{host}"),
            Self::Cut { host } => write!(f, "cut:{host}"),
            Self::Back { host } => write!(f, "back:{host}"),
            Self::Join { count } => write!(f, "join:{count}"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s:{}", self.after.as_secs_f64(), self.trouble)
    }
}

/// A length of time: `100us`, `1.5s`, `2m`, `1h`; without a unit in seconds. Below 2^24 seconds.
pub fn time(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
    (time.as_secs() < 1 << 24).then_some(time)
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no event; TIME:slow:HOST:FACTOR, TIME:stop|kill|leave|cut|back:HOST or TIME:join:COUNT, \
                 such as 3s:slow:2:10"
            )
        };
        let mut words = text.split(':');
        let mut word = || words.next().ok_or_else(wrong);
        let after = word().ok().and_then(time).ok_or_else(wrong)?;
        let verb = word()?;
        let number = word()?.parse::<usize>().map_err(|_| wrong())?;
        let trouble = match verb {
            "slow" => {
                let factor = word()?.parse::<u64>().ok().filter(|factor| *factor > 0).ok_or_else(wrong)?;
                Trouble::Slow { host: number, factor }
            }
            "stop" => Trouble::Stop { host: number },
            "kill" => Trouble::Kill { host: number },
            "leave" => Trouble::Leave { host: number },
            "cut" => Trouble::Cut { host: number },
            "back" => Trouble::Back { host: number },
            "join" => Trouble::Join { count: number },
            _ => return Err(wrong()),
        };
        if words.next().is_some() { Err(wrong()) } else { Ok(Self { after, trouble }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_are_written() {
        for text in ["3s:slow:2:10", "0.5s:stop:1", "0s:kill:0", "1s:leave:7", "2s:cut:3", "4s:back:3", "10s:join:5"] {
            assert_eq!(text.parse::<Event>().map(|event| event.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("3:kill:1".parse::<Event>(), "3s:kill:1".parse());
        assert_eq!("3000ms:kill:1".parse::<Event>(), "3s:kill:1".parse());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "3s", "3s:kill", "3s:kill:x", "3s:slow:1", "3s:slow:1:0", "-1s:kill:1", "3s:kill:1:2", "3s:dance:1"]
        {
            assert!(text.parse::<Event>().is_err(), "{text}");
        }
    }
}
