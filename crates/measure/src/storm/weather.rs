//! Bad weather: what goes wrong while a storm runs.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Something that happens at a moment of a storm. Typed as `3s:slow:2:10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// After the start. At zero it has happened when the readers start.
    pub after: Duration,
    /// What happens.
    pub trouble: Trouble,
}

/// What happens to a host (0 is the origin), or to the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its link becomes slower by a factor, both ways.
    Slow {
        /// Which.
        host: usize,
        /// How many times slower.
        factor: u64,
    },
    /// Its node is stopped: connections stay, and nothing comes over them.
    Stop {
        /// Which.
        host: usize,
    },
    /// Its node is killed.
    Kill {
        /// Which.
        host: usize,
    },
    /// Its node is told to leave.
    Leave {
        /// Which.
        host: usize,
    },
    /// Its link is cut.
    Cut {
        /// Which.
        host: usize,
    },
    /// Its link and its node are as they were, unless it was killed or has left.
    Back {
        /// Which.
        host: usize,
    },
    /// More readers join.
    Join {
        /// How many.
        count: usize,
    },
}

impl Trouble {
    /// Whom it befalls.
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

    /// True if the host's own reader cannot be expected to go on.
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

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
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
        let after = word()?.trim_end_matches('s').parse::<f64>().map_err(|_| wrong())?;
        let after = Duration::try_from_secs_f64(after).map_err(|_| wrong())?;
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
