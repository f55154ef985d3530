//! Boots of machines that follow a tag: which version each of them gets.
//!
//! Owns a count for each machine: scripts that it fetched since it last said that it runs. After
//! [`BOOTS_MAX`] of one version without a word, the machine gets the version before. Pure: versions
//! and reports come in, choices go out. The site calls it. It lives as long as the network boot; a
//! restart begins to count anew.

use crate::values::machine::Mac;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use vfield_core::tag::Version;

/// Boots of a version that may fail before the machine goes back. One power failure, and one person
/// who resets the machine too early, are no reason.
pub const BOOTS_MAX: u32 = 3;
/// Most machines that are counted, some 100 bytes each. A room has tens; a stranger who makes up
/// addresses of network cards takes the place of the machines that were seen longest ago.
const MACHINES_MAX: usize = 4096;

/// The boots of all machines.
#[derive(Debug, Default)]
pub struct Boots {
    machines: BTreeMap<Mac, Machine>,
    /// Scripts handed out so far, to order the machines by.
    handed_out: u64,
}

#[derive(Debug, Default)]
struct Machine {
    /// The version that it got last.
    serial: u64,
    /// Boots of that version since the machine last said that it runs.
    boots: u32,
    /// True if it has said so of that version.
    runs: bool,
    /// Serials of the versions that it is not given any more.
    failed: BTreeSet<u64>,
    seen: u64,
}

/// The version for a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// The machine is asked for a report of its serial.
    pub version: Version,
    /// The serial that the machine does not get any more, if that was decided now.
    pub given_up: Option<u64>,
    /// The serials of all versions that the machine does not get any more, in order.
    pub failed: Vec<u64>,
}

impl Boots {
    /// The version that a machine boots now, of `versions`, the wanted one first. A version has
    /// failed under its serial: under a later one it is tried again. If all have failed, the wanted
    /// one is tried again.
    ///
    /// # Panics
    /// Without versions.
    pub fn hand_out(&mut self, mac: Mac, versions: &[Version]) -> Handed {
        self.make_room(mac);
        self.handed_out += 1;
        let machine = self.machines.entry(mac).or_default();
        machine.seen = self.handed_out;
        machine.failed.retain(|serial| versions.iter().any(|version| version.serial == *serial));
        let given_up = Some(machine.serial)
            .filter(|serial| machine.boots >= BOOTS_MAX && versions.iter().any(|version| version.serial == *serial));
        machine.failed.extend(given_up);
        let works = |version: &&Version| !machine.failed.contains(&version.serial);
        let version = versions.iter().find(works).copied();
        if version.is_none() {
            machine.failed.clear();
        }
        let version = version.unwrap_or_else(|| *versions.first().expect("there is a version"));
        if machine.serial != version.serial || given_up.is_some() {
            (machine.serial, machine.boots, machine.runs) = (version.serial, 0, false);
        }
        machine.boots += 1;
        Handed { version, given_up, failed: machine.failed.iter().copied().collect() }
    }

    /// A machine says that it runs the version of this serial; true if it was given that last.
    pub fn runs(&mut self, mac: Mac, serial: u64) -> bool {
        let machine = self.machines.get_mut(&mac).filter(|machine| machine.serial == serial);
        machine.map(|machine| (machine.boots, machine.runs) = (0, true)).is_some()
    }

    /// A line for each machine: which version it has, and how that went.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (mac, Machine { serial, boots, runs, failed, .. }) in &self.machines {
            let state = match (runs, boots) {
                (true, 0) => "runs".to_owned(),
                (_, boots) => format!("{boots} of {BOOTS_MAX} boots without a success"),
            };
            let failed: Vec<String> = failed.iter().map(u64::to_string).collect();
            let failed = if failed.is_empty() { String::new() } else { format!(", failed: {}", failed.join(", ")) };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{mac} serial {serial}: {state}{failed}");
        }
        text
    }

    fn make_room(&mut self, mac: Mac) {
        if self.machines.len() < MACHINES_MAX || self.machines.contains_key(&mac) {
            return;
        }
        let oldest = self.machines.iter().min_by_key(|(_, machine)| machine.seen).map(|(mac, _)| *mac);
        oldest.map(|oldest| self.machines.remove(&oldest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::image::ImageId;

    fn mac(number: u16) -> Mac {
        format!("52:54:00:00:{:02x}:{:02x}", number >> 8, number & 255).parse().unwrap()
    }

    /// Versions of these serials; the image is the serial's last digit.
    fn versions(serials: &[u64]) -> Vec<Version> {
        serials.iter().map(|serial| Version { serial: *serial, image: ImageId([(serial % 10) as u8; 32]) }).collect()
    }

    /// The serial that the machine gets, and the serial that it loses by that.
    fn boot(boots: &mut Boots, serials: &[u64]) -> (u64, Option<u64>) {
        let handed = boots.hand_out(mac(1), &versions(serials));
        (handed.version.serial, handed.given_up)
    }

    #[test]
    fn after_three_boots_without_a_word_a_machine_goes_back() {
        let mut boots = Boots::default();
        assert_eq!(boot(&mut boots, &[1]), (1, None));
        assert!(boots.runs(mac(1), 1));
        for _ in 0..BOOTS_MAX {
            assert_eq!(boot(&mut boots, &[2, 1]), (2, None));
        }
        assert_eq!(boot(&mut boots, &[2, 1]), (1, Some(2)));
        assert!(boots.runs(mac(1), 1));
        assert_eq!(boot(&mut boots, &[2, 1]), (1, None), "it stays");
        assert_eq!(boots.hand_out(mac(1), &versions(&[2, 1])).failed, [2], "and is told why");
        // The next serial is another attempt, and so is the same image under a later serial.
        assert_eq!(boot(&mut boots, &[3, 2, 1]), (3, None));
        assert!(boots.runs(mac(1), 3));
        assert_eq!(boot(&mut boots, &[12, 3]), (12, None));
    }

    #[test]
    fn a_machine_that_says_that_it_runs_stays() {
        let mut boots = Boots::default();
        for _ in 0..10 {
            assert_eq!(boot(&mut boots, &[2, 1]), (2, None));
            assert_eq!(boot(&mut boots, &[2, 1]), (2, None));
            assert!(boots.runs(mac(1), 2));
        }
        assert_eq!(boots.table(), "52:54:00:00:00:01 serial 2: runs\n");
        // Words about another version, or of an unknown machine, count for nothing.
        for _ in 0..BOOTS_MAX {
            assert_eq!(boot(&mut boots, &[2, 1]), (2, None));
            assert!(!boots.runs(mac(1), 1) && !boots.runs(mac(2), 2));
        }
        assert_eq!(boots.table(), "52:54:00:00:00:01 serial 2: 3 of 3 boots without a success\n");
        assert_eq!(boot(&mut boots, &[2, 1]), (1, Some(2)));
        assert_eq!(boots.table(), "52:54:00:00:00:01 serial 1: 1 of 3 boots without a success, failed: 2\n");
    }

    #[test]
    fn if_all_versions_fail_the_wanted_one_is_tried_again() {
        let mut boots = Boots::default();
        let serials: Vec<u64> = (0..13).map(|_| boot(&mut boots, &[5, 3]).0).collect();
        assert_eq!(serials, [5, 5, 5, 3, 3, 3, 5, 5, 5, 3, 3, 3, 5]);
        let mut boots = Boots::default();
        let serials: Vec<u64> = (0..7).map(|_| boot(&mut boots, &[5]).0).collect();
        assert_eq!(serials, [5; 7], "there is nothing to go back to");
    }

    #[test]
    fn machines_are_apart_and_bounded() {
        let mut boots = Boots::default();
        for _ in 0..BOOTS_MAX {
            boot(&mut boots, &[2, 1]);
        }
        assert_eq!(boots.hand_out(mac(2), &versions(&[2, 1])).version.serial, 2);
        for number in 3..2 + MACHINES_MAX as u16 {
            boots.hand_out(mac(number), &versions(&[2]));
        }
        assert_eq!(boots.machines.len(), MACHINES_MAX);
        assert_eq!(boot(&mut boots, &[2, 1]), (2, None), "it was forgotten, as the one seen longest ago");
        assert_eq!(boots.machines.len(), MACHINES_MAX);
    }
}
