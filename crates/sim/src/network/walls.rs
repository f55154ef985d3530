//! Walls: from which places nothing goes to which others, for a while.

use std::collections::BTreeSet;

/// One wall: nothing goes from the places of one set to those of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wall {
    /// From these.
    pub from: BTreeSet<u32>,
    /// To these.
    pub to: BTreeSet<u32>,
}

/// All walls that stand.
#[derive(Debug, Default)]
pub struct Walls {
    walls: Vec<Wall>,
}

impl Walls {
    /// Builds one.
    pub fn build(&mut self, wall: Wall) {
        self.walls.push(wall);
    }

    /// Tears all down.
    pub fn fall(&mut self) {
        self.walls.clear();
    }

    /// Tears down one that stands.
    pub fn tear_down(&mut self, wall: &Wall) {
        if let Some(at) = self.walls.iter().position(|standing| standing == wall) {
            self.walls.remove(at);
        }
    }

    /// True if nothing goes this way.
    pub fn stop(&self, from: u32, to: u32) -> bool {
        self.walls.iter().any(|wall| wall.from.contains(&from) && wall.to.contains(&to))
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.walls.is_empty()
    }
}
