//! Windows: the bytes of one image that may be requested of one peer at once.
//!
//! [`crate::peers`] has one for each peer and image. A peer may send one image more slowly than
//! another: its operator limits it, or its source is slow. In a common window the requests of the
//! slow image would leave no room for those of the others.

use crate::tuning::{GAIN_SHIFT, PEER_DELAY, PEER_WINDOW_FIRST};
use crate::wire::Priority;
use std::time::Duration;

/// The window of one image at one peer.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Bytes requested and not answered, by priority.
    outstanding: [u64; 3],
    /// By priority, while something waits for room: the bytes that are left of the last
    /// [batch](Self::batch).
    credit: [Option<u64>; 3],
    /// See [`Window::bytes`]; 0 before anything was delivered.
    bytes: u64,
}

impl Window {
    /// Most bytes to request at once.
    pub const fn bytes(&self) -> u64 {
        if self.bytes == 0 { PEER_WINDOW_FIRST } else { self.bytes }
    }

    /// Bytes requested and not answered.
    pub fn owed(&self) -> u64 {
        self.outstanding.iter().sum()
    }

    /// Bytes that may be requested now with this priority, beyond those that come earlier.
    fn left(&self, priority: Priority) -> u64 {
        let before: u64 = self.outstanding[..=priority as usize].iter().sum();
        // A peer that owes nothing may get one request of any length.
        if before == 0 { u64::MAX } else { self.bytes().saturating_sub(before) }
    }

    /// Bytes of a batch: once the window is full, requests without a waiting reader go out in
    /// batches. A request for each answer would be a packet each, and wake the receiver.
    const fn batch(&self) -> u64 {
        self.bytes() >> GAIN_SHIFT
    }

    /// A request was sent.
    pub fn asked(&mut self, bytes: u64, priority: Priority) {
        self.outstanding[priority as usize] += bytes;
        let credit = &mut self.credit[priority as usize];
        *credit = credit.map(|credit| credit.saturating_sub(bytes));
    }

    /// A request ended.
    pub const fn ended(&mut self, bytes: u64, priority: Priority) {
        let owed = &mut self.outstanding[priority as usize];
        *owed = owed.saturating_sub(bytes);
    }

    /// True if `bytes` more may be requested: together with owed bytes that come no later, they
    /// come within [`PEER_DELAY`].
    pub fn has_room(&self, bytes: u64, priority: Priority) -> bool {
        let left = self.left(priority);
        // Parked chunks come first.
        let credit = self.credit[priority as usize].filter(|_| left != u64::MAX).unwrap_or(left);
        bytes <= credit.min(left)
    }

    /// Notes that chunks are parked with this priority.
    pub fn waited_for(&mut self, priority: Priority) {
        if priority != Priority::Demand && self.left(priority) < self.batch() {
            self.credit[priority as usize].get_or_insert(0);
        }
    }

    /// Bytes of parked chunks that may be requested now with this priority.
    pub fn room(&self, priority: Priority) -> u64 {
        let left = self.left(priority);
        if self.credit[priority as usize].is_some() && left < self.batch() { 0 } else { left }
    }

    /// Sets the bytes of parked chunks that are requested now; `None` if nothing is parked any
    /// more.
    pub fn set_credit(&mut self, priority: Priority, bytes: Option<u64>) {
        if priority != Priority::Demand {
            self.credit[priority as usize] = bytes;
        }
    }

    /// Notes `bytes` delivered after `delay`, when `owed` were owed in all. The window moves
    /// towards the bytes that come in [`PEER_DELAY`] (FAST TCP's rule; Jin, Wei and Low, 2004). It
    /// grows by no more than was delivered, shrinks by no more than an eighth, and never exceeds
    /// `most`.
    pub fn delivered(&mut self, bytes: u64, delay: Duration, owed: u64, most: u64) {
        let (window, delay_us) = (self.bytes(), delay.as_micros().max(1));
        let target = u64::try_from(u128::from(owed) * PEER_DELAY.as_micros() / delay_us).unwrap_or(u64::MAX);
        self.bytes = target.clamp(window - (window >> GAIN_SHIFT), window + bytes).clamp(bytes, most.max(bytes));
    }
}
