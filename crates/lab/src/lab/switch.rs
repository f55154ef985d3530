//! A switch: a bridge in a network namespace of its own, so that nothing of the machine is near it.

use crate::LabError;
use crate::link::{Counters, Link};
use crate::process::run;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;

/// A switch forwards frames and does not read them; a machine that has a firewall for its bridges
/// would look at each as at a packet of its own.
const NO_FIREWALL: &str = "for call in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $call ] || echo 0 >$call; done";

/// Most times that a switch is told where frames go. A packet gets in between now and then.
const TRIES: usize = 10;

/// A switch, by the name of its namespace; that goes with the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Switch {
    pub netns: String,
}

impl Switch {
    /// Makes a switch in `netns`.
    pub fn make(netns: String) -> Result<Self, LabError> {
        run(Command::new("ip").args(["netns", "add", &netns]))?;
        // Not `ip netns exec`: that also copies the mount namespace, and what another test unmounts
        // meanwhile stays mounted.
        let inside = format!("--net=/run/netns/{netns}");
        run(Command::new("nsenter").args([&inside, "--", "sh", "-ec", NO_FIREWALL]))?;
        let switch = Self { netns };
        switch.ip("link set lo up")?;
        switch.ip("link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0")?;
        switch.ip("link set br0 up")?;
        Ok(switch)
    }

    /// Makes a host's namespace and its link, which ends here in a port.
    pub fn plug_in(&self, host: &str, port: &str, addr: Ipv4Addr, link: Link) -> Result<(), LabError> {
        run(Command::new("ip").args(["netns", "add", host]))?;
        self.ip(&format!("link add {port} type veth peer name eth0 netns {host}"))?;
        self.ip(&format!("link set {port} master br0 up"))?;
        ip(host, "link set lo up")?;
        ip(host, "link set eth0 up")?;
        ip(host, &format!("addr add {addr}/24 broadcast + dev eth0"))?;
        self.shape(port, link)?;
        link.shape_up(host, "eth0")
    }

    /// Connects another switch, whose `uplink` leads to a port of this one.
    pub fn connect(&self, other: &Self, port: &str, link: Link) -> Result<(), LabError> {
        self.ip(&format!("link add {port} type veth peer name uplink netns {}", other.netns))?;
        self.ip(&format!("link set {port} master br0 up"))?;
        other.ip("link set uplink master br0 up")?;
        self.shape(port, link)?;
        link.shape_up(&other.netns, "uplink")
    }

    /// Sets the rate at which a port sends: the downlink of the host behind it.
    pub fn shape(&self, port: &str, link: Link) -> Result<(), LabError> {
        link.shape_down(&self.netns, port)
    }

    /// Takes a port away, or gives it back.
    pub fn set_port(&self, port: &str, up: bool) -> Result<(), LabError> {
        self.ip(&format!("link set {port} {}", if up { "up" } else { "down" }))
    }

    /// Leads frames for the hardware `address` to another port than `but`, until
    /// [`Switch::forward_rightly`].
    pub fn forward_wrongly(&self, address: &str, but: &str) -> Result<(), LabError> {
        let other = self.other(but)?;
        let there = format!("dev {other} ");
        let mut told = String::new();
        for _ in 0..TRIES {
            // Sticky, or the switch would learn better from the first packet that the host sends.
            self.bridge(&["replace", address, "dev", &other, "master", "static", "sticky"])?;
            // It learns all the same from a packet that comes before the entry is sticky.
            told = self.bridge(&["get", address, "br", "br0"])?;
            if told.contains(&there) {
                return Ok(());
            }
        }
        Err(LabError::Command { command: format!("bridge fdb replace {address} dev {other}"), why: told })
    }

    /// Leads them to the host again: the switch learns its port from the next packet.
    pub fn forward_rightly(&self, address: &str, but: &str) -> Result<(), LabError> {
        self.bridge(&["del", address, "dev", &self.other(but)?, "master", "static"]).map(drop)
    }

    fn other(&self, but: &str) -> Result<String, LabError> {
        let ports = self.ports()?;
        let other = ports.keys().find(|port| !["lo", "br0", but].contains(&port.as_str()));
        Ok(other.expect("a switch has two ports").clone())
    }

    fn bridge(&self, words: &[&str]) -> Result<String, LabError> {
        run(Command::new("bridge").args(["-n", &self.netns, "fdb"]).args(words))
    }

    /// Traffic of a port.
    pub fn port(&self, port: &str) -> Result<Counters, LabError> {
        Counters::of_port(&self.netns, port)
    }

    /// Traffic of each port.
    pub fn ports(&self) -> Result<BTreeMap<String, Counters>, LabError> {
        Counters::of_switch(&self.netns)
    }

    fn ip(&self, line: &str) -> Result<(), LabError> {
        ip(&self.netns, line)
    }
}

/// Runs `ip` in a namespace.
pub(super) fn ip(netns: &str, line: &str) -> Result<(), LabError> {
    run(Command::new("ip").args(["-n", netns]).args(line.split(' '))).map(drop)
}
