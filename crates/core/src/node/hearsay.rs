//! Hearsay: how many nodes this one dials because somebody named them.
//!
//! Anybody may name any address. A snapshot has room for 70 000 of them, and each dial costs a socket, a snapshot and
//! somebody a packet that nobody asked for. Therefore each frame, each teller and each second may cause a few dials only.
//! An honest teller names the gateways of the listener's zone: three for each image. Who is not dialled now is named again
//! by the next snapshot.
//!
//! Owned by [`super::outside`]; bounded by the dials of one second.

use crate::identity::NodeId;
use crate::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Dials that all tellers together cause within a second. A dial holds its socket for 5.5 s at most, so 180 are open at once:
/// a fifth of the 1 024 descriptors that a process usually has.
pub const DIALS_A_SECOND: u32 = 32;
/// Dials that one teller causes within a second, and so each frame: the gateways of two images, and some more. Tellers
/// may lie about their names, so this only keeps one honest but confused teller from using up all.
pub const DIALS_OF_TELLER: u32 = 8;
/// So many of those that a frame names are looked at: three times as many as an honest one names of other zones.
pub const NAMED_MAX: usize = 64;

const SECOND: Duration = Duration::from_secs(1);

const _: () = assert!(DIALS_OF_TELLER * 2 <= DIALS_A_SECOND, "one teller leaves room for others");

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hearsay {
    since: Time,
    dials: u32,
    /// Dials because of each teller, in this second.
    of: BTreeMap<NodeId, u32>,
}

impl Hearsay {
    /// True if one more may be dialled because this node named it; it is counted then.
    pub fn may_dial(&mut self, teller: NodeId, now: Time) -> bool {
        if now - self.since >= SECOND {
            *self = Self { since: now, ..Self::default() };
        }
        let of_teller = self.of.get(&teller).copied().unwrap_or_default();
        if self.dials >= DIALS_A_SECOND || of_teller >= DIALS_OF_TELLER {
            return false;
        }
        self.dials += 1;
        self.of.insert(teller, of_teller + 1);
        true
    }
}
