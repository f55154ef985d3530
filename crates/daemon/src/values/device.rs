//! By which of the kernel's drivers images become block devices.

use clap::ValueEnum;
use serde::Deserialize;

/// A driver, or the choice of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// ublk if the kernel has it, else its NBD client.
    Auto,
    /// The io_uring block driver.
    Ublk,
    /// The NBD client.
    Nbd,
}
