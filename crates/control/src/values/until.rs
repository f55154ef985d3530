//! What `status --wait` waits for: `ready`, `filled`, `covered`, `covered=2`.

use serde::Serialize;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use vfield_console::failure::BadValue;

const HINT: &str = "give ready, filled, covered, or covered=2 (each chunk held twice)";

/// A condition of `vfield status --wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Until {
    /// The daemon's images can be read.
    Ready,
    /// The daemon's stores hold all they are to hold.
    Filled,
    /// The stores of the field hold every image of the daemon, each chunk so many times.
    Covered(NonZeroU64),
}

impl Until {
    /// [`Until::Covered`] with each chunk held once.
    pub const COVERED: Self = Self::Covered(NonZeroU64::MIN);
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Filled => f.write_str("filled"),
            Self::Covered(NonZeroU64::MIN) => f.write_str("covered"),
            Self::Covered(times) => write!(f, "covered={times}"),
        }
    }
}

impl FromStr for Until {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match (text, text.strip_prefix("covered=").map(str::parse)) {
            ("ready", _) => Ok(Self::Ready),
            ("filled", _) => Ok(Self::Filled),
            ("covered", _) => Ok(Self::COVERED),
            (_, Some(Ok(times))) => Ok(Self::Covered(times)),
            _ => Err(BadValue::new(format!("{text:?} is no condition"), HINT)),
        }
    }
}

impl From<Until> for String {
    fn from(until: Until) -> Self {
        until.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_it_is_read() {
        for text in ["ready", "filled", "covered", "covered=2", "covered=18446744073709551615"] {
            assert_eq!(text.parse::<Until>().unwrap().to_string(), text);
        }
        assert_eq!("covered=1".parse::<Until>().unwrap(), Until::COVERED);
        for text in ["", "covered=", "covered=0", "covered=-1", "Covered", "covered=2x"] {
            assert!(text.parse::<Until>().is_err(), "{text}");
        }
    }
}
