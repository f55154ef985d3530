//! A limit of traffic in one direction: a rate, and other rates at times of the day.
//!
//! Pure: a time of day in, a rate out. `500M` is a rate for all day. `500M,08:00-18:00=50M` has
//! another one in a window. `none` is no limit. Windows go past midnight if they end before they
//! begin, and never overlap.

use crate::limits::local_time::DAY;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_console::values::size::{Size, human};
use vfield_node::limits::LIMIT_MIN;

/// Most windows of a day; more are a mistake.
const WINDOWS_MAX: usize = 24;
/// Longest text: that many windows with long rates.
const TEXT_MAX: usize = 1024;

const HINT: &str = "limits look like 500M (bytes a second), none, or 500M,08:00-18:00=50M";

/// The limit of one direction over a day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limit {
    /// Outside all windows, in bytes a second; `None` is no limit.
    base: Option<NonZeroU64>,
    windows: Vec<Window>,
}

/// A part of the day: half-open, in minutes since midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    from: u16,
    /// 1 to 1440; not above `from` if it goes past midnight.
    to: u16,
    rate: Option<NonZeroU64>,
}

impl Window {
    const fn has(&self, minute: u16) -> bool {
        if self.from < self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.has(other.from) || other.has(self.from)
    }
}

impl Limit {
    /// The rate at this minute of the day, in bytes a second; `None` is no limit.
    pub fn rate_at(&self, minute: u16) -> Option<NonZeroU64> {
        let window = self.windows.iter().find(|window| window.has(minute));
        window.map_or(self.base, |window| window.rate)
    }

    /// True if the time of the day matters.
    pub fn has_schedule(&self) -> bool {
        !self.windows.is_empty()
    }
}

fn bad(fact: String) -> BadValue {
    BadValue::new(fact, HINT)
}

/// A rate with or without `/s`; `none` is no limit.
fn rate(text: &str) -> Result<Option<NonZeroU64>, BadValue> {
    if text == "none" {
        return Ok(None);
    }
    let size = text.strip_suffix("/s").unwrap_or(text).parse::<Size>();
    let Size(bytes) = size.map_err(|_| bad(format!("{text:?} is no rate")))?;
    if bytes < LIMIT_MIN {
        let least = human(LIMIT_MIN);
        return Err(bad(format!("a limit of {text} a second is too low: the least is {least} a second")));
    }
    Ok(NonZeroU64::new(bytes))
}

/// Minutes since midnight; 24:00 only at the end of a window.
fn time(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_number)
    };
    let (hour, minute) = (number(hour)?, number(minute).filter(|_| minute.len() == 2)?);
    let of_day = hour * 60 + minute;
    (minute < 60 && of_day <= DAY).then_some(of_day)
}

fn window(times: &str, value: &str) -> Result<Window, BadValue> {
    let parsed = times.split_once('-').and_then(|(from, to)| Some((time(from)?, time(to)?)));
    let Some((from, to)) = parsed.filter(|(from, _)| *from < DAY) else {
        return Err(bad(format!("{times:?} is no part of a day")));
    };
    // Midnight as an end is the end of the day.
    let to = if to == 0 { DAY } else { to };
    if from == to {
        return Err(bad(format!("{times:?} is an empty part of a day")));
    }
    Ok(Window { from, to, rate: rate(value)? })
}

impl FromStr for Limit {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.len() > TEXT_MAX {
            return Err(bad(format!("a limit of {} characters", text.len())));
        }
        let (mut base, mut windows) = (None, Vec::<Window>::new());
        for part in text.split(',').map(str::trim) {
            let Some((times, value)) = part.split_once('=') else {
                if base.replace(rate(part)?).is_some() {
                    return Err(bad(format!("{text:?} has two rates for all day")));
                }
                continue;
            };
            let new = window(times.trim(), value.trim())?;
            if let Some(other) = windows.iter().find(|other| other.overlaps(&new)) {
                return Err(bad(format!("{} and {} overlap", span(other), span(&new))));
            }
            windows.push(new);
        }
        if windows.len() > WINDOWS_MAX {
            return Err(bad(format!("more than {WINDOWS_MAX} parts of a day")));
        }
        Ok(Self { base: base.flatten(), windows })
    }
}

fn span(window: &Window) -> String {
    let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    format!("{}-{}", time(window.from), time(window.to))
}

/// A text that parses to the same rate.
fn written(rate: Option<NonZeroU64>) -> String {
    let Some(rate) = rate.map(NonZeroU64::get) else { return "none".to_owned() };
    let unit = ["G", "M", "K"].iter().zip([30, 20, 10]).find(|(_, power)| rate.is_multiple_of(1 << power));
    unit.map_or_else(|| rate.to_string(), |(unit, power)| format!("{}{unit}", rate >> power))
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self.base))?;
        self.windows.iter().try_for_each(|window| write!(f, ",{}={}", span(window), written(window.rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str, hour: u16, minute: u16) -> Option<u64> {
        text.parse::<Limit>().unwrap().rate_at(hour * 60 + minute).map(NonZeroU64::get)
    }

    #[test]
    fn a_rate_counts_all_day() {
        for (text, want) in [("500M", Some(500 << 20)), ("50MB/s", Some(50_000_000)), ("none", None)] {
            assert_eq!((at(text, 0, 0), at(text, 23, 59)), (want, want), "{text}");
        }
    }

    #[test]
    fn windows_are_half_open_and_may_pass_midnight() {
        let text = "500M,08:00-18:00=50M, 22:00-6:30=none";
        for (hour, minute, mib) in [
            (7, 59, Some(500)),
            (8, 0, Some(50)),
            (17, 59, Some(50)),
            (18, 0, Some(500)),
            (21, 59, Some(500)),
            (22, 0, None),
            (0, 0, None),
            (6, 29, None),
            (6, 30, Some(500)),
        ] {
            assert_eq!(at(text, hour, minute), mib.map(|mib| mib << 20), "{hour}:{minute}");
        }
        assert_eq!((at("12:00-24:00=1M", 23, 59), at("12:00-00:00=1M", 11, 59)), (Some(1 << 20), None));
        assert!(text.parse::<Limit>().unwrap().has_schedule());
        assert_eq!(text.parse::<Limit>().unwrap().to_string(), "500M,08:00-18:00=50M,22:00-06:30=none");
    }

    #[test]
    fn what_is_no_limit_is_refused_in_one_line() {
        let fact = |text: &str| text.parse::<Limit>().unwrap_err().fact;
        for (text, want) in [
            ("", "\"\" is no rate"),
            ("0", "a limit of 0 a second is too low: the least is 128.0 KiB a second"),
            ("-5M", "\"-5M\" is no rate"),
            ("127K", "a limit of 127K a second is too low: the least is 128.0 KiB a second"),
            ("fast", "\"fast\" is no rate"),
            ("1M,2M", "\"1M,2M\" has two rates for all day"),
            ("08:00-18:00", "\"08:00-18:00\" is no rate"),
            ("08:00-18:00=", "\"\" is no rate"),
            ("8-18=1M", "\"8-18\" is no part of a day"),
            ("25:00-26:00=1M", "\"25:00-26:00\" is no part of a day"),
            ("08:60-09:00=1M", "\"08:60-09:00\" is no part of a day"),
            ("08:00-08:00=1M", "\"08:00-08:00\" is an empty part of a day"),
            ("08:00-12:00=1M,11:59-13:00=2M", "08:00-12:00 and 11:59-13:00 overlap"),
            ("22:00-06:00=1M,05:00-07:00=2M", "22:00-06:00 and 05:00-07:00 overlap"),
        ] {
            assert_eq!(fact(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_limit_or_a_refusal(text in "[0-9:=,MKn\\-]{0,60}|\\PC{0,20}") {
            if let Ok(limit) = text.parse::<Limit>() {
                prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
            }
        }
    }
}
