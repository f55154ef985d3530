//! Turns of leaves: a node sends chunks to one of them at a time.
//!
//! A leaf takes in more than it passes on, and asks another node for each chunk
//! ([`vfield_core::placement::Chain::leaf`]). The kernel shares a link evenly between connections
//! with bytes to send. Beside ten leaves the next node of the chain would get an eleventh of the
//! link, and all nodes behind it wait for that one. So leaves count as one together (decision
//! 0093).
//!
//! A turn lasts until the kernel has put nearly all of the chunk on the wire. A leaf that makes it
//! last for [`TURN_MAX`] goes without turns for a while: it does not read, and gets nothing of the
//! link, or the link is so slow that all leaves may as well share it.

use crate::driver::Driver;
use crate::low_water;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;

/// Longest turn: a chunk of 64 KiB at half of 4 Mbit/s.
const TURN_MAX: Duration = Duration::from_millis(250);
/// Longest wait for a turn, then it goes on without one: ten leaves with a chunk each at half of
/// 10 Mbit/s.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Bytes of a leaf's answers queued in the kernel. The turn is over when half of them are left: a
/// fraction of a chunk, and at 1 Gbit/s time enough for the next one to begin.
const QUEUED_MAX: usize = 32 << 10;
/// How long a leaf goes without turns, so that one that never reads takes a fortieth of the others'
/// time.
const ASIDE: Duration = Duration::from_secs(10);
/// How long it is taken for certain that a node is a leaf, or is none: an operator may change the
/// limit.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The turns of all leaves of a node.
#[derive(Debug, Clone)]
pub struct Leaves {
    turns: Arc<Semaphore>,
    /// Leaves that go without turns, and until when.
    aside: Arc<Mutex<HashMap<NodeId, Instant>>>,
}

impl Default for Leaves {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(1)), aside: Arc::default() }
    }
}

impl Leaves {
    fn is_aside(&self, node: NodeId) -> bool {
        self.aside().get(&node).is_some_and(|until| Instant::now() < *until)
    }

    fn put_aside(&self, node: NodeId) {
        let (mut aside, now) = (self.aside(), Instant::now());
        aside.retain(|_, until| now < *until);
        aside.insert(node, now + ASIDE);
    }

    fn aside(&self) -> MutexGuard<'_, HashMap<NodeId, Instant>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` if the wait was too long.
type Wait = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// A connection's turn.
pub(super) struct LeafTurn {
    leaves: Leaves,
    peer: NodeId,
    state: State,
    /// The image and the time of the last look, and if the peer is a leaf.
    looked: Option<(ImageId, Instant, bool)>,
}

enum State {
    None,
    Waits(Wait),
    /// Until then others wait. `sent` is true once the kernel has all of the answer.
    Has {
        permit: Option<OwnedSemaphorePermit>,
        until: Instant,
        sent: bool,
    },
}

impl LeafTurn {
    pub fn new(leaves: Leaves, peer: NodeId) -> Self {
        Self { leaves, peer, state: State::None, looked: None }
    }

    /// True if a chunk of this image may go to the peer now. If not, [`LeafTurn::changed`] returns
    /// once it may.
    pub fn may_begin(&mut self, driver: &Driver, image: ImageId, stream: &TcpStream) -> bool {
        !self.is_leaf(driver, image, stream) || self.begin()
    }

    /// Takes a turn if it can be had at once, else waits for one.
    fn begin(&mut self) -> bool {
        if matches!(self.state, State::None) {
            if self.leaves.is_aside(self.peer) {
                return true;
            }
            let turns = Arc::clone(&self.leaves.turns);
            self.state = match Arc::clone(&turns).try_acquire_owned() {
                Ok(permit) => State::has(Some(permit)),
                Err(_) => {
                    State::Waits(Box::pin(async move { timeout(WAIT_MAX, turns.acquire_owned()).await.ok()?.ok() }))
                }
            };
        }
        matches!(self.state, State::Has { sent: false, .. })
    }

    fn is_leaf(&mut self, driver: &Driver, image: ImageId, stream: &TcpStream) -> bool {
        let now = Instant::now();
        if let Some((of, at, is_leaf)) = self.looked
            && of == image
            && now - at < LOOK_EVERY
        {
            return is_leaf;
        }
        let is_leaf = driver.look(|core| core.is_leaf(image, self.peer));
        if is_leaf != self.looked.is_some_and(|(.., was_leaf)| was_leaf) {
            low_water::queue_at_most(stream, if is_leaf { QUEUED_MAX } else { super::super::QUEUED_MAX });
        }
        self.looked = Some((image, now, is_leaf));
        is_leaf
    }

    /// The kernel has all of an answer.
    pub fn sent(&mut self, stream: &TcpStream) {
        if let State::Has { sent, .. } = &mut self.state {
            *sent = true;
            if has_left(stream) {
                self.state = State::None;
            }
        }
    }

    /// There is no chunk to send: the asker may want it no more.
    pub fn give_back(&mut self) {
        if !matches!(self.state, State::Has { sent: true, .. }) {
            self.state = State::None;
        }
    }

    /// True while it has a turn or waits for one.
    pub const fn is_under_way(&self) -> bool {
        !matches!(self.state, State::None)
    }

    /// Returns when it has its turn, or its turn is over; never without one.
    pub async fn changed(&mut self, stream: &TcpStream) {
        match &mut self.state {
            State::None => std::future::pending().await,
            State::Waits(wait) => self.state = State::has(wait.await),
            State::Has { permit, until, sent } => {
                let (is_sent, until) = (*sent, *until);
                let left = async {
                    while is_sent && stream.writable().await.is_ok() {
                        if has_left(stream) {
                            return;
                        }
                    }
                    // An error shows at the next write.
                    std::future::pending().await
                };
                tokio::select! {
                    () = left => self.state = State::None,
                    () = sleep_until(until), if permit.is_some() => {
                        *permit = None;
                        self.leaves.put_aside(self.peer);
                        if is_sent {
                            self.state = State::None;
                        }
                    }
                }
            }
        }
    }
}

impl State {
    fn has(permit: Option<OwnedSemaphorePermit>) -> Self {
        Self::Has { permit, until: Instant::now() + TURN_MAX, sent: false }
    }
}

/// True if the kernel has put most of what it was given on the wire. If not, the socket becomes
/// writable then.
fn has_left(stream: &TcpStream) -> bool {
    let look = || match poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&Timespec::default()))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    };
    stream.try_io(Interest::WRITABLE, look).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// A connection whose kernel takes a few chunks, and the other end, which has not read.
    fn pair() -> (TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sending = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sending.set_nonblocking(true).unwrap();
        let stream = TcpStream::from_std(sending).unwrap();
        low_water::queue_at_most(&stream, QUEUED_MAX);
        (stream, listener.accept().unwrap().0)
    }

    /// Fills the socket; returns the bytes.
    fn fill(stream: &TcpStream) -> usize {
        let mut filled = 0;
        while let Ok(more) = stream.try_write(&[7; 64 << 10]) {
            filled += more;
        }
        filled
    }

    /// The next change, which comes.
    async fn change(turn: &mut LeafTurn, stream: &TcpStream) {
        tokio::time::timeout(Duration::from_secs(60), turn.changed(stream)).await.expect("it changes");
    }

    #[tokio::test]
    async fn a_turn_lasts_until_the_bytes_have_left() {
        let leaves = Leaves::default();
        let mut turns = [1, 2].map(|node| LeafTurn::new(leaves.clone(), NodeId(node)));
        let [(stream, mut receiver), (other, _other)] = [pair(), pair()];
        stream.writable().await.unwrap();
        let [first, second] = &mut turns;
        assert!(first.begin());
        let filled = fill(&stream);
        first.sent(&stream);
        assert!(first.is_under_way() && !second.begin() && !first.begin(), "one at a time, a chunk for each turn");
        let reader = std::thread::spawn(move || {
            receiver.read_exact(&mut vec![0; filled]).unwrap();
            receiver
        });
        change(first, &stream).await;
        assert!(!first.is_under_way());
        change(second, &other).await;
        assert!(second.begin() && !first.begin());
        second.sent(&other);
        assert!(!second.is_under_way(), "nothing waits for the link");
        change(first, &stream).await;
        assert!(first.begin());
        drop(reader.join().unwrap().write_all(b"end"));
    }

    #[tokio::test]
    async fn a_leaf_that_does_not_read_holds_nobody_up_for_long() {
        let leaves = Leaves::default();
        let turn = |node| LeafTurn::new(leaves.clone(), NodeId(node));
        let [mut stuck, mut other] = [1, 2].map(turn);
        let [(stream, _receiver), (second, _other)] = [pair(), pair()];
        stream.writable().await.unwrap();
        assert!(stuck.begin());
        fill(&stream);
        assert!(!other.begin());
        change(&mut stuck, &stream).await;
        assert!(stuck.begin(), "its answer goes on");
        change(&mut other, &second).await;
        assert!(other.begin());
        // Its other connections have no turns either, so that it cannot take one with each.
        let mut again = turn(1);
        assert!(again.begin() && !again.is_under_way());
        // Nor does one that wants its chunk no more, or the end of a connection.
        other.give_back();
        assert!(!other.is_under_way() && other.begin());
        assert!(!turn(3).begin());
        drop(other);
        assert!(turn(3).begin());
    }

    #[tokio::test]
    async fn whoever_has_all_turns_a_leaf_goes_on() {
        let leaves = Leaves::default();
        let _all = Arc::clone(&leaves.turns).acquire_owned().await.unwrap();
        let (stream, _receiver) = pair();
        let mut turn = LeafTurn::new(leaves, NodeId(1));
        assert!(!turn.begin());
        change(&mut turn, &stream).await;
        assert!(turn.begin());
    }
}
