//! The disk of a node's stores, out of its options.

use std::num::NonZeroU64;
use vfield_console::failure::Failure;
use vfield_console::values::size::Size;
use vfield_daemon::values::disk::Disk;
use vfield_node::config::DiskConfig;

/// The disk, if there is to be one, and what it takes in a day.
pub fn plan(disk: Option<Disk>, each_day: Option<Size>) -> Result<Option<DiskConfig>, Failure> {
    let Some(Size(bytes)) = each_day else { return Ok(disk.map(|disk| disk.0)) };
    let Some(Disk(disk)) = disk else {
        let failure = Failure::usage("--disk-writes needs --disk: a store in memory writes nothing");
        return Err(failure.hint("say where the stores lie: --disk DIR:SIZE"));
    };
    let Some(bytes) = NonZeroU64::new(bytes) else {
        let failure = Failure::usage("--disk-writes: a store that takes in nothing is none");
        return Err(failure.hint("give the bytes of a day, such as 20G, or hold nothing with --store 0"));
    };
    Ok(Some(DiskConfig { each_day_bytes: Some(bytes), ..disk }))
}
