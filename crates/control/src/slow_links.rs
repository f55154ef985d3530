//! Links of a field that are slower than those of the other nodes, in words for people.

use std::fmt;
use vfield_console::text::clean;

/// A link is slow from this part of the middle one's rate on. Measurements of equal links differ by
/// less.
const SLOW_PART: u64 = 2;

/// A link that is slower than those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowLink<'a> {
    /// The address of its node.
    pub addr: &'a str,
    /// Its rate in bytes a second.
    pub bytes_per_s: u64,
    /// The rate of the link in the middle.
    pub usual_bytes_per_s: u64,
}

/// Links at most half as fast as the one in the middle, the slowest first.
pub fn slow_links<'a>(links: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<SlowLink<'a>> {
    let mut links: Vec<(&str, u64)> = links.into_iter().collect();
    links.sort_unstable_by_key(|(_, rate)| *rate);
    let Some(&(_, usual_bytes_per_s)) = links.get(links.len() / 2) else { return Vec::new() };
    let slow = links.into_iter().take_while(|(_, rate)| rate.saturating_mul(SLOW_PART) <= usual_bytes_per_s);
    slow.map(|(addr, bytes_per_s)| SlowLink { addr, bytes_per_s, usual_bytes_per_s }).collect()
}

impl fmt::Display for SlowLink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |rate: u64| rate as f64 * 8.0 / 1e6;
        let (own, others) = (mbit(self.bytes_per_s), mbit(self.usual_bytes_per_s));
        let addr = clean(self.addr);
        write!(f, "{addr} has a link of {own:.0} Mbit/s, others {others:.0}: cable, port or load?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_half_the_middle_one_is_slow() {
        let slow = |rates: &[u64]| {
            let links = rates.iter().map(|mbit| ("198.18.0.3:4440", mbit * 125_000));
            slow_links(links).iter().map(SlowLink::to_string).collect::<Vec<_>>()
        };
        let line = "198.18.0.3:4440 has a link of 10 Mbit/s, others 90: cable, port or load?";
        assert_eq!(slow(&[94, 90, 10, 50]), [line]);
        assert_eq!(slow(&[94, 90, 45]), ["198.18.0.3:4440 has a link of 45 Mbit/s, others 90: cable, port or load?"]);
        assert!(slow(&[94, 90, 46]).is_empty() && slow(&[10]).is_empty() && slow(&[]).is_empty());
        assert_eq!(slow(&[94, 94, 94, 94, 9, 4, 30]).len(), 3);
    }
}
