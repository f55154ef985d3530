//! A trace: what this node did for each chunk, and when, while somebody records it.
//!
//! Owns a bounded list of marks. The driver, lanes and connections add to it; a [`Recording`] takes
//! out what there is. While nobody records, a mark costs one load of an atomic. If the list is
//! full, marks are counted and dropped: the node never waits for whoever records.
//!
//! A read that finds its chunks here leaves no mark, since it does not come to the driver.

use crate::driver::Driver;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{STAGES, Stage};
use vfield_core::image::ImageId;
use vfield_core::node::{Input, Node as Core, Output};
use vfield_core::time::Time;
use vfield_core::wire::Priority;

/// Most marks that wait to be taken, some 4 MiB: more than a second of a storm at 1 Gbit/s, and a
/// recorder comes many times a second.
const MARKS_MAX: usize = 32 << 10;

/// A part of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// What happened, nearly in the order of time.
    pub events: Vec<TraceEvent>,
    /// Events that found no room since the part before.
    pub missed: u64,
}

/// What happened, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Microseconds since the recording began.
    pub at_us: u64,
    /// The chunk that it is about; nothing if the request or the read says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Place>,
    /// The step, with its numbers.
    #[serde(flatten)]
    pub did: Did,
}

/// A chunk, or a page of hashes, by the name of its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The image's name.
    pub image: String,
    /// Number of the chunk; pages come after data.
    pub chunk: u64,
    /// Offset of a chunk of data in the image; none of a page of hashes.
    pub offset_bytes: Option<u64>,
}

/// A step of a read, a fetch, a request or a peer's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum Did {
    /// A read of this machine begins to wait for the chunk.
    ReadBegan {
        /// Its number on this node.
        read: u64,
    },
    /// A read waits no more.
    ReadEnded {
        /// The number that the read began with.
        read: u64,
        /// How, in words.
        how: Cow<'static, str>,
    },
    /// A fetch is at this stage from now on.
    Fetch {
        /// The stage in words; none once the fetch has ended.
        stage: Option<Cow<'static, str>>,
        /// The peer whose window it waits for.
        peer: Option<SocketAddr>,
    },
    /// A peer was asked.
    Asked {
        /// The request's number on this node.
        request: u64,
        /// The peer's address.
        peer: SocketAddr,
        /// The request's priority, in words.
        priority: Cow<'static, str>,
        /// True if a part of the chunk is enough.
        slice: bool,
    },
    /// An answer is complete and was checked.
    Came {
        /// The request's number.
        request: u64,
        /// Bytes of the answer.
        bytes: u64,
        /// Microseconds from its first byte to its last.
        took_us: u64,
        /// Microseconds of hashing.
        check_us: u64,
        /// For how many milliseconds the peer waited for the chunk itself, as it says.
        peer_waited_ms: u64,
    },
    /// A request has ended.
    Answered {
        /// The request's number.
        request: u64,
        /// How, in words.
        how: Cow<'static, str>,
    },
    /// The chunk belongs to the store from now on.
    Stored,
    /// The chunk was dropped.
    Evicted,
    /// A peer asks this node.
    PeerAsks {
        /// The connection's number on this node.
        connection: u64,
        /// The request's number on that connection.
        request: u64,
        /// The peer's address.
        peer: SocketAddr,
        /// The request's priority, in words.
        priority: Cow<'static, str>,
    },
    /// The answer's turn has come.
    Sending {
        /// The connection's number.
        connection: u64,
        /// The request's number.
        request: u64,
    },
    /// The kernel has all of the answer.
    Sent {
        /// The connection's number.
        connection: u64,
        /// The request's number.
        request: u64,
        /// Bytes of chunks; 0 if the request was refused.
        bytes: u64,
    },
}

/// What happened, before it has names.
#[derive(Debug)]
struct Mark {
    at: Time,
    of: Option<(ImageId, Chunk)>,
    did: Did,
}

#[derive(Debug, Default)]
struct Marks {
    list: Vec<Mark>,
    missed: u64,
}

/// Where marks go while somebody records.
#[derive(Debug, Default)]
pub struct Tracer {
    is_on: AtomicBool,
    marks: Mutex<Marks>,
}

impl Tracer {
    /// True while somebody records. A moment late is early enough.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Adds what happened to a chunk; called only while somebody records.
    pub fn note(&self, at: Time, of: Option<(ImageId, Chunk)>, did: Did) {
        let mut marks = self.marks();
        if marks.list.len() < MARKS_MAX {
            marks.list.push(Mark { at, of, did });
        } else {
            marks.missed += 1;
        }
    }

    /// Adds what an input of the core means.
    pub fn input(&self, at: Time, input: &Input) {
        let (of, did) = match input {
            Input::Read { token, image, chunks } => {
                (Some((*image, Chunk(chunks.start))), Did::ReadBegan { read: token.0 })
            }
            Input::ReadSlice { token, image, chunk, .. } => (Some((*image, *chunk)), Did::ReadBegan { read: token.0 }),
            Input::CancelRead(token) => (None, Did::ReadEnded { read: token.0, how: "given up".into() }),
            Input::Arrived { request, .. } => (None, answered(request.0, "arrived")),
            Input::Corrupt(request) => (None, answered(request.0, "wrong bytes")),
            Input::Unusable(request) => (None, answered(request.0, "could not be used")),
            Input::Refused(request, refusal) => (None, answered(request.0, format!("refused: {refusal:?}"))),
            Input::Redirected(request, _) => (None, answered(request.0, "sent elsewhere")),
            Input::Lost(request) => (None, answered(request.0, "lost")),
            _ => return,
        };
        self.note(at, of, did);
    }

    /// Adds what an output of the core means. Requests are noted when they are sent.
    pub fn output(&self, at: Time, output: &Output) {
        let (of, did) = match output {
            Output::Answer(token, result) => {
                let how = result.as_ref().map_or_else(|error| Cow::Owned(error.to_string()), |()| "here".into());
                (None, Did::ReadEnded { read: token.0, how })
            }
            Output::Stored(image, chunk) => (Some((*image, *chunk)), Did::Stored),
            Output::Evict(image, chunk) => (Some((*image, *chunk)), Did::Evicted),
            _ => return,
        };
        self.note(at, of, did);
    }

    /// Adds the moves of fetches since the last time.
    pub fn moves(&self, at: Time, core: &mut Core) {
        for (image, chunk, stage) in core.take_moves() {
            let peer = match stage {
                Some(Stage::Parked(peer)) => core.addr_of(peer),
                _ => None,
            };
            let stage = stage.map(|stage| STAGES[stage.index()].into());
            self.note(at, Some((image, chunk)), Did::Fetch { stage, peer });
        }
    }

    fn take(&self) -> Marks {
        std::mem::take(&mut *self.marks())
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answered(request: u64, how: impl Into<Cow<'static, str>>) -> Did {
    Did::Answered { request, how: how.into() }
}

/// A priority in words.
pub const fn priority_word(priority: Priority) -> Cow<'static, str> {
    Cow::Borrowed(match priority {
        Priority::Demand => "demand",
        Priority::ReadAhead => "read-ahead",
        Priority::Fill => "fill",
    })
}

/// The one recording of a node; it ends with this value.
pub struct Recording {
    driver: Arc<Driver>,
    begun: Time,
}

impl Recording {
    /// Begins, with the stages of the fetches that are under way; `None` while there is another.
    pub(crate) fn begin(driver: &Arc<Driver>) -> Option<Self> {
        let tracer = &driver.tracer;
        if tracer.is_on.swap(true, Ordering::Relaxed) {
            return None;
        }
        drop(tracer.take());
        let begun = driver.now();
        driver.note_moves(true);
        Some(Self { driver: Arc::clone(driver), begun })
    }

    /// What happened since it was called last.
    pub fn take(&mut self) -> Recorded {
        let Marks { list, missed } = self.driver.tracer.take();
        let events = list.into_iter().map(|Mark { at, of, did }| TraceEvent {
            at_us: micros(at - self.begun),
            of: of.and_then(|(image, chunk)| self.place(image, chunk)),
            did,
        });
        Recorded { events: events.collect(), missed }
    }

    /// None of an image that has gone.
    fn place(&self, id: ImageId, chunk: Chunk) -> Option<Place> {
        let image = self.driver.image(id)?;
        let geometry = image.geometry();
        let offset_bytes = geometry.is_data(chunk).then(|| geometry.extent(chunk).start());
        Some(Place { image: image.name().to_owned(), chunk: chunk.0, offset_bytes })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.driver.note_moves(false);
        drop(self.driver.tracer.take());
        self.driver.tracer.is_on.store(false, Ordering::Relaxed);
    }
}

/// Microseconds, as far as 64 bits go.
pub fn micros(period: Duration) -> u64 {
    u64::try_from(period.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let tracer = Tracer::default();
        for _ in 0..MARKS_MAX + 7 {
            tracer.note(Time::ZERO, None, Did::Stored);
        }
        let Marks { list, missed } = tracer.take();
        assert_eq!((list.len(), missed), (MARKS_MAX, 7));
        assert_eq!(tracer.take().missed, 0);
    }
}
