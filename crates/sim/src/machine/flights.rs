//! Requests in flight of one machine, by their numbers. See [`vfield_core::numbered`].

use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::numbered::Numbered;
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
pub struct Flights(Numbered<Flight>);

impl Flights {
    /// One more. Numbers grow; one that was used before is a fault of the core.
    pub fn insert(&mut self, request: RequestId, flight: Flight) {
        assert!(self.0.insert(request.0, flight), "request number {request:?} is used twice");
    }

    /// The one with this number, if it has not ended.
    pub fn get_mut(&mut self, request: RequestId) -> Option<&mut Flight> {
        self.0.get_mut(request.0)
    }

    /// See [`Flights::get_mut`].
    pub fn get(&self, request: RequestId) -> Option<&Flight> {
        self.0.get(request.0)
    }

    /// Ends one.
    pub fn remove(&mut self, request: RequestId) -> Option<Flight> {
        self.0.remove(request.0)
    }

    /// Ends all, which nobody is told.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &Flight)> {
        self.0.iter().map(|(request, flight)| (RequestId(request), flight))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
