//! Lengths of time, as people write and read them: `500ms`, `30s`, `2m`, `1h`; a bare number is
//! seconds.

use super::number_and_unit;
use crate::failure::BadValue;
use std::str::FromStr;
use std::time::Duration;

const HINT: &str = "durations look like 500ms, 30s, 2m or 1h; a bare number is seconds";
const RETRY_HINT: &str = "give 30s, 5m, 0 (try once) or forever";
/// More than this is said with `never`; far below what would overflow an instant.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period(pub Duration);

impl FromStr for Period {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new(format!("{text:?} is not a duration"), HINT);
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(BadValue::new(format!("a duration cannot be negative: {text:?}"), HINT));
        }
        let (number, unit) = number_and_unit(trimmed);
        let unit_seconds = match unit {
            "ms" => 0.001,
            "" | "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        let period = Duration::try_from_secs_f64(number * unit_seconds).map_err(|_| bad())?;
        if period > LONGEST {
            return Err(BadValue::new(format!("{text:?} is longer than ten years"), HINT));
        }
        Ok(Self(period))
    }
}

/// How long to wait at most; `0` and `never` mean without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeout(pub Option<Duration>);

impl FromStr for Timeout {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.trim().eq_ignore_ascii_case("never") {
            return Ok(Self(None));
        }
        let Period(period) = text.parse()?;
        Ok(Self((!period.is_zero()).then_some(period)))
    }
}

/// How long to try again: `0` means once, `forever` without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry(pub Option<Duration>);

impl FromStr for Retry {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.trim().eq_ignore_ascii_case("forever") {
            return Ok(Self(None));
        }
        let Period(period) = text.parse().map_err(|bad: BadValue| BadValue::new(bad.fact, RETRY_HINT))?;
        Ok(Self(Some(period)))
    }
}

/// `seconds` for people, in its two largest units.
pub fn human(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{:.1}s", seconds.max(0.0));
    }
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, _) => format!("{minutes}m {}s", whole % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_understood() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("30", 30_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1.5s", 1500),
            ("0", 0),
        ] {
            assert_eq!(text.parse::<Period>(), Ok(Period(Duration::from_millis(ms))), "{text}");
        }
    }

    #[test]
    fn never_and_zero_are_no_timeout() {
        assert_eq!("never".parse::<Timeout>(), Ok(Timeout(None)));
        assert_eq!("0".parse::<Timeout>(), Ok(Timeout(None)));
        assert_eq!("0s".parse::<Timeout>(), Ok(Timeout(None)));
        assert_eq!("2m".parse::<Timeout>(), Ok(Timeout(Some(Duration::from_secs(120)))));
    }

    #[test]
    fn to_try_again_has_an_end_or_none() {
        assert_eq!("forever".parse::<Retry>(), Ok(Retry(None)));
        assert_eq!("0".parse::<Retry>(), Ok(Retry(Some(Duration::ZERO))));
        assert_eq!("30s".parse::<Retry>(), Ok(Retry(Some(Duration::from_secs(30)))));
        assert_eq!("never".parse::<Retry>().unwrap_err().hint, RETRY_HINT);
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "-1s", "s", "1y", "1.2.3s", "soon", "1e400s", "99999999999999h", "nan"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_said_shortly() {
        for (seconds, want) in
            [(0.04, "0.0s"), (9.94, "9.9s"), (42.0, "42s"), (192.0, "3m 12s"), (7500.0, "2h 5m"), (180_000.0, "2d 2h")]
        {
            assert_eq!(human(seconds), want);
        }
        assert_eq!(human(f64::NAN), "0s");
    }

    proptest! {
        #[test]
        fn any_text_is_a_timeout_or_a_refusal(text in "\\PC{0,20}") {
            let _ = text.parse::<Timeout>();
        }
    }
}
