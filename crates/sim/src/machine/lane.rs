//! Connections between machines, from the side that opened them.
//!
//! A lane leads to one other machine: requests, cancellations and snapshots go forward on it,
//! answers come back. Messages of one way on one lane arrive in the order in which they were put on
//! the wire, as with TCP. A broken lane loses all messages on their way, and none of them arrives
//! on a later one.

/// A connection to one other machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lane {
    /// How often it was opened; messages with an earlier number are lost.
    pub epoch: u32,
    /// Greetings have been exchanged, and nothing has broken it since.
    pub open: bool,
    /// True if a timer makes the other send signs of life while it owes answers.
    pub beating: bool,
    /// Requests in flight on it.
    pub owed: u32,
    /// Messages put on the wire: forward, back.
    pub sent: [u32; 2],
    /// Messages that came: forward, back.
    pub came: [u32; 2],
}

/// The direction of a message on its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the machine that opened the lane.
    Forward,
    /// To the machine that opened the lane.
    Back,
}
