//! Facts of a machine: plain values, each absent if the kernel does not show it.
//!
//! Made by [`crate::read`], or by a test. Nothing here is trusted to make sense, since a driver may
//! report any number.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// All that was seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Network interfaces that are up, without the loopback.
    pub links: Vec<Link>,
    /// The kernel's TCP, UDP and tables.
    pub net: Net,
    /// Firewalls that are on.
    pub firewalls: Vec<Firewall>,
    /// Processors, memory and limits.
    pub machine: Machine,
    /// What a running daemon says; `None` without one.
    pub field: Option<Field>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Link {
    /// Its name, at most 15 bytes, without a slash.
    pub name: String,
    /// The name of its driver; empty for virtual ones without a device.
    pub driver: String,
    /// Negotiated rate in Mbit/s; none for most virtual interfaces.
    pub speed_mbit: Option<u64>,
    /// The fastest rate that the interface and its partner offer, in Mbit/s.
    pub offered_mbit: Option<u64>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    /// Largest packet in bytes.
    pub mtu: Option<u64>,
    /// The NUMA node of its device; none without NUMA.
    pub numa_node: Option<u64>,
    /// How often the link went up or down.
    pub carrier_changes: Option<u64>,
    /// Packets that came since the interface is there.
    pub rx_packets: u64,
    /// Packets that came damaged.
    pub rx_crc_errors: u64,
    /// Packets lost for want of receive buffers.
    pub rx_missed: u64,
    /// Packets that were dropped on their way out.
    pub tx_dropped: u64,
    /// The processors that may take packets of each receive queue; all zeros is no RPS.
    pub rps_cpus: Vec<String>,
    /// Entries for flows of each receive queue (RFS).
    pub rps_flow_cnt: Vec<u64>,
    /// Interrupts of this interface by processor, summed over its queues.
    pub interrupts: Vec<u64>,
    /// What ethtool shows.
    pub ethtool: Ethtool,
}

impl Link {
    /// True if a device is behind it, which may be one of a virtual machine.
    pub const fn is_device(&self) -> bool {
        !self.driver.is_empty()
    }

    /// Number of receive queues.
    pub const fn rx_queues(&self) -> usize {
        self.rps_cpus.len()
    }

    /// True if packets of some queue go to several processors.
    pub fn has_rps(&self) -> bool {
        self.rps_cpus.iter().any(|mask| mask.bytes().any(|digit| digit.is_ascii_hexdigit() && digit != b'0'))
    }
}

/// What ethtool shows of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ethtool {
    /// Receive ring: entries in use, and the most.
    pub rx_ring: Option<(u64, u64)>,
    /// Combined channels in use, and the most.
    pub channels: Option<(u64, u64)>,
    /// Microseconds that an interrupt is put off.
    pub rx_usecs: Option<u64>,
    /// True if the driver chooses that time itself.
    pub adaptive_rx: Option<bool>,
    /// Generic receive offload.
    pub gro: Option<bool>,
    /// Generic segmentation offload.
    pub gso: Option<bool>,
    /// Segmentation by the interface.
    pub tso: Option<bool>,
}

/// The kernel's network stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Net {
    /// Greatest receive and send buffers of a TCP socket, in bytes.
    pub tcp_buffers_max: Option<(u64, u64)>,
    /// `cubic` or another.
    pub congestion: Option<String>,
    /// Window scaling (RFC 7323).
    pub window_scaling: Option<bool>,
    /// Selective acknowledgements (RFC 2018).
    pub sack: Option<bool>,
    /// Entries of the table of neighbours, and the hard bound of them.
    pub neighbours: Option<(u64, u64)>,
    /// Tracked connections, and the most.
    pub tracked: Option<(u64, u64)>,
    /// Entries of the table of flows (RFS).
    pub flow_entries: Option<u64>,
    /// Segments sent, and those sent again.
    pub segments: Option<(u64, u64)>,
    /// Datagrams received, and those dropped for want of buffers.
    pub datagrams: Option<(u64, u64)>,
    /// Connections that were dropped since nobody accepted them in time.
    pub listen_overflows: Option<u64>,
    /// Packets dropped since the backlog of a processor was full.
    pub backlog_dropped: Option<u64>,
    /// Packets that a processor may have waiting.
    pub backlog_max: Option<u64>,
}

/// A firewall that refuses what it does not admit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// The program that makes its rules.
    pub by: FirewallProgram,
    /// What some zone or rule of its lasting configuration admits, from whatever address.
    pub admitted: Vec<Admitted>,
}

/// A program that makes the rules of a firewall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirewallProgram {
    /// firewalld, the usual one of Fedora, RHEL and openSUSE.
    Firewalld {
        /// True if it knows the service `vfield`.
        has_service: bool,
    },
    /// ufw, the usual one of Ubuntu.
    Ufw,
}

/// Packets that come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// TCP to these ports.
    pub tcp: bool,
    /// UDP to these ports.
    pub udp: bool,
    /// Ports of this machine.
    pub ports: RangeInclusive<u16>,
}

/// Processors, memory and limits of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    /// Processors that run.
    pub cpus: usize,
    /// What the first processor can do.
    pub cpu_flags: Vec<String>,
    /// What chooses the processors' clock, and its driver.
    pub governor: Option<(String, String)>,
    /// Number of NUMA nodes; 0 if the kernel does not tell.
    pub numa_nodes: usize,
    /// `tsc` or another.
    pub clocksource: Option<String>,
    /// Bytes that programs may still take, of all.
    pub memory: Option<(u64, u64)>,
    /// Bytes of swap in use.
    pub swap_used: Option<u64>,
    /// The chosen word of huge pages for shared memory.
    pub shmem_huge: Option<String>,
    /// Most open files that a process may be given.
    pub descriptors_max: Option<u64>,
    /// Most locked bytes of a process; the largest number without a bound.
    pub locked_max: Option<u64>,
    /// Share of time in which somebody waited for a processor, in percent over 60 s.
    pub cpu_pressure: Option<f64>,
}

/// What a running daemon says of itself and its field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Field {
    /// The address that it announces.
    pub addr: Option<SocketAddr>,
    /// What its link carries, in bytes a second.
    pub link_bytes_per_s: Option<u64>,
    /// The other members: address, state, link in bytes a second.
    pub members: Vec<(String, String, Option<u64>)>,
    /// True if the field has a key.
    pub is_closed: bool,
    /// Bytes that its stores are to hold, and hold.
    pub store: (u64, u64),
    /// Chunks that readers wait for.
    pub waiting: usize,
    /// Its limits that are in force: those of the node, then those of images.
    pub limits: Vec<Limit>,
    /// What it warns of.
    pub warnings: Vec<String>,
}

/// A limit of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limit {
    /// The image whose limit it is; none for the node's.
    pub image: Option<String>,
    /// `up` or `down`.
    pub direction: &'static str,
    /// With its times of the day, as `vfield limit` takes it.
    pub setting: String,
    /// At this moment, in bytes a second.
    pub bytes_per_s: u64,
    /// For how long bytes waited for it, in seconds.
    pub held_s: f64,
}
