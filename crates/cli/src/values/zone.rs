//! The name of a zone.

use crate::failure::BadValue;
use serde::Deserialize;
use std::str::FromStr;
use vfield_core::identity::Zone;

/// A zone with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ZoneName(pub Zone);

impl FromStr for ZoneName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let named = Zone::named(text).filter(|_| !text.is_empty()).map(Self);
        named.ok_or_else(|| {
            let rule = format!("1 to {} letters, digits and -_.:/", Zone::LENGTH_MAX);
            BadValue::new(format!("{text:?} cannot name a zone"), format!("give {rule}, for example --zone rack-17"))
        })
    }
}

impl TryFrom<String> for ZoneName {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
    }
}
