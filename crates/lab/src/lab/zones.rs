//! A lab of zones: the hosts of each have a switch and a subnet of their own, behind one link to
//! all others.

use super::switch::{Switch, ip};
use super::{HOSTS_MAX, Lab, PORT};
use crate::LabError;
use crate::link::{Counters, Link};
use std::net::{Ipv4Addr, SocketAddr};

/// Every network of a lab is part of this one (RFC 2544: kept for measuring); no router is needed
/// inside it.
const ALL: &str = "198.18.0.0/15";

impl Lab {
    /// Zones of `size` hosts each; the hosts are numbered through. Zone `z` has the subnet
    /// 198.18.z.0/24, host by host its `link`, and an `uplink` that its hosts share, the same both
    /// ways.
    ///
    /// # Errors
    /// Those of [`Lab::namespaces`].
    pub fn zones(zones: usize, size: usize, link: Link, uplink: Link) -> Result<Self, LabError> {
        assert!(zones * size <= HOSTS_MAX, "a lab has at most {HOSTS_MAX} hosts");
        let mut lab = Self::start()?;
        let tag = lab.tag().to_owned();
        let core = Switch::make(format!("{tag}-sw"))?;
        let switches = (0..zones).map(|zone| {
            let switch = Switch::make(format!("{tag}-z{zone}"))?;
            core.connect(&switch, &port_of(zone), uplink)?;
            Ok(switch)
        });
        let switches: Vec<Switch> = switches.collect::<Result<_, LabError>>()?;
        let octet = |number: usize| u8::try_from(number).expect("bounded by HOSTS_MAX");
        lab.add_hosts(zones * size, |index| {
            let (zone, netns) = (index / size, format!("{tag}-{index}"));
            let addr = Ipv4Addr::new(198, 18, octet(zone), octet(index % size + 1));
            let switch = switches[zone].clone();
            switch.plug_in(&netns, &format!("p{index}"), addr, link)?;
            ip(&netns, &format!("route add {ALL} dev eth0"))?;
            Ok((Some((netns, switch)), SocketAddr::from((addr, PORT))))
        })?;
        lab.core = Some(core);
        Ok(lab)
    }

    /// Traffic of the link that the hosts of a zone share: sent by the zone, and received by it.
    ///
    /// # Panics
    /// On a lab without zones.
    pub fn uplink(&self, zone: usize) -> Result<Counters, LabError> {
        self.core.as_ref().expect("a lab of zones").port(&port_of(zone))
    }
}

/// The core switch's port of a zone.
fn port_of(zone: usize) -> String {
    format!("z{zone}")
}
