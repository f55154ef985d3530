//! Options of `vfield booted`.

use crate::booted::Report;
use clap::Args;
use vfield_console::values::duration::Period;

/// Options of `vfield booted`.
#[derive(Debug, Args)]
pub struct BootedOptions {
    /// Whom to tell: what `vfield netboot` gave the machine as vfield.booted=
    #[arg(value_name = "URL")]
    pub report: Report,
    /// Time to wait first, in which a failing system has failed
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub after: Period,
}
