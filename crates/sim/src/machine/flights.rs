//! Requests in flight of one machine, by number. See [`vfield_core::numbered`].

use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::image::Geometry;
use vfield_core::numbered::Numbered;
use vfield_core::slice::Slice;
use vfield_core::time::Time;

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub struct Flight {
    /// The machine that was asked.
    pub to: u32,
    /// For a chunk of this image of the field.
    pub image: u16,
    /// Its core only wants to see it.
    pub check: bool,
    /// For this part of the chunk; `None` for all of it.
    pub slice: Option<Slice>,
    /// Its core wants it no more.
    pub cancelled: bool,
    /// The machine that was asked knows that.
    pub called_off: bool,
    /// The requested chunk.
    pub chunk: Chunk,
    /// When it was sent.
    pub sent: Time,
}

impl Flight {
    /// Bytes of the answer, its header not counted.
    pub fn bytes(&self, geometry: &Geometry) -> u64 {
        let sliced = self.slice.and_then(|slice| slice.length(geometry, self.chunk));
        sliced.map_or_else(|| geometry.length(self.chunk), |bytes| bytes as u64)
    }
}

/// The requests in flight of one machine.
#[derive(Debug, Default)]
pub struct Flights(Numbered<Flight>);

impl Flights {
    /// Adds a request. Numbers grow; a reused number is a defect of the core.
    pub fn insert(&mut self, request: RequestId, flight: Flight) {
        assert!(self.0.insert(request.0, flight), "request number {request:?} is used twice");
    }

    /// The request with this number, if it has not ended.
    pub fn get_mut(&mut self, request: RequestId) -> Option<&mut Flight> {
        self.0.get_mut(request.0)
    }

    /// Like [`Flights::get_mut`], shared.
    pub fn get(&self, request: RequestId) -> Option<&Flight> {
        self.0.get(request.0)
    }

    /// Removes a request that has ended.
    pub fn remove(&mut self, request: RequestId) -> Option<Flight> {
        self.0.remove(request.0)
    }

    /// The core wants nothing of an image any more.
    pub fn cancel_image(&mut self, image: u16) {
        let of_image = self.0.iter().filter(|(_, flight)| flight.image == image);
        for request in of_image.map(|(request, _)| request).collect::<Vec<_>>() {
            self.0.get_mut(request).expect("it is in flight").cancelled = true;
        }
    }

    /// Removes all requests without any notice.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All requests, by number.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &Flight)> {
        self.0.iter().map(|(request, flight)| (RequestId(request), flight))
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
