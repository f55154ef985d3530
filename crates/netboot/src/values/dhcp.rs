//! How machines learn what to start from: `proxy`, `none`, or `FIRST-LAST`.

use std::net::Ipv4Addr;
use std::str::FromStr;
use vfield_console::failure::BadValue;

/// What dnsmasq does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DhcpMode {
    /// Adds to what another server gives.
    Proxy,
    /// Does not run.
    None,
    /// Gives addresses, too.
    Range {
        /// The first address that is given.
        first: Ipv4Addr,
        /// The last one.
        last: Ipv4Addr,
    },
}

impl FromStr for DhcpMode {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let range = || {
            let (first, last) = text.split_once('-')?;
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(Self::Range { first, last })
        };
        match text {
            "proxy" => Ok(Self::Proxy),
            "none" => Ok(Self::None),
            _ => range().ok_or_else(|| {
                let hint = "give proxy, none, or a range of addresses: 192.168.1.100-192.168.1.200";
                BadValue::new(format!("{text:?} is no mode of DHCP"), hint.to_owned())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_ends_in_order() {
        let range = DhcpMode::Range { first: Ipv4Addr::new(10, 0, 0, 5), last: Ipv4Addr::new(10, 0, 0, 9) };
        assert_eq!("10.0.0.5-10.0.0.9".parse(), Ok(range));
        for bad in ["", "10.0.0.9-10.0.0.5", "10.0.0.9", "a-b"] {
            assert!(bad.parse::<DhcpMode>().is_err(), "{bad}");
        }
    }
}
