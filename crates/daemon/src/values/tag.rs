//! The name of a tag, as people type it.

use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_core::tag::TagName;

/// A tag's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged(pub TagName);

impl FromStr for Tagged {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        text.parse().map(Self).map_err(|why| {
            BadValue::new(format!("{text:?} cannot name a tag: {why}"), "choose a word such as prod, or room-3.stable")
        })
    }
}
