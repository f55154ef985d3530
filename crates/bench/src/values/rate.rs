//! Rates of links in bits per second, as people write and read them: `100M`, `1G`, `2.5Gbit/s`.
//!
//! Prefixes are powers of 1000, as networks have them; a bare number is bits per second.

use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_console::values::number_and_unit;

const HINT: &str = "rates are bits per second: 100M, 1G, 2.5G or 10Gbit/s";

/// Bits per second, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new(format!("{text:?} is not the rate of a link"), HINT);
        let (number, unit) = number_and_unit(text.trim());
        let unit = unit_bits(unit).ok_or_else(bad)?;
        // `f64` takes "1." and ".5" too, which nobody means.
        if number.starts_with('.') || number.ends_with('.') {
            return Err(bad());
        }
        let bits = number.parse::<f64>().map_err(|_| bad())? * unit as f64;
        if !(1.0..1e18).contains(&bits) {
            return Err(BadValue::new(format!("no link has a rate of {text:?}"), HINT));
        }
        Ok(Self(bits.round() as u64))
    }
}

/// How many bits per second a unit is.
fn unit_bits(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let prefix = ["bit/s", "bps", "bit"].iter().find_map(|end| unit.strip_suffix(end)).unwrap_or(&unit);
    match prefix {
        "" => Some(1),
        "k" => Some(1000),
        "m" => Some(1_000_000),
        "g" => Some(1_000_000_000),
        "t" => Some(1_000_000_000_000),
        _ => None,
    }
}

/// `bits` per second for people: `100 Mbit/s`, `2.5 Gbit/s`.
pub fn human(bits: u64) -> String {
    let units = [(1_000_000_000_000, "Tbit/s"), (1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1000, "kbit/s")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| bits >= *unit) else { return format!("{bits} bit/s") };
    let text = format!("{:.2}", bits as f64 / unit as f64);
    format!("{} {name}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_decimal_and_of_bits() {
        for (text, want) in [
            ("1G", 1_000_000_000),
            ("2.5g", 2_500_000_000),
            ("100M", 100_000_000),
            ("100 Mbit/s", 100_000_000),
            ("10Gbps", 10_000_000_000),
            ("64kbit", 64_000),
            ("1000", 1000),
        ] {
            assert_eq!(text.parse(), Ok(Rate(want)), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "G", "fast", "-1G", "0", "1GiB", "1GB", "1.G", ".5G", "1e9", "1.2.3M", "99999999999T"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_said_shortly() {
        for (bits, want) in [
            (999, "999 bit/s"),
            (100_000_000, "100 Mbit/s"),
            (2_500_000_000, "2.5 Gbit/s"),
            (10_000_000_000, "10 Gbit/s"),
        ] {
            assert_eq!(human(bits), want);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_rate_or_a_refusal(text in "\\PC{0,20}") {
            if let Ok(Rate(bits)) = text.parse::<Rate>() {
                prop_assert!(bits > 0);
            }
        }
    }
}
