//! The part of the command line about starting machines over the network.

use crate::booted::Report;
use crate::values::dhcp::DhcpMode;
use crate::values::machine::{Choice, Mac, Tag};
use clap::{Args, ValueHint};
use vfield_console::values::address::Address;
use vfield_console::values::duration::Period;
use vfield_control::args::ControlOptions;

/// Below the help of `vfield netboot`.
pub const EXAMPLES: &str = "\
Examples:
  vfield serve root.squashfs vmlinuz initrd --listen 192.168.1.1
  vfield netboot root.squashfs                          beside any node that has all three images
  vfield netboot root.squashfs --append \"vfield.store=128M vfield.join_boost=random\"
  vfield netboot root.squashfs --dhcp 192.168.1.100-192.168.1.200     on a network without a DHCP server
  vfield netboot stable --tag stable=root.squashfs --machine 52:54:00:12:34:56=exam.squashfs
  vfield netboot prod                                   the version that the field's tag names at each boot";

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

/// Options of `vfield netboot`.
#[derive(Debug, Args)]
pub struct NetbootOptions {
    /// Root image of the machines, or a tag: one of --tag, or one of the field
    #[arg(value_name = "IMAGE|TAG")]
    pub image: String,
    /// Kernel: an image of the daemon, or a file (with a slash in its name)
    #[arg(long, value_name = "IMAGE|FILE", default_value = "vmlinuz", value_hint = ValueHint::FilePath)]
    pub kernel: String,
    /// Initramfs: an image of the daemon, or a file
    #[arg(long, value_name = "IMAGE|FILE", default_value = "initrd", value_hint = ValueHint::FilePath)]
    pub initrd: String,
    /// Another image for the machine with this network card. May be repeated
    #[arg(long, value_name = "MAC=IMAGE|TAG")]
    pub machine: Vec<Choice<Mac>>,
    /// Tag of an image, for --machine and /tag/TAG.ipxe. May be repeated
    #[arg(long, value_name = "TAG=IMAGE")]
    pub tag: Vec<Choice<Tag>>,
    /// Additional kernel parameters, such as "vfield.store=128M vfield.join_boost=random"
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// Listen address of HTTP [default: the daemon's address, port 4480]
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub listen: Option<Address>,
    /// Mode of dnsmasq. proxy: beside a DHCP server. none: not started. FIRST-LAST: assigns these
    /// addresses
    #[arg(long, value_name = "proxy|none|FIRST-LAST", default_value = "proxy", help_heading = "Network")]
    pub dhcp: DhcpMode,
    /// Print dnsmasq's configuration and exit
    #[arg(long)]
    pub print: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}
