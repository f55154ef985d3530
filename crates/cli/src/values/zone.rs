//! Which zone a node is in: one with a name, or that of its subnet.

use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_core::identity::Zone;

/// What `--zone` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneChoice {
    /// A zone with a name.
    Named(Zone),
    /// The zone named after the subnet of the node's address.
    Subnet,
}

impl FromStr for ZoneChoice {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text == "subnet" {
            return Ok(Self::Subnet);
        }
        let named = Zone::named(text).filter(|_| !text.is_empty()).map(Self::Named);
        named.ok_or_else(|| {
            let rule = format!("1 to {} letters, digits and -_.:/", Zone::LENGTH_MAX);
            let hint = format!("give {rule}, for example --zone rack-17, or --zone subnet");
            BadValue::new(format!("{text:?} cannot name a zone"), hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_a_name_or_is_the_subnets() {
        assert_eq!("subnet".parse(), Ok(ZoneChoice::Subnet));
        for name in ["rack-17", "198.18.4.0/24", "Subnet"] {
            assert_eq!(name.parse(), Ok(ZoneChoice::Named(Zone::named(name).unwrap())));
        }
        for name in ["", "a b", "abcdefghijklmnopqrstu"] {
            assert!(name.parse::<ZoneChoice>().is_err(), "{name:?}");
        }
    }
}
