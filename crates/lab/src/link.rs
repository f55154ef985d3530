//! A host's link: its rate in each direction, and its traffic.

use crate::LabError;
use crate::process::run;
use std::collections::BTreeMap;
use std::process::Command;

/// Largest burst of a token bucket. It must hold one super-packet, or the bucket cuts packets up in
/// software.
const BURST_BYTES: u64 = 64 << 10;
/// Largest super-packet on a shaped link: smaller makes the rate smoother and costs more of the
/// processor.
const GSO_BYTES: u64 = 16 << 10;
const _: () = assert!(GSO_BYTES <= BURST_BYTES);
/// Maximum queue of a direction, in milliseconds of its rate: a switch port's buffer.
const BUFFER_MS: u64 = 50;

/// The kind of link that a host gets: a rate in kbit/s in each direction; `None`: as fast as the
/// machine is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Towards the host.
    pub down_kbit: Option<u64>,
    /// Out of the host.
    pub up_kbit: Option<u64>,
}

impl Link {
    /// A link without a limit.
    pub const FAST: Self = Self { down_kbit: None, up_kbit: None };

    /// A link with a rate, in Mbit/s, for each direction on its own.
    pub const fn mbit(mbit: u64) -> Self {
        Self::kbit(mbit * 1000, mbit * 1000)
    }

    /// A link with a rate for each direction, in kbit/s.
    pub const fn kbit(down: u64, up: u64) -> Self {
        Self { down_kbit: Some(down), up_kbit: Some(up) }
    }

    /// The same link at a part of its rates; a direction without a limit stays as it is.
    #[must_use]
    pub fn slower(self, factor: u64) -> Self {
        let slower = |kbit: Option<u64>| kbit.map(|kbit| (kbit / factor.max(1)).max(1));
        Self { down_kbit: slower(self.down_kbit), up_kbit: slower(self.up_kbit) }
    }

    /// Puts the downlink's token bucket on the switch's device.
    pub(crate) fn shape_down(self, switch: &str, device: &str) -> Result<(), LabError> {
        self.down_kbit.map_or(Ok(()), |kbit| Self::shape(kbit, switch, device))
    }

    /// Puts the uplink's token bucket on the host's device.
    pub(crate) fn shape_up(self, host: &str, device: &str) -> Result<(), LabError> {
        self.up_kbit.map_or(Ok(()), |kbit| Self::shape(kbit, host, device))
    }

    /// Puts a token bucket on what a device of a namespace sends.
    fn shape(kbit: u64, netns: &str, device: &str) -> Result<(), LabError> {
        let limit_bytes = kbit * BUFFER_MS / 8 + BURST_BYTES;
        let (rate, burst, limit, gso) =
            (format!("{kbit}kbit"), BURST_BYTES.to_string(), limit_bytes.to_string(), GSO_BYTES.to_string());
        run(Command::new("ip").args(["-n", netns, "link", "set", device, "gso_max_size", &gso]))?;
        run(Command::new("tc")
            .args(["-n", netns, "qdisc", "replace", "dev", device, "root", "tbf"])
            .args(["rate", &rate, "burst", &burst, "limit", &limit]))?;
        Ok(())
    }
}

/// Bytes over a host's link so far, headers included, as the switch saw them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// From the host.
    pub sent_bytes: u64,
    /// To the host.
    pub received_bytes: u64,
}

impl Counters {
    /// Reads the counters of the switch's side of a link.
    pub(crate) fn of_port(switch: &str, port: &str) -> Result<Self, LabError> {
        let text = run(Command::new("ip").args(["-n", switch, "-s", "-j", "link", "show", "dev", port]))?;
        Ok(parse(&text).first().map_or_else(Self::default, |(_, counters)| *counters))
    }

    /// Reads the counters of all of a switch's devices, with their names.
    pub(crate) fn of_switch(switch: &str) -> Result<BTreeMap<String, Self>, LabError> {
        let text = run(Command::new("ip").args(["-n", switch, "-s", "-j", "link"]))?;
        Ok(parse(&text).into_iter().collect())
    }
}

/// What `ip -s -j link` prints.
fn parse(text: &str) -> Vec<(String, Counters)> {
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let devices = json.as_array().into_iter().flatten();
    let counters = |device: &serde_json::Value| {
        let bytes = |way: &str| device["stats64"][way]["bytes"].as_u64().unwrap_or_default();
        let name = device["ifname"].as_str().unwrap_or_default().to_owned();
        (name, Counters { sent_bytes: bytes("rx"), received_bytes: bytes("tx") })
    };
    devices.map(counters).collect()
}
