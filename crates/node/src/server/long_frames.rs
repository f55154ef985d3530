//! Long frames: how many come in, or go out, at a time.
//!
//! A long frame is a megabyte at worst, so few are under way at once. One that comes waits for its
//! turn unread, in the order of arrival. Each address has a share, so that one slow machine leaves
//! room for others. A frame has to come whole within a time, so everybody gets a
//! turn.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most long frames under way, over all connections.
const AT_ONCE: usize = 16;
/// Of those from, or to, one address: a quarter, so that three slow machines keep nobody waiting.
const OF_ADDRESS: usize = 4;

/// The long frames of all connections.
#[derive(Debug)]
pub struct LongFrames {
    all: Arc<Semaphore>,
    /// Of addresses with a long frame, or with one that waits.
    of_address: Mutex<BTreeMap<IpAddr, Weak<Semaphore>>>,
}

/// The place of one long frame; given up by dropping it.
#[derive(Debug)]
pub struct LongFrame {
    _of_address: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The long frame that comes.
pub enum Coming {
    /// There is none.
    None,
    /// It waits unread for its turn.
    Waits(Pin<Box<dyn Future<Output = LongFrame> + Send>>),
    /// It has its place.
    Comes {
        /// Given up when the frame is whole.
        _place: LongFrame,
    },
}

impl Coming {
    /// Returns when its turn has come; never if none waits.
    pub async fn turn(&mut self) {
        let Self::Waits(turn) = self else { return std::future::pending().await };
        *self = Self::Comes { _place: turn.await };
    }
}

impl LongFrames {
    /// None is under way.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(AT_ONCE)), of_address: Mutex::default() })
    }

    /// A place, as soon as there is one.
    pub async fn wait(self: Arc<Self>, ip: IpAddr) -> LongFrame {
        // Nobody closes them.
        const OPEN: &str = "the semaphore is open";
        let of_address = self.share(ip).acquire_owned().await.expect(OPEN);
        let of_all = Arc::clone(&self.all).acquire_owned().await.expect(OPEN);
        LongFrame { _of_address: of_address, _of_all: of_all }
    }

    /// A place, if there is one now.
    pub fn take(&self, ip: IpAddr) -> Option<LongFrame> {
        let of_address = self.share(ip).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(LongFrame { _of_address: of_address, _of_all: of_all })
    }

    fn share(&self, ip: IpAddr) -> Arc<Semaphore> {
        let mut shares = self.of_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&ip).and_then(Weak::upgrade) {
            return share;
        }
        // A share lives as long as it has frames.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(OF_ADDRESS));
        shares.insert(ip, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::task::yield_now;

    const fn ip(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 18, 0, last))
    }

    #[test]
    fn an_address_has_a_share_and_all_have_a_bound() {
        let frames = LongFrames::new();
        let of = |last: u8| (0..5).filter_map(|_| frames.take(ip(last))).collect::<Vec<_>>();
        let taken = [1, 2, 3, 4, 5].map(of);
        assert_eq!(taken.each_ref().map(Vec::len), [4, 4, 4, 4, 0]);
        drop(taken);
        assert_eq!(of(5).len(), 4);
        drop(frames.take(ip(6)));
        drop(frames.take(ip(7)));
        assert_eq!(frames.of_address.lock().unwrap().len(), 1, "of those without frames nothing is kept");
    }

    #[tokio::test]
    async fn who_waits_gets_a_place_in_turn() {
        let frames = LongFrames::new();
        let mut taken: Vec<_> = (0..16).map(|at| frames.take(ip(at / 4)).unwrap()).collect();
        let first = tokio::spawn(Arc::clone(&frames).wait(ip(8)));
        yield_now().await;
        let second = tokio::spawn(Arc::clone(&frames).wait(ip(9)));
        yield_now().await;
        assert!(!first.is_finished() && !second.is_finished());
        taken.pop();
        let first = first.await.unwrap();
        yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap();
    }
}
