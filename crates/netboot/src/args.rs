//! The part of the command line about starting machines over the network.

use crate::values::dhcp::DhcpMode;
use crate::values::machine::{Choice, Mac, Tag};
use clap::{Args, ValueHint};
use vfield_console::values::address::Address;
use vfield_control::args::ControlOptions;

/// Below the help of `vfield netboot`.
pub const EXAMPLES: &str = "\
Examples:
  vfield serve root.squashfs vmlinuz initrd --listen 192.168.1.1
  vfield netboot root.squashfs                          beside it; or beside any node that has joined
                                                        all three
  vfield netboot root.squashfs --append \"vfield.store=128M vfield.join_boost=random\"
  vfield netboot root.squashfs --dhcp 192.168.1.100-192.168.1.200     where nobody gives addresses
  vfield netboot stable --tag stable=root.squashfs --machine 52:54:00:12:34:56=exam.squashfs";

/// `vfield netboot`.
#[derive(Debug, Args)]
pub struct NetbootOptions {
    /// The image that machines have as their root, or a tag
    #[arg(value_name = "IMAGE|TAG")]
    pub image: String,
    /// The kernel: an image of the daemon, or a file (with a slash in its name)
    #[arg(long, value_name = "IMAGE|FILE", default_value = "vmlinuz", value_hint = ValueHint::FilePath)]
    pub kernel: String,
    /// The initramfs, likewise
    #[arg(long, value_name = "IMAGE|FILE", default_value = "initrd", value_hint = ValueHint::FilePath)]
    pub initrd: String,
    /// Give the machine with this network card another image; may be repeated
    #[arg(long, value_name = "MAC=IMAGE|TAG")]
    pub machine: Vec<Choice<Mac>>,
    /// Another name for an image: for --machine, and for /tag/TAG.ipxe; may be repeated
    #[arg(long, value_name = "TAG=IMAGE")]
    pub tag: Vec<Choice<Tag>>,
    /// More words for the kernel, such as "vfield.store=128M vfield.join_boost=random"
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// Where to serve HTTP [default: the address of the daemon, port 4480]
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub listen: Option<Address>,
    /// What dnsmasq does: proxy (beside a DHCP server), none (it does not run), or FIRST-LAST (it
    /// gives these addresses)
    #[arg(long, value_name = "proxy|none|FIRST-LAST", default_value = "proxy", help_heading = "Network")]
    pub dhcp: DhcpMode,
    /// Print dnsmasq's configuration instead
    #[arg(long)]
    pub print: bool,
    /// Which daemon.
    #[command(flatten)]
    pub control: ControlOptions,
}
