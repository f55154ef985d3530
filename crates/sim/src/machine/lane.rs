//! Connections between machines, as the one that opened them sees them.
//!
//! A lane leads to one other machine: requests, cancellations and notes go forward on it, answers come back. What
//! travels one way on one lane comes in the order in which it was put on the wire, as TCP has it; a broken
//! lane loses all that is on the way, and what was sent on it never comes on a later one.

/// See the module.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lane {
    /// How often it was opened; what bears an earlier number is lost.
    pub epoch: u32,
    /// Greetings have been exchanged, and nothing has broken it since.
    pub open: bool,
    /// The other has been told, by a timer, to give signs of life as long as it owes answers.
    pub beating: bool,
    /// Requests in flight on it.
    pub owed: u32,
    /// Messages put on the wire: forward, back.
    pub sent: [u32; 2],
    /// Messages that came: forward, back.
    pub came: [u32; 2],
}

/// Which way a message travels on its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From who opened the lane.
    Forward,
    /// To who opened it.
    Back,
}
