//! The kinds of values that command lines and configuration files hold, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one. None of them looks at the
//! machine or the network; that is done in [`crate::plan`].

pub mod access;
pub mod address;
pub mod boost;
pub mod count;
pub mod device;
pub mod dhcp;
pub mod duration;
pub mod endpoint;
pub mod image;
pub mod machine;
pub mod nbd_uri;
pub mod overlay;
pub mod rate;
pub mod size;
pub mod store;
pub mod threads;
pub mod until;
pub mod user;
mod written;
pub mod zone;

/// Splits `text` before its first character that is no digit and no point; the unit has no spaces
/// around it.
fn number_and_unit(text: &str) -> (&str, &str) {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    (number, unit.trim())
}
