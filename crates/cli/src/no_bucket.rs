//! `vfield publish FILE URL` of a program that was built without the feature `buckets`, as that for
//! an initramfs is. It has no command `vfield bucket`.

use crate::args::PublishOptions;
use crate::refusal::SMALL;
use vfield_console::failure::Failure;
use vfield_console::volume::Volume;

/// Refuses `vfield publish FILE URL`.
pub fn publish(_: &PublishOptions, _: Volume) -> Result<(), Failure> {
    Err(missing())
}

/// There is no place for a packed image.
pub fn missing() -> Failure {
    Failure::usage("this program was built without buckets").hint(SMALL)
}
