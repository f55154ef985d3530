//! Weather: faults during a storm, in the syntax of the lab's storms: `3s:slow:2:10`.

use super::units;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Something that happens at a moment of a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// After the start.
    pub after: Duration,
    /// The fault to bring about.
    pub trouble: Trouble,
}

/// A fault of a machine (0 is the origin), or of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its link becomes slower by a factor, both ways.
    Slow(usize, u64),
    /// Its node is stopped: connections stay, and nothing comes over them.
    Stop(usize),
    /// Its node is killed: its connections break.
    Kill(usize),
    /// The node leaves the field.
    Leave(usize),
    /// Its link is cut.
    Cut(usize),
    /// Its link and its node are as they were, unless it was killed or has left.
    Back(usize),
    /// More readers join.
    Join(usize),
}

impl Trouble {
    /// The affected machine, if it is one.
    pub fn machine(self) -> Option<usize> {
        match self {
            Self::Slow(machine, _)
            | Self::Stop(machine)
            | Self::Kill(machine)
            | Self::Leave(machine)
            | Self::Cut(machine)
            | Self::Back(machine) => Some(machine),
            Self::Join(_) => None,
        }
    }

    /// True if the machine's own reader cannot be expected to go on.
    pub fn ends_reading(self) -> bool {
        matches!(self, Self::Stop(_) | Self::Kill(_) | Self::Leave(_) | Self::Cut(_))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s:", self.after.as_secs_f64())?;
        match self.trouble {
            Trouble::Slow(machine, factor) => write!(f, "slow:{machine}:{factor}"),
            Trouble::Stop(machine) => write!(f, "stop:{machine}"),
            Trouble::Kill(machine) => write!(f, "kill:{machine}"),
            Trouble::Leave(machine) => write!(f, "leave:{machine}"),
            Trouble::Cut(machine) => write!(f, "cut:{machine}"),
            Trouble::Back(machine) => write!(f, "back:{machine}"),
            Trouble::Join(count) => write!(f, "join:{count}"),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no event; TIME:slow:MACHINE:FACTOR, TIME:stop|kill|leave|cut|back:MACHINE or \
                 TIME:join:COUNT, such as 3s:slow:2:10"
            )
        };
        let words: Vec<&str> = text.split(':').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).ok_or_else(wrong);
        let [after, verb, ..] = words[..] else { return Err(wrong()) };
        let after = units::time(after).map_err(|_| wrong())?;
        let (trouble, length) = match verb {
            "slow" => (Trouble::Slow(number(2)?, number(3)?.max(1) as u64), 4),
            "stop" => (Trouble::Stop(number(2)?), 3),
            "kill" => (Trouble::Kill(number(2)?), 3),
            "leave" => (Trouble::Leave(number(2)?), 3),
            "cut" => (Trouble::Cut(number(2)?), 3),
            "back" => (Trouble::Back(number(2)?), 3),
            "join" => (Trouble::Join(number(2)?), 3),
            _ => return Err(wrong()),
        };
        if words.len() == length { Ok(Self { after, trouble }) } else { Err(wrong()) }
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
        for text in ["", "3s", "3s:kill", "3s:kill:x", "3s:slow:1", "-1s:kill:1", "3s:kill:1:2", "3s:dance:1"] {
            assert!(text.parse::<Event>().is_err(), "{text}");
        }
    }
}
