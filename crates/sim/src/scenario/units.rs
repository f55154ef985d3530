//! Numbers with units, as typed: sizes in binary units, rates in decimal bits, times, shares.

use super::weather;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The number before a suffix, and the suffix.
fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..at].parse().ok()?;
    number.is_finite().then_some((number, &text[at..]))
}

/// A number of bytes in binary units: `64K`, `540M`, `2GiB`.
///
/// # Errors
/// The reason, for the user.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size such as 256M");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number * (1u64 << shift) as f64;
    if bytes >= 1.0 && bytes < (1u64 << 50) as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// The same, or `0`.
///
/// # Errors
/// The reason, for the user.
pub fn bytes_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { bytes(text) }
}

/// The bytes per second of a link rate in decimal bits per second: `100M`, `1G`, `2.5Gbit`.
///
/// # Errors
/// The reason, for the user.
pub fn rate(text: &str) -> Result<u64, String> {
    text.parse().map(weather::Rate::bytes)
}

/// A time: `100us`, `1.5s`, `2m`, `1h`; without a unit in seconds.
///
/// # Errors
/// The reason, for the user.
pub fn time(text: &str) -> Result<Duration, String> {
    weather::time(text).ok_or_else(|| format!("{text:?} is no time such as 100us or 1.5s"))
}

/// The store of a node for an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Store {
    /// A share of it.
    Share(f64),
    /// This many bytes.
    Bytes(u64),
    /// A share that is drawn for each node, all equally likely.
    Random,
}

impl Store {
    /// In chunks, of an image that has `chunks` of `chunk_bytes`; `drawn` decides if chance does.
    pub fn chunks(self, chunks: u64, chunk_bytes: u64, drawn: u64) -> u64 {
        match self {
            Self::Share(share) => (chunks as f64 * share).ceil() as u64,
            Self::Bytes(bytes) => (bytes / chunk_bytes).min(chunks),
            Self::Random => chunks * (drawn % 101) / 100,
        }
    }
}

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no store: 0 to 100%, a size such as 64M, 0, or random");
        match (text, text.strip_suffix('%')) {
            ("random", _) => Ok(Self::Random),
            ("0", _) => Ok(Self::Bytes(0)),
            (_, Some(percent)) => {
                let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
                if (0.0..=100.0).contains(&percent) { Ok(Self::Share(percent / 100.0)) } else { Err(wrong()) }
            }
            _ => bytes(text).map(Self::Bytes).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{}%", share * 100.0),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Random => f.write_str("random"),
        }
    }
}

/// Share of time in which stores fill: 0 to 9, or drawn for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boost {
    /// The same for all.
    Fixed(u8),
    /// Drawn for each.
    Random,
}

impl FromStr for Boost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("random", _) => Ok(Self::Random),
            (_, Ok(boost @ 0..=9)) => Ok(Self::Fixed(boost)),
            _ => Err(format!("{text:?} is no boost: 0 to 9, or random")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_their_usual_meaning() {
        assert_eq!(bytes("540M"), Ok(540 << 20));
        assert_eq!(bytes("64KiB"), Ok(64 << 10));
        assert_eq!(rate("1G"), Ok(125_000_000));
        assert_eq!(rate("50Mbit"), Ok(6_250_000));
        assert_eq!(time("100us"), Ok(Duration::from_micros(100)));
        assert_eq!("6%".parse(), Ok(Store::Share(0.06)));
        assert_eq!(Store::Share(0.06).chunks(1000, 1, 0), 60);
        assert_eq!("9".parse(), Ok(Boost::Fixed(9)));
    }

    #[test]
    fn other_texts_are_refused_in_one_line() {
        for text in ["", "M", "-1", "1Q", "1e400", "0", "99999T"] {
            assert!(bytes(text).is_err_and(|line| line.lines().count() == 1), "{text}");
        }
        assert!(rate("1").is_err() && rate("9T").is_err() && time("-1s").is_err() && time("1d").is_err());
        assert!("101%".parse::<Store>().is_err() && "10".parse::<Boost>().is_err());
    }
}
