//! Requests in flight of one machine, by their numbers. A few stay long while thousands come and go.

use std::collections::BTreeMap;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::time::Time;

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub struct Flight {
    /// The machine that was asked.
    pub to: u32,
    /// For a chunk of this image of the field.
    pub image: u16,
    /// Its core wants it no more.
    pub cancelled: bool,
    /// The machine that was asked knows that.
    pub called_off: bool,
    /// Which chunk.
    pub chunk: Chunk,
    /// When.
    pub sent: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Flights {
    table: BTreeMap<RequestId, Flight>,
    /// The highest number so far.
    highest: Option<RequestId>,
}

impl Flights {
    /// One more. Numbers grow; one that was used before is a fault of the core.
    pub fn insert(&mut self, request: RequestId, flight: Flight) {
        assert!(self.highest.is_none_or(|highest| request > highest), "request number {request:?} is used twice");
        self.highest = Some(request);
        self.table.insert(request, flight);
    }

    /// The one with this number, if it has not ended.
    pub fn get_mut(&mut self, request: RequestId) -> Option<&mut Flight> {
        self.table.get_mut(&request)
    }

    /// See [`Flights::get_mut`].
    pub fn get(&self, request: RequestId) -> Option<&Flight> {
        self.table.get(&request)
    }

    /// Ends one.
    pub fn remove(&mut self, request: RequestId) -> Option<Flight> {
        self.table.remove(&request)
    }

    /// Ends all, which nobody is told.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    /// All, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &Flight)> {
        self.table.iter().map(|(request, flight)| (*request, flight))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}
