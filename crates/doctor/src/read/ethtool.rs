//! The kernel's ethtool call (`SIOCETHTOOL`, linux/ethtool.h): ring, queues, moderation, offloads,
//! and what both sides of a link offer. All of it reads; nothing needs root.
//!
//! Each question is an array of 32-bit words, with the command first. A driver that does not know a
//! question refuses it, and the fact is absent.

#![expect(unsafe_code, reason = "no crate in use wraps SIOCETHTOOL")]

use crate::facts::Ethtool;
use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GCOALESCE: u32 = 0x0e;
const GRINGPARAM: u32 = 0x10;
const GTSO: u32 = 0x1e;
const GGSO: u32 = 0x23;
const GGRO: u32 = 0x2b;
const GCHANNELS: u32 = 0x3c;
const GLINKSETTINGS: u32 = 0x4c;
/// Words of the longest structure, beyond which the kernel writes nothing: the link's settings with
/// three masks of at most 127 words.
const WORDS: usize = LINK_WORDS + 3 * 127;
/// Words of `ethtool_link_settings` before its masks.
const LINK_WORDS: usize = 12;
/// Rates in Mbit/s of link modes, by bit of a mask: the usual ones of copper and fibre.
const MODES: [(usize, u64); 30] = [
    (0, 10),
    (1, 10),
    (2, 100),
    (3, 100),
    (4, 1000),
    (5, 1000),
    (12, 10_000),
    (17, 1000),
    (18, 10_000),
    (19, 10_000),
    (23, 40_000),
    (24, 40_000),
    (25, 40_000),
    (26, 40_000),
    (31, 25_000),
    (32, 25_000),
    (33, 25_000),
    (34, 50_000),
    (35, 50_000),
    (36, 100_000),
    (37, 100_000),
    (38, 100_000),
    (39, 100_000),
    (40, 50_000),
    (41, 1000),
    (42, 10_000),
    (43, 10_000),
    (44, 10_000),
    (47, 2500),
    (48, 5000),
];

/// What ethtool shows of an interface, and the fastest rate in Mbit/s that both sides offer.
pub(super) fn read(name: &str) -> (Ethtool, Option<u64>) {
    let Ok(socket) = socket(AddressFamily::INET, SocketType::DGRAM, None) else { return Default::default() };
    let ask = |command: u32| ask(&socket, name, &mut question(command));
    let flag = |command: u32| Some(ask(command)?[1] != 0);
    let pair = |words: Option<[u32; WORDS]>, now: usize, most: usize| {
        let words = words?;
        Some((u64::from(words[now]), u64::from(words[most])))
    };
    let coalesce = ask(GCOALESCE);
    let ethtool = Ethtool {
        rx_ring: pair(ask(GRINGPARAM), 5, 1),
        channels: pair(ask(GCHANNELS), 8, 4),
        rx_usecs: coalesce.map(|words| u64::from(words[1])),
        adaptive_rx: coalesce.map(|words| words[10] != 0),
        gro: flag(GGRO),
        gso: flag(GGSO),
        tso: flag(GTSO),
    };
    (ethtool, offered(&socket, name))
}

const fn question(command: u32) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    words[0] = command;
    words
}

/// The fastest mode that this side supports and the other advertises.
fn offered(socket: &OwnedFd, name: &str) -> Option<u64> {
    // The kernel answers a wrong length of the masks with the right one, negative.
    let first = ask(socket, name, &mut question(GLINKSETTINGS))?;
    let length = first[3].to_ne_bytes()[3].cast_signed();
    let words = usize::try_from(length.checked_neg()?).ok().filter(|words| *words > 0)?;
    let mut again = question(GLINKSETTINGS);
    let mut bytes = again[3].to_ne_bytes();
    bytes[3] = u8::try_from(words).ok()?;
    again[3] = u32::from_ne_bytes(bytes);
    let answer = ask(socket, name, &mut again)?;
    let mask = |number: usize| &answer[LINK_WORDS + number * words..][..words];
    best(mask(0), mask(2))
}

/// The fastest rate that both masks have.
fn best(supported: &[u32], partner: &[u32]) -> Option<u64> {
    let has = |mask: &[u32], bit: usize| mask.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1);
    MODES.iter().filter(|(bit, _)| has(supported, *bit) && has(partner, *bit)).map(|(_, mbit)| *mbit).max()
}

/// An `ifreq` with a pointer in it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u32,
    /// The kernel copies a whole `ifreq`, whose union is longer than a pointer.
    rest: [u64; 2],
}

/// The answer to a question, or none if the driver does not know it.
fn ask(socket: &OwnedFd, name: &str, words: &mut [u32; WORDS]) -> Option<[u32; WORDS]> {
    let mut request = Request { name: [0; libc::IFNAMSIZ], data: words.as_mut_ptr(), rest: [0; 2] };
    // The last byte stays 0.
    let room = request.name.get_mut(..name.len()).filter(|room| room.len() < libc::IFNAMSIZ)?;
    room.copy_from_slice(name.as_bytes());
    // SAFETY: the request and the words outlive the call, and the words are as long as the longest
    // structure that the kernel writes for these commands.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    (done == 0).then_some(*words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_common_mode_counts() {
        let bits = |bits: &[usize]| {
            bits.iter().fold([0_u32; 2], |mut mask, bit| {
                mask[bit / 32] |= 1 << (bit % 32);
                mask
            })
        };
        let both = bits(&[3, 5, 12, 47]);
        assert_eq!(best(&both, &bits(&[3, 5])), Some(1000));
        assert_eq!(best(&both, &bits(&[3, 47])), Some(2500));
        assert_eq!((best(&both, &[0, 0]), best(&[], &both)), (None, None));
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_answers() {
        assert_eq!(read("no-such-if"), Default::default());
        assert_eq!(read("a-name-longer-than-any"), Default::default());
    }
}
