//! Reading through an overlay: runs of the base's pieces, of copies of held granules, and of zeros.
//!
//! The base's granules are read as without an overlay. Held granules are copied, under their area's
//! lock: their pages may be overwritten as soon as the lock is gone, when a socket may still be
//! sending.

use crate::granule::{AREA_BYTES, GRANULE_BYTES, State, granules_in};
use crate::inner::Inner;
use bytes::Bytes;
use std::io;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocation, Piece, ReadError};

/// Runs of one answer about allocation, as many as a node gives.
const RUNS_MAX: usize = 4096;

/// The first run of an extent.
enum Run {
    Base(Extent),
    Zero(u64),
    Held(Bytes),
}

impl Run {
    fn len(&self) -> u64 {
        match self {
            Self::Base(extent) => extent.len(),
            Self::Zero(length) => *length,
            Self::Held(bytes) => bytes.len() as u64,
        }
    }
}

impl Inner {
    /// The state at the start of `extent` (not empty), and the part of it that has this state.
    fn state(&self, extent: Extent) -> (State, Extent) {
        let granules = extent.start() / GRANULE_BYTES..extent.end().div_ceil(GRANULE_BYTES);
        let (state, end) = self.map.run(granules);
        (state, extent.clip(Extent::from(extent.start()..end * GRANULE_BYTES)))
    }

    /// The run that begins `extent` (not empty), with bytes as [`Self::copy`] gives them.
    fn run(&self, extent: Extent, now: bool) -> io::Result<Run> {
        loop {
            return Ok(match self.state(extent) {
                (State::Base, part) => Run::Base(part),
                (State::Zero, part) => Run::Zero(part.len()),
                (State::Held, part) => match self.copy(part, now)? {
                    Some(bytes) => Run::Held(bytes),
                    // The state has changed since.
                    None => continue,
                },
            });
        }
    }

    /// The bytes at the start of `extent`, as far as they are held within one area; `None` if they
    /// are not held. `now`: without a wait, or it fails.
    fn copy(&self, extent: Extent, now: bool) -> io::Result<Option<Bytes>> {
        let area = extent.start() / AREA_BYTES;
        let part = extent.take(AREA_BYTES - extent.start() % AREA_BYTES);
        let _guard = match now {
            true => self.try_lock_to_read(area).ok_or(io::ErrorKind::WouldBlock)?,
            false => self.lock_to_read(area),
        };
        let (states, granules) = (self.map.load(area), granules_in(part));
        if states.get(granules.start) != State::Held {
            return Ok(None);
        }
        let end = area * AREA_BYTES + states.run_end(granules) as u64 * GRANULE_BYTES;
        let mut bytes = vec![0; part.clip(Extent::from(part.start()..end)).len() as usize];
        match now {
            true => self.medium.read_now(part.start(), &mut bytes)?,
            false => self.medium.read(part.start(), &mut bytes)?,
        }
        Ok(Some(bytes.into()))
    }

    /// The part of `extent` that the base has; what the device has beyond it is zeros.
    fn in_base(&self, extent: Extent) -> Extent {
        extent.clip(Extent::from(0..self.base.size_bytes()))
    }

    fn push_base(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        let known = self.in_base(extent);
        if !known.is_empty() && !self.base.try_read(known, pieces) {
            return false;
        }
        if known.len() < extent.len() {
            pieces.push(Piece::Zero(extent.len() - known.len()));
        }
        true
    }

    /// Appends the pieces of as long a part of `extent`, from its start, as needs no waiting for
    /// the base; returns its length. `now`: nor for the medium, or it fails.
    fn push_here(&self, extent: Extent, pieces: &mut Vec<Piece>, now: bool) -> io::Result<u64> {
        let mut rest = extent;
        while !rest.is_empty() {
            let run = self.run(rest, now)?;
            let length = run.len();
            match run {
                Run::Base(part) if !self.push_base(part, pieces) => break,
                Run::Base(_) => {}
                Run::Zero(length) => pieces.push(Piece::Zero(length)),
                Run::Held(bytes) => pieces.push(Piece::Bytes(bytes)),
            }
            rest = rest.skip(length);
        }
        Ok(extent.len() - rest.len())
    }

    /// Like [`vfield_block::source::BlockSource::try_read`]; an error of the medium is left to
    /// [`Self::read`].
    pub fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        let before = pieces.len();
        // In memory nothing takes long.
        let now = !self.medium.is_volatile();
        let here = self.push_here(extent, pieces, now).is_ok_and(|length| length == extent.len());
        if !here {
            pieces.truncate(before);
        }
        here
    }

    /// The overlay's [`vfield_block::source::BlockSource::read`].
    pub async fn read(&self, extent: Extent) -> Result<Vec<Piece>, ReadError> {
        let mut pieces = Vec::new();
        let here = self.apart(|| self.push_here(extent, &mut pieces, false));
        let here = here.map_err(|error| ReadError::Io(extent, error.to_string()))?;
        if here > 0 || extent.is_empty() {
            return Ok(pieces);
        }
        let (_, part) = self.state(extent);
        let later = extent.skip(part.len());
        if !later.is_empty() {
            self.prefetch(later, vfield_block::source::Urgency::Now);
        }
        // Not padded: callers that need more than the base has ask again. A part beyond the base is
        // here.
        let known = self.in_base(part);
        if known.is_empty() {
            return Ok(vec![Piece::Zero(part.len())]);
        }
        self.base.read(known).await
    }

    /// The overlay's [`vfield_block::source::BlockSource::prefetch`].
    pub fn prefetch(&self, extent: Extent, urgency: vfield_block::source::Urgency) {
        let mut rest = extent;
        while !rest.is_empty() {
            let (state, part) = self.state(rest);
            let known = self.in_base(part);
            if state == State::Base && !known.is_empty() {
                self.base.prefetch(known, urgency);
            }
            rest = rest.skip(part.len());
        }
    }

    /// The overlay's [`vfield_block::source::BlockSource::allocation`].
    pub async fn allocation(&self, extent: Extent) -> Result<Vec<Allocation>, ReadError> {
        let mut runs = Vec::new();
        let mut rest = extent;
        while !rest.is_empty() && runs.len() < RUNS_MAX {
            let (state, part) = self.state(rest);
            let known = self.in_base(part);
            let before = runs.len();
            match state {
                State::Base if !known.is_empty() => runs.extend(self.base.allocation(known).await?),
                State::Base | State::Zero => runs.push(Allocation { length_bytes: part.len(), zero: true }),
                State::Held => runs.push(Allocation { length_bytes: part.len(), zero: false }),
            }
            let told: u64 = runs[before..].iter().map(|run| run.length_bytes).sum();
            if told == 0 {
                return Err(ReadError::Io(known, "the source does not know".into()));
            }
            rest = rest.skip(told);
        }
        Ok(runs)
    }
}
