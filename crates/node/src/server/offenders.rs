//! Offenders: addresses whose connections broke the protocol recently.
//!
//! A connection that a peer opened proves nothing about the node id in its greeting. So its
//! misconduct ends the connection and is charged to the source address; the core never hears of it.
//!
//! An address is not a node: a loopback demo or a NAT puts a whole field behind one. So an address
//! is never banned. Its next connections are greeted at once and wait a little before they are
//! served. The wait is shorter than a peer's patience, so an honest node behind the same address
//! loses a tenth of a second for each new connection. In that time an attacker can send only as
//! many broken frames as the address has places ([`super::gate`]).
//!
//! Invariant: at most [`OFFENDERS_MAX`] addresses are remembered, each for [`REMEMBER`] after its
//! last offence. The driver owns it; the accepting side calls it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vfield_core::doubling::Doubling;

/// Wait of the first connection after the first offence; doubled with each offence. The longest is
/// a third of the silence after which a reader asks another peer (`HEDGE_AFTER`, 300 ms). A longer
/// one would let an attacker behind the same address delay honest reads.
const PAUSE: Doubling = Doubling { first: Duration::from_millis(2), longest: Duration::from_millis(100) };
/// How long an offence of an address is remembered.
const REMEMBER: Duration = Duration::from_secs(30);
/// Most remembered addresses, 64 KiB of memory; the one whose last offence is oldest makes room.
const OFFENDERS_MAX: usize = 1024;

const _: () = assert!(PAUSE.longest.as_millis() * 3 <= vfield_core::tuning::HEDGE_AFTER.as_millis());

/// The offences of each address.
#[derive(Debug, Default)]
pub struct Offenders(Mutex<HashMap<IpAddr, Offence>>);

#[derive(Debug, Clone, Copy)]
struct Offence {
    times: u32,
    last: Instant,
}

impl Offenders {
    /// A connection from this address broke the protocol.
    pub fn charge(&self, ip: IpAddr, now: Instant) {
        let (mut offences, ip) = (self.offences(), origin_of(ip));
        offences.retain(|_, offence| now.duration_since(offence.last) < REMEMBER);
        if offences.len() >= OFFENDERS_MAX && !offences.contains_key(&ip) {
            let oldest = offences.iter().min_by_key(|(_, offence)| offence.last).map(|(ip, _)| *ip);
            oldest.map(|ip| offences.remove(&ip));
        }
        let offence = offences.entry(ip).or_insert(Offence { times: 0, last: now });
        *offence = Offence { times: offence.times.saturating_add(1), last: now };
    }

    /// The pause before a new connection from this address is served.
    pub fn pause(&self, ip: IpAddr, now: Instant) -> Duration {
        let offence = self.offences().get(&origin_of(ip)).copied();
        let recent = offence.filter(|offence| now.duration_since(offence.last) < REMEMBER);
        recent.map_or(Duration::ZERO, |offence| PAUSE.pause(offence.times - 1))
    }

    fn offences(&self) -> MutexGuard<'_, HashMap<IpAddr, Offence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of an address that a host cannot change at will: of IPv6, the network of 64 bits.
fn origin_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offences_cost_more_and_more_and_never_much() {
        let (offenders, now) = (Offenders::default(), Instant::now());
        let (bad, good) = (IpAddr::from([198, 18, 0, 1]), IpAddr::from([198, 18, 0, 2]));
        assert_eq!(offenders.pause(bad, now), Duration::ZERO);
        let pauses = [(); 100].map(|()| {
            offenders.charge(bad, now);
            offenders.pause(bad, now)
        });
        assert_eq!(pauses[0], PAUSE.first);
        assert!(pauses.is_sorted() && pauses[99] == PAUSE.longest, "{pauses:?}");
        assert_eq!(offenders.pause(good, now), Duration::ZERO);
        assert_eq!(offenders.pause(bad, now + REMEMBER), Duration::ZERO, "it is forgotten");
    }

    #[test]
    fn a_host_with_a_network_of_addresses_is_one_offender() {
        let (offenders, now) = (Offenders::default(), Instant::now());
        offenders.charge("2001:db8:0:1::5".parse().unwrap(), now);
        assert_eq!(offenders.pause("2001:db8:0:1:ffff::1".parse().unwrap(), now), PAUSE.first);
        assert_eq!(offenders.pause("2001:db8:0:2::5".parse().unwrap(), now), Duration::ZERO);
        offenders.charge("::ffff:198.18.0.1".parse().unwrap(), now);
        assert_eq!(offenders.pause("198.18.0.1".parse().unwrap(), now), PAUSE.first);
        assert_eq!(offenders.pause("::ffff:198.18.0.2".parse().unwrap(), now), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_offence_is_forgotten_first() {
        let (offenders, now) = (Offenders::default(), Instant::now());
        let at = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..2 * OFFENDERS_MAX as u32 {
            offenders.charge(at(number), now + Duration::from_micros(number.into()));
        }
        assert_eq!(offenders.offences().len(), OFFENDERS_MAX);
        assert_eq!(offenders.pause(at(0), now), Duration::ZERO);
        assert!(!offenders.pause(at(2 * OFFENDERS_MAX as u32 - 1), now + Duration::from_secs(1)).is_zero());
    }
}
