//! What this machine's network cards say of their links.
//!
//! A cable that has fallen back is known to its card before a byte has passed. Others know of it
//! only once they have waited for it.

use super::subnet::ip_of;
use nix::ifaddrs::getifaddrs;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// The interfaces, as the kernel shows them.
const INTERFACES: &str = "/sys/class/net";
/// Most interfaces above each other: a VLAN of a bridge of a bond of cards.
const LAYERS_MAX: u32 = 4;
/// Bytes a second of a megabit a second.
const MEGABIT: u64 = 125_000;

/// Bytes a second that the link of the interface with this address carries, as its card says;
/// `None` if nothing can be known, as in most virtual machines and on wireless links.
pub fn bytes_per_s(ip: IpAddr) -> Option<u64> {
    let mut interfaces = getifaddrs().ok()?;
    let found = interfaces.find(|interface| interface.address.and_then(ip_of) == Some(ip))?;
    // A further address may have a label of its own behind the interface's name.
    let name = found.interface_name.split(':').next()?;
    said_by(&Path::new(INTERFACES).join(name))
}

fn said_by(interface: &Path) -> Option<u64> {
    if !is_of_a_card(interface, LAYERS_MAX) {
        return None;
    }
    // -1 where the card does not know; an error where there is nothing to know, or no cable.
    let mbit: i64 = fs::read_to_string(interface.join("speed")).ok()?.trim().parse().ok()?;
    u64::try_from(mbit).ok().filter(|mbit| *mbit > 0)?.checked_mul(MEGABIT)
}

/// True if the interface is a card, or stands on one. Interfaces that only the kernel knows say
/// some speed: 10 Mbit/s a tunnel, 10 Gbit/s each end of a pair.
fn is_of_a_card(interface: &Path, layers: u32) -> bool {
    if interface.join("device").exists() {
        return true;
    }
    let lower = fs::read_dir(interface).into_iter().flatten().flatten();
    let mut lower = lower.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"lower_"));
    layers > 1 && lower.any(|entry| is_of_a_card(&entry.path(), layers - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn cards_tell_and_so_does_what_stands_on_them() {
        let net = tempfile::tempdir().unwrap();
        let interface = |name: &str, speed: &str, card: bool| {
            let path = net.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("speed"), speed).unwrap();
            if card {
                fs::create_dir(path.join("device")).unwrap();
            }
            path
        };
        let gigabit = interface("eth0", "1000\n", true);
        assert_eq!(said_by(&gigabit), Some(125_000_000));
        assert_eq!(said_by(&interface("eth1", "100\n", true)), Some(12_500_000));
        for (name, speed) in [("virtio", "-1\n"), ("odd", "fast\n"), ("zero", "0\n"), ("most", "9223372036854775807")] {
            assert_eq!(said_by(&interface(name, speed, true)), None, "{name}");
        }
        assert_eq!(said_by(&interface("tun0", "10\n", false)), None);
        assert_eq!(said_by(&net.path().join("gone")), None);
        let bridge = interface("br0", "1000\n", false);
        symlink(&gigabit, bridge.join("lower_eth0")).unwrap();
        let vlan = interface("br0.7", "1000\n", false);
        symlink(&bridge, vlan.join("lower_br0")).unwrap();
        assert_eq!(said_by(&vlan), Some(125_000_000));
        let circle = interface("circle", "1000\n", false);
        symlink(&circle, circle.join("lower_circle")).unwrap();
        assert_eq!(said_by(&circle), None);
    }

    #[test]
    fn an_address_of_no_card_has_no_speed() {
        assert_eq!(bytes_per_s([127, 0, 0, 1].into()), None);
        assert_eq!(bytes_per_s([198, 18, 255, 254].into()), None);
    }
}
