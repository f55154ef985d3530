//! Hearsay: a bound on the dials that a node makes because others named an address.
//!
//! Any node may name any address. A snapshot has room for 70 000 of them. Each dial costs a socket,
//! a snapshot, and an unsolicited packet to its target. So each frame, each teller and each second
//! cause a few dials only. An honest teller names the gateways of the listener's zone: three for
//! each image. Nodes that are not dialled now are named again by the next snapshot.
//!
//! Owned by [`super::outside`]; bounded by the dials of one second.

use crate::identity::NodeId;
use crate::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most dials in a second, for all tellers together. A dial holds its socket for at most 5.5 s, so
/// 180 are open at once: a fifth of the usual 1 024 descriptors.
pub const DIALS_A_SECOND: u32 = 32;
/// Dials that one teller causes within a second, and so each frame: the gateways of two images, and
/// some more. Tellers may lie about their names, so this only keeps one honest but confused teller
/// from using up all.
pub const DIALS_OF_TELLER: u32 = 8;
/// Most names of a frame that are considered: three times an honest frame's names of other zones.
pub const NAMED_MAX: usize = 64;

const SECOND: Duration = Duration::from_secs(1);

const _: () = assert!(DIALS_OF_TELLER * 2 <= DIALS_A_SECOND, "one teller leaves room for others");

/// The dials of the last second, by teller.
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
