//! `vfield publish FILE URL` and `vfield bucket` of a program that was built without the feature
//! `buckets`.

use crate::args::{BucketOptions, PublishOptions};
use vfield_console::failure::Failure;
use vfield_console::volume::Volume;

/// Refuses `vfield publish FILE URL`.
pub fn publish(_: &PublishOptions, _: Volume) -> Result<(), Failure> {
    Err(missing())
}

/// Refuses `vfield bucket`.
pub fn run(_: &BucketOptions) -> Result<(), Failure> {
    Err(missing())
}

/// There is no place for a packed image.
pub fn missing() -> Failure {
    Failure::usage("this program was built without buckets").hint("build it with the feature `buckets`")
}
