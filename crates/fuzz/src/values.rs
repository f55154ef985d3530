//! Values on command lines and in configuration files, each kind by itself.
//!
//! Promises: text is a value or a refusal with a hint; a value that can be written is read again as
//! the same.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use vfield_bench::values::nbd_uri::NbdUri;
use vfield_bench::values::rate::Rate;
use vfield_cli::values::access::Access;
use vfield_cli::values::boost::Boost;
use vfield_cli::values::zone::ZoneChoice;
use vfield_console::failure::BadValue;
use vfield_console::values::address::Address;
use vfield_console::values::duration::{Period, Timeout};
use vfield_console::values::size::{self, Size};
use vfield_control::values::endpoint::Endpoint;
use vfield_core::names::is_image_name;
use vfield_daemon::values::image::{ImageName, Wanted};
use vfield_daemon::values::overlay::OverlayPlace;
use vfield_daemon::values::store::Store;
use vfield_netboot::values::dhcp::DhcpMode;
use vfield_netboot::values::machine::{Choice, Mac, Tag};

/// The first byte: of which kind the rest is.
pub fn target(bytes: &[u8]) {
    let Some((kind, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match kind % 17 {
        0 => drop(read::<Access>(text)),
        1 => same::<Address>(text),
        2 => drop(read::<Boost>(text)),
        3 => drop(read::<DhcpMode>(text)),
        4 => drop(read::<Period>(text)),
        5 => drop(read::<Timeout>(text)),
        6 => same::<Endpoint>(text),
        7 => assert!(read::<ImageName>(text).is_none_or(|name| is_image_name(&name.0))),
        8 => drop(read::<Wanted>(text)),
        9 => same::<Mac>(text),
        10 => drop((read::<Choice<Mac>>(text), read::<Choice<Tag>>(text))),
        11 => drop(read::<NbdUri>(text)),
        12 => same::<OverlayPlace>(text),
        13 => drop(read::<Rate>(text)),
        14 => {
            if let Some(Size(bytes)) = read::<Size>(text) {
                assert_eq!(read::<Size>(&bytes.to_string()), Some(Size(bytes)));
                assert!(!size::human(bytes).is_empty());
            }
        }
        15 => drop(read::<Store>(text)),
        _ => drop(read::<ZoneChoice>(text)),
    }
}

fn read<T: FromStr<Err = BadValue>>(text: &str) -> Option<T> {
    text.parse()
        .inspect_err(|bad: &BadValue| assert!(!bad.fact.is_empty() && !bad.hint.is_empty(), "{text:?}: {bad:?}"))
        .ok()
}

/// For values that are shown as they are typed.
fn same<T: FromStr<Err = BadValue> + Display + Debug + PartialEq>(text: &str) {
    if let Some(value) = read::<T>(text) {
        assert_eq!(read::<T>(&value.to_string()).as_ref(), Some(&value), "{text:?}");
    }
}

/// One of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "os=10.0.0.0/8",
        "[fe80::1]:4000",
        "random",
        "192.168.1.100-192.168.1.200",
        "1.5s",
        "never",
        "unix:/run/nbd",
        "viver.squash",
        "0123456789abcdef",
        "52:54:00:12:34:56",
        "52:54:00:12:34:56=os",
        "nbd+unix:///os%20v1?socket=/run/a%3fb",
        "ram",
        "100M",
        "1.5GiB",
        "30%",
        "rack-7",
    ];
    texts.iter().enumerate().map(|(kind, text)| [&[kind as u8], text.as_bytes()].concat()).collect()
}
