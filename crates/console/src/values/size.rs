//! Sizes in bytes, as people write and read them.
//!
//! `K`, `M`, `G`, `T` and `KiB`, `MiB`... are powers of 1024 as in dd and fallocate, `KB`, `MB`...
//! powers of 1000; a bare number is bytes.

use super::number_and_unit;
use crate::failure::BadValue;
use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const HINT: &str = "sizes look like 64K, 128M, 1.5GiB or 4096 (bytes)";

impl FromStr for Size {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new(format!("{text:?} is not a size"), HINT);
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(BadValue::new(format!("a size cannot be negative: {text:?}"), HINT));
        }
        let (number, unit) = number_and_unit(trimmed);
        let unit = unit_bytes(unit).ok_or_else(bad)?;
        let bytes = scale(number, unit).ok_or_else(bad)?;
        let nothing = bytes == 0 && number.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
        if nothing || (unit == 1 && number.contains('.')) {
            let fact = format!("{text:?} is a part of a byte");
            return Err(BadValue::new(fact, format!("sizes have units: {number}G is so many GiB")));
        }
        let too_large = || BadValue::new(format!("{text:?} is more bytes than a 64-bit number holds"), HINT);
        u64::try_from(bytes).map(Self).map_err(|_| too_large())
    }
}

/// How many bytes a unit has.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    let mut letters = unit.chars();
    let power = 1 + "kmgtpe".find(letters.next()?)? as u32;
    match letters.as_str() {
        "" | "i" | "ib" => 1024_u64.checked_pow(power),
        "b" => 1000_u64.checked_pow(power),
        _ => None,
    }
}

/// `number` (digits, perhaps with a fraction of at most 12 digits) times `unit`, rounded down.
fn scale(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 12 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let parts: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let unit = u128::from(unit);
    Some(u128::from(whole) * unit + u128::from(parts) * unit / 10_u128.pow(fraction.len() as u32))
}

/// `bytes` for people: three or four digits and a unit.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // 1023.95 would be written as 1024.0 of the smaller unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse::<Size>().ok().map(|size| size.0)
    }

    #[test]
    fn units_are_binary_unless_written_with_a_b_alone() {
        for (text, want) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("64KB", 64_000),
            ("128M", 128 << 20),
            ("128 MiB", 128 << 20),
            ("1GiB", 1 << 30),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("12b", 12),
            ("0.5K", 512),
            ("0.0M", 0),
        ] {
            assert_eq!(bytes(text), Some(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            " ",
            "-1",
            "-5M",
            "M",
            "1X",
            "1.M",
            ".5M",
            "1.2.3",
            "0x10",
            "1e9",
            "99999999999999999999",
            "0.5",
            "1.0",
            "0.5b",
            "0.0001K",
            "16E",
            "1KK",
            "½G",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_said_with_one_decimal() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1024), "1.0 KiB");
        assert_eq!(human(300 << 20), "300.0 MiB");
        assert_eq!(human((1 << 20) - 1), "1.0 MiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_or_a_refusal(text in "\\PC{0,20}") {
            let _ = text.parse::<Size>();
        }

        #[test]
        fn bytes_come_back(number in any::<u64>()) {
            prop_assert_eq!(bytes(&number.to_string()), Some(number));
        }
    }
}
