//! The network between machines: packets, their cost, and their time on the way.
//!
//! Each machine has a port with a rate for each direction; outgoing packets are queued by priority.
//! Links cut through: the first byte of a message goes on as soon as it has arrived. Zones have
//! uplinks that all their machines share. Short messages do not wait behind chunks, as on links
//! with short, fair queues; they take their share of the rate all the same.

pub mod packet;
pub mod port;
pub mod walls;

pub use packet::{Message, Packet, Packets};
pub use port::{Pipe, Port};
pub use walls::Walls;

use clap::ValueEnum;
use std::time::Duration;
use vfield_core::placement::map::mix;
use vfield_weather as weather;

/// Bytes a second of Gigabit Ethernet.
pub const GIGABIT: u64 = 125_000_000;

/// In which order messages leave a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// First come, first served, whatever the receiver.
    Fifo,
    /// Connections share the link fairly, message by message; of one connection the more urgent
    /// goes first. So it is on machines with TCP.
    Fair,
}

/// The rates of a machine's link, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Out of the machine.
    pub up: u64,
    /// Towards the machine.
    pub down: u64,
}

impl Rates {
    /// The rates of this link at a part of its rate, for each direction.
    #[must_use]
    pub fn divided(self, up: u64, down: u64) -> Self {
        Self { up: (self.up / up.max(1)).max(1), down: (self.down / down.max(1)).max(1) }
    }
}

/// What the network cards say of their links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Cards {
    /// Nothing, as in most virtual machines
    #[default]
    Silent,
    /// What the link carries, as where a cable is bad
    True,
    /// What most links of the room carry, as where the network behind is slow
    Same,
    /// By machine, one of these
    Mixed,
}

/// The properties of the links.
#[derive(Debug, Clone)]
pub struct Links {
    /// Bytes a second of each machine's link, in each direction, unless [`Links::own`] says
    /// otherwise; of machines that are started from now on.
    pub rate: u64,
    /// The links of unequal machines, by place.
    pub own: weather::Links,
    /// The seed of those that are drawn.
    pub seed: u64,
    /// What the machines' network cards say.
    pub cards: Cards,
    /// What the machines remember that their links carry.
    pub remembered: Cards,
    /// True if operators bound what machines send at what their way out carries.
    pub limited: bool,
    /// Bytes that pass a machine's link at once after idle time, in each direction; 0: a link that
    /// has been idle is no faster.
    pub burst: u64,
    /// From one end to the other, for one bit.
    pub delay: Duration,
    /// Most additional delay, drawn for each message.
    pub jitter: Duration,
    /// In which order messages leave.
    pub discipline: Discipline,
    /// Percentage of lost datagrams.
    pub loss_percent: u64,
    /// Bytes of headers for each packet on the wire; none if `packet_payload` is 0.
    pub packet_headers: u64,
    /// Bytes of payload in a full packet.
    pub packet_payload: u64,
    /// Machines of each zone; 0: all are in one.
    pub zone_size: usize,
    /// Bytes a second of each zone's uplink, in each direction.
    pub zone_rate: u64,
    /// Additional delay of a message between zones.
    pub zone_delay: Duration,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            rate: GIGABIT,
            own: weather::Links::default(),
            seed: 0,
            cards: Cards::Silent,
            remembered: Cards::Silent,
            limited: false,
            burst: 0,
            delay: Duration::from_micros(150),
            jitter: Duration::from_micros(100),
            discipline: Discipline::Fifo,
            loss_percent: 0,
            packet_headers: 0,
            packet_payload: 0,
            zone_size: 0,
            zone_rate: 10 * GIGABIT,
            zone_delay: Duration::from_micros(100),
        }
    }
}

impl Links {
    /// Ethernet with IPv4, TCP and its timestamps: 1448 of the 1514 bytes that a shaper counts are
    /// payload.
    pub const ETHERNET: (u64, u64) = (66, 1448);

    /// Bytes that `bytes` of payload take on the wire.
    pub const fn on_the_wire(&self, bytes: u64) -> u64 {
        if self.packet_payload == 0 { bytes } else { bytes + bytes.div_ceil(self.packet_payload) * self.packet_headers }
    }

    /// The rates of the link at a place.
    pub fn rates(&self, place: u32) -> Rates {
        self.own.of(place as usize).map_or(Rates { up: self.rate, down: self.rate }, |link| {
            let weather::Rates { down, up } = link.rates(place as usize, self.seed);
            Rates { up: up.bytes(), down: down.bytes() }
        })
    }

    /// What the network card of a place says that its link carries.
    pub fn card(&self, place: u32) -> Option<u64> {
        let Rates { up, down } = self.rates(place);
        self.said(self.cards, up.min(down), place)
    }

    /// What an earlier process at a place measured.
    pub fn measured(&self, place: u32) -> Option<u64> {
        // In a mixed room it is not the same machines whose cards are wrong.
        self.said(self.remembered, self.rates(place).down, !place)
    }

    fn said(&self, by: Cards, carries: u64, place: u32) -> Option<u64> {
        match by {
            Cards::Silent => None,
            Cards::True => Some(carries),
            Cards::Same => Some(self.rate),
            Cards::Mixed => [None, Some(carries), Some(self.rate)][mix(u64::from(place) ^ self.seed) as usize % 3],
        }
    }

    /// What an operator lets the machine at a place send.
    pub fn limit(&self, place: u32) -> Option<u64> {
        let Rates { up, down } = self.rates(place);
        (self.limited && up < down).then_some(up)
    }

    /// The zone of a place.
    pub fn zone(&self, place: u32) -> u32 {
        (place.saturating_sub(1) as usize).checked_div(self.zone_size).unwrap_or(0) as u32
    }
}

/// The time of this many bytes at this rate in bytes per second.
pub const fn takes(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(bytes * 1_000_000_000 / rate)
}
