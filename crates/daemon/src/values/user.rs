//! A user of this machine, as people name him.

use serde::Deserialize;
use std::str::FromStr;
use vfield_console::failure::BadValue;

/// What `--user` says: a name, or a number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct UserName(pub String);

impl FromStr for UserName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.is_empty() || text.contains([':', '\n', '/']) {
            let hint = "give a name or a number, for example --user nobody".to_owned();
            return Err(BadValue::new(format!("{text:?} cannot name a user"), hint));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for UserName {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
    }
}
