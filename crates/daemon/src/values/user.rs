//! A user of this machine, as people name him.

use std::str::FromStr;
use vfield_console::failure::BadValue;

/// What `--user` says: a name, or a number.
#[derive(Debug, Clone, PartialEq, Eq)]
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
