//! Statements about members.
//!
//! Of two statements about a member the later life counts; within a life, the later incarnation;
//! within an incarnation, the graver state (SWIM, 4.2).
//!
//! A member signs its statements about itself: its identity, its incarnation, and that it leaves.
//! Others pass them on as they are. Others may say that a member is suspect or down. Such a
//! statement carries the member's own signature of the life it is about.

use crate::identity::Identity;
use crate::signing::{Context, PublicKey, Signature, Signatures};
use serde::{Deserialize, Serialize};

/// The believed state of a member; graver states come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Alive, as far as known.
    Alive,
    /// Possibly dead, unless the member denies it in time.
    Suspect,
    /// Dead, or cut off.
    Down,
    /// It left, as it said itself.
    Left,
    /// Another process has its address. Each node finds that out itself; no node is told.
    Replaced,
}

impl State {
    /// True for members that take part: alive or suspect.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Alive | Self::Suspect)
    }
}

/// How a member departed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It announced its departure.
    Left,
    /// It answered no probe any more.
    Died,
    /// Another process has its address.
    Replaced,
    /// The admission list does not admit it.
    Excluded,
}

impl Departure {
    /// For display and scripts: `left`, `died`, `replaced` or `excluded`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Died => "died",
            Self::Replaced => "replaced",
            Self::Excluded => "excluded",
        }
    }
}

/// A member that went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    /// The departed member.
    pub identity: Identity,
    /// How it departed.
    pub how: Departure,
}

/// A statement about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The member it is about.
    pub identity: Identity,
    /// Grows when it denies that it is suspect or dead.
    pub incarnation: u32,
    /// The state it claims.
    pub state: State,
    /// The member's key, of which its id is a hash.
    pub key: PublicKey,
    /// The member's signature of its identity and incarnation, and of its farewell if it left.
    pub signature: Signature,
}

impl Member {
    /// The statement of a node about itself: that it is alive, or leaves.
    pub fn signed(identity: Identity, incarnation: u32, leaves: bool, by: &dyn Signatures) -> Self {
        let state = if leaves { State::Left } else { State::Alive };
        let unsigned = Self { identity, incarnation, state, key: by.key(), signature: Signature::default() };
        Self { signature: by.sign(&unsigned.message()), ..unsigned }
    }

    /// What its member has signed.
    fn message(&self) -> Vec<u8> {
        let context = if self.state == State::Left { Context::Left } else { Context::Alive };
        context.message(&(self.identity, self.incarnation))
    }

    /// True if its id is that of its key.
    pub fn is_named(&self, keys: &dyn Signatures) -> bool {
        keys.id_of(&self.key) == self.identity.node
    }

    /// True if the member itself signed it, apart from the state that others may have added.
    pub fn is_genuine(&self, keys: &dyn Signatures) -> bool {
        self.is_named(keys) && keys.verify(&self.key, &self.message(), &self.signature)
    }

    /// Of two statements the one with the higher rank counts.
    pub fn rank(&self) -> (u64, u32, State) {
        (self.identity.generation, self.incarnation, self.state)
    }

    /// The life and incarnation that it is about.
    pub const fn life(&self) -> (u64, u32) {
        (self.identity.generation, self.incarnation)
    }

    /// What the member has said of itself, but for its end: its identity and incarnation.
    pub const fn said(&self) -> (Identity, u32) {
        (self.identity, self.incarnation)
    }

    /// The life after one: the next incarnation, or after the last one the next generation.
    pub const fn life_after(life: (u64, u32)) -> (u64, u32) {
        match life.1.saturating_add(1) {
            u32::MAX => (life.0.saturating_add(1), 0),
            incarnation => (life.0, incarnation),
        }
    }

    /// True for statements that may be believed: the member can still outbid them. The latest
    /// believable generation depends on the known one: see [`crate::outbid`].
    pub const fn is_sound(&self) -> bool {
        let told = !matches!(self.state, State::Replaced);
        told && self.incarnation < u32::MAX && self.identity.generation < u64::MAX
    }

    /// As others are told of it: whether another process has its address is for them to find out.
    pub const fn told(self) -> Self {
        match self.state {
            State::Replaced => Self { state: State::Down, ..self },
            _ => self,
        }
    }
}
