//! How many streams a measurement has, and how many requests each.

use vfield_console::failure::BadValue;

/// Above this the measuring program limits the result.
const MAX: u64 = 64;

/// A number from 1 to 64.
pub fn of_streams(text: &str) -> Result<u64, BadValue> {
    let count = text.trim().parse().ok().filter(|count| (1..=MAX).contains(count));
    count.ok_or_else(|| BadValue::new(format!("{text:?} is no number from 1 to {MAX}"), "4 suits nearly everything"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_and_not_none() {
        assert_eq!((of_streams("1"), of_streams("64")), (Ok(1), Ok(64)));
        for text in ["0", "65", "-1", "", "x", "1.5"] {
            assert!(of_streams(text).is_err(), "{text}");
        }
    }
}
