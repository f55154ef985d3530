//! Walls: places from which no packet passes to some other places, for a while.

use std::collections::BTreeSet;

/// A wall: no packet passes from the places of one set to those of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wall {
    /// The sending places.
    pub from: BTreeSet<u32>,
    /// The receiving places.
    pub to: BTreeSet<u32>,
}

/// All present walls.
#[derive(Debug, Default)]
pub struct Walls {
    walls: Vec<Wall>,
    /// Places whose firewalls drop datagrams, and let connections through.
    firewalls: BTreeSet<u32>,
}

impl Walls {
    /// Adds a wall.
    pub fn build(&mut self, wall: Wall) {
        self.walls.push(wall);
    }

    /// Tears all down.
    pub fn fall(&mut self) {
        self.walls.clear();
    }

    /// Lets no datagram through to a place any more, or lets all through.
    pub fn set_firewall(&mut self, place: u32, stands: bool) {
        if stands {
            self.firewalls.insert(place)
        } else {
            self.firewalls.remove(&place)
        };
    }

    /// True if no datagram goes to this place.
    pub fn drops_datagrams(&self, to: u32) -> bool {
        self.firewalls.contains(&to)
    }

    /// Removes one such wall.
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
