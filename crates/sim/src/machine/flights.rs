//! Requests in flight of one machine: found by their numbers, which a core gives in order.

use std::collections::VecDeque;
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
    /// The number of the first place.
    first: u64,
    places: VecDeque<Option<Flight>>,
    count: usize,
}

impl Flights {
    /// One more. Numbers grow; one that was used before is a fault of the core.
    pub fn insert(&mut self, request: RequestId, flight: Flight) {
        if self.places.is_empty() {
            self.first = request.0;
        }
        assert!(request.0 >= self.first + self.places.len() as u64, "request number {request:?} is used twice");
        while self.first + (self.places.len() as u64) < request.0 {
            self.places.push_back(None);
        }
        self.places.push_back(Some(flight));
        self.count += 1;
    }

    /// The one with this number, if it has not ended.
    pub fn get_mut(&mut self, request: RequestId) -> Option<&mut Flight> {
        let at = request.0.checked_sub(self.first)?;
        self.places.get_mut(usize::try_from(at).ok()?)?.as_mut()
    }

    /// See [`Flights::get_mut`].
    pub fn get(&self, request: RequestId) -> Option<&Flight> {
        let at = request.0.checked_sub(self.first)?;
        self.places.get(usize::try_from(at).ok()?)?.as_ref()
    }

    /// Ends one.
    pub fn remove(&mut self, request: RequestId) -> Option<Flight> {
        let at = request.0.checked_sub(self.first)?;
        let flight = self.places.get_mut(usize::try_from(at).ok()?)?.take()?;
        self.count -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        Some(flight)
    }

    /// Ends all, which nobody is told.
    pub fn clear(&mut self) {
        (self.first, self.count) = (self.first + self.places.len() as u64, 0);
        self.places.clear();
    }

    /// All, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &Flight)> {
        let numbered = self.places.iter().zip(self.first..);
        numbered.filter_map(|(flight, number)| flight.as_ref().map(|flight| (RequestId(number), flight)))
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if nothing is asked for.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}
