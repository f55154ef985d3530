//! `--nbd-allow`: from where an image may be read over NBD, `[IMAGE=]NETWORK`.

use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_export::nbd::access::{BadNetwork, Rule};

/// A rule of an access list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access(pub Rule);

impl FromStr for Access {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |BadNetwork(network)| {
            let hint = "give 192.168.1.0/24 or 10.0.0.7, or IMAGE=192.168.1.0/24 for one image";
            BadValue::new(format!("{network:?} is not a network"), hint)
        };
        text.parse().map(Self).map_err(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_others_refused() {
        assert_eq!("a.img=10.0.0.0/8".parse::<Access>().unwrap().0.image.as_deref(), Some("a.img"));
        assert_eq!("lan".parse::<Access>().unwrap_err().fact, "\"lan\" is not a network");
    }
}
