//! The kinds of values that all commands share, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod address;
pub mod duration;
pub mod size;
pub mod written;

/// Splits `text` before its first character that is no digit and no point; the unit has no spaces
/// around it.
pub fn number_and_unit(text: &str) -> (&str, &str) {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    (number, unit.trim())
}

crate::written! {
    address::Address: "an address such as \"192.168.1.1:4440\"",
    duration::Retry: "a duration such as \"30s\"",
    duration::Timeout: "a duration such as \"30s\"",
    size::Size: "a size such as \"128M\"",
}
