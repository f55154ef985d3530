//! Which images a client over TCP may see, by the network that it comes from.
//!
//! Owns the rules and how they are written, `[IMAGE=]NETWORK`. Without a rule all is there for
//! everybody. With one, an image is there for clients from the networks of the rules that speak of
//! it, or of all images, and for nobody else: one of which no rule speaks is there for nobody. Unix
//! sockets have permissions instead. An address proves nothing on a network where others can take
//! it: certificates do.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses, `10.1.0.0/16`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    addr: IpAddr,
    bits: u8,
}

/// Text that is no [`Rule`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a network, like 192.168.1.0/24, 10.0.0.7 or fd00::/8")]
pub struct BadNetwork(pub String);

impl Network {
    /// True if it has this address.
    pub fn contains(&self, addr: IpAddr) -> bool {
        let bits = |addr: IpAddr| match addr {
            IpAddr::V4(addr) => (u128::from(addr.to_bits()) << 96, 32),
            IpAddr::V6(addr) => (addr.to_bits(), 128),
        };
        // An IPv4 client of an IPv6 socket counts as IPv4.
        let ((net, kind), (addr, other)) = (bits(self.addr), bits(addr.to_canonical()));
        let differ = (net ^ addr).checked_shr(128 - u32::from(self.bits)).unwrap_or(0);
        kind == other && differ == 0
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (addr, bits) = text.split_once('/').map_or((text, None), |(addr, bits)| (addr, Some(bits)));
        let addr: IpAddr = addr.parse().map_err(|_| bad())?;
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| bad()))?;
        if bits <= most { Ok(Self { addr, bits }) } else { Err(bad()) }
    }
}

/// One line of an access list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which image; all if none is named.
    pub image: Option<String>,
    /// From where it may be read.
    pub network: Network,
}

impl FromStr for Rule {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        // A network has no `=` in it, and a name may.
        let (image, network) = text.rsplit_once('=').map_or((None, text), |(image, network)| (Some(image), network));
        Ok(Self { image: image.map(str::to_owned), network: network.parse()? })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = self.image.as_ref().map(|image| format!("{image}=")).unwrap_or_default();
        write!(f, "{image}{}/{}", self.network.addr, self.network.bits)
    }
}

/// True if a client at `addr` may see the image of these names.
pub(super) fn allows(rules: &[Rule], names: &[&str], addr: IpAddr) -> bool {
    let speaks = |rule: &&Rule| rule.image.as_deref().is_none_or(|image| names.contains(&image));
    rules.is_empty() || rules.iter().filter(speaks).any(|rule| rule.network.contains(addr))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_have_the_addresses_that_they_should() {
        let has = |network: &str, addr: &str| network.parse::<Network>().unwrap().contains(ip(addr));
        assert!(has("192.168.1.0/24", "192.168.1.255") && !has("192.168.1.0/24", "192.168.2.0"));
        assert!(has("10.0.0.7", "10.0.0.7") && !has("10.0.0.7", "10.0.0.6"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1") && !has("::/0", "1.2.3.4"));
        assert!(has("192.168.0.0/16", "::ffff:192.168.3.4"));
        assert!(has("fd00::/8", "fdff::1") && !has("fd00::/8", "fe00::1") && has("::1", "::1"));
    }

    #[test]
    fn an_image_is_there_for_those_of_its_rules() {
        let some = rules(&["secret.img=10.0.0.0/8", "secret.img=::1"]);
        let secret = ["other name", "secret.img"];
        assert!(allows(&some, &secret, ip("10.1.1.1")) && allows(&some, &secret, ip("::1")));
        assert!(!allows(&some, &secret, ip("11.1.1.1")), "by whatever name");
        assert!(!allows(&some, &["other.img"], ip("10.1.1.1")), "no rule speaks of it");
        let all = rules(&["10.0.0.0/8", "a=b=11.0.0.0/8"]);
        assert!(allows(&all, &["x"], ip("10.1.1.1")) && !allows(&all, &["x"], ip("11.1.1.1")));
        assert!(allows(&all, &["a=b"], ip("11.1.1.1")) && allows(&[], &["x"], ip("1.1.1.1")));
        assert_eq!(all[1].to_string(), "a=b=11.0.0.0/8");
    }

    #[test]
    fn what_is_no_network_is_told_so() {
        for text in ["", "x", "10.0.0.0/33", "10.0.0.0/", "::/129", "a=", "10.0.0/8", "10.0.0.0/-1"] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }
}
