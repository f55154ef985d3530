//! Writing to an overlay: whole granules at once, parts of granules over their present bytes.
//!
//! A part of a granule of the base needs the rest of it. That is read first, without a lock. Then
//! the area is locked and checked again, since another writer may have changed it in the meantime.

use crate::granule::{AREA_BYTES, Area, GRANULE_BYTES, State, by_area, granules_in};
use crate::inner::Inner;
use crate::medium::is_full;
use crate::room::Room;
use bytes::Bytes;
use rustix::io::Errno;
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use vfield_block::device::WriteError;
use vfield_block::extent::Extent;
use vfield_block::source::{Piece, ReadError};

const GRANULE: usize = GRANULE_BYTES as usize;

/// The source of zeros.
static ZEROS: [u8; GRANULE] = [0; GRANULE];

/// Granules of the base around the ends of a change: where each begins, and all of its bytes.
#[derive(Default)]
pub struct Ends(Vec<(u64, Vec<u8>)>);

/// The change of a run of granules: their new state, and the bytes with their offset.
type Step<'a> = (Range<usize>, State, Option<(u64, Cow<'a, [u8]>)>);

impl Inner {
    /// Granules of the base that a change of `extent` (not empty) needs: its first and its last,
    /// where it does not cover them.
    fn needed(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let (first, last) = (self.cut.around(extent.start()), self.cut.around(extent.end() - 1));
        let ends = [Some(first), (last != first).then_some(last)];
        let covered = move |end: &Extent| end.clip(extent).len() == end.len();
        let ends = ends.into_iter().flatten().filter(move |end| !covered(end));
        ends.filter(|end| self.map.run(granule_of(*end)).0 == State::Base)
    }

    /// The ends of a change, if they need no waiting.
    pub fn try_ends(&self, extent: Extent) -> Option<Result<Ends, ReadError>> {
        let mut ends = Ends::default();
        for end in self.needed(extent) {
            let (known, mut pieces) = (end.clip(Extent::from(0..self.base.size_bytes())), Vec::new());
            if !known.is_empty() && !self.base.try_read(known, &mut pieces) {
                return None;
            }
            match gather(end, &pieces) {
                Ok(granule) => ends.0.push((end.start(), granule)),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(ends))
    }

    /// The ends of a change, waited for.
    pub async fn ends(&self, extent: Extent) -> Result<Ends, ReadError> {
        let mut ends = Ends::default();
        let needed: Vec<Extent> = self.needed(extent).collect();
        for end in needed {
            let mut rest = end.clip(Extent::from(0..self.base.size_bytes()));
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let found = self.base.read(rest).await?;
                let length: u64 = found.iter().map(Piece::len).sum();
                if length == 0 || length > rest.len() {
                    return Err(ReadError::Io(rest, format!("the source gave {length} bytes")));
                }
                rest = rest.skip(length);
                pieces.extend(found);
            }
            ends.0.push((end.start(), gather(end, &pieces)?));
        }
        Ok(ends)
    }

    /// Writes `bytes` at `extent`, which has their length, if nothing has to be waited for.
    pub fn try_write(&self, extent: Extent, bytes: &[u8]) -> Option<Result<(), WriteError>> {
        if extent.is_empty() {
            return Some(Ok(()));
        }
        let ends = match self.try_ends(extent)? {
            Ok(ends) => ends,
            Err(error) => return Some(Err(error.into())),
        };
        // An end that has just become the base's again: as if it had to be waited for.
        match self.apart(|| self.put(extent, bytes, &ends)) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// True if a change of all of `extent` finds room at this moment, its ends aside.
    pub fn finds_room(&self, extent: Extent) -> bool {
        self.room.has(self.not_held(self.cut.whole(extent)))
    }

    /// The number of granules of `whole` that are not held now.
    fn not_held(&self, whole: Extent) -> u64 {
        let (mut at, end) = (whole.start() / GRANULE_BYTES, whole.end().div_ceil(GRANULE_BYTES));
        let mut count = 0;
        while at < end {
            let (state, run_end) = self.map.run(at..end);
            count += if state == State::Held { 0 } else { run_end - at };
            at = run_end;
        }
        count
    }

    /// Writes `bytes` at the start of `extent`, which has their length. False if an end is missing
    /// in `ends`, as it has become the base's since they were read: then read them again and
    /// repeat. A write to several areas takes its room before the first of them is changed, so it
    /// is refused as a whole.
    pub fn put(&self, extent: Extent, bytes: &[u8], ends: &Ends) -> Result<bool, WriteError> {
        let mut claim = Claim { room: &self.room, granules: 0 };
        if extent.start() / AREA_BYTES != (extent.end().max(1) - 1) / AREA_BYTES {
            claim.take(self.wanted(extent, bytes))?;
        }
        for (area, part) in by_area(extent) {
            let from = (part.start() - extent.start()) as usize;
            if !self.put_in_area(area, part, &bytes[from..from + part.len() as usize], ends, &mut claim)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of granules that a write newly holds. An end that comes out as zeros needs none,
    /// which only bytes of zeros can bring about; it is counted later.
    fn wanted(&self, extent: Extent, bytes: &[u8]) -> u64 {
        let whole = self.cut.whole(extent);
        let ends = [extent.start()..whole.start(), whole.end()..extent.end()].map(Extent::from);
        let at = |end: Extent| &bytes[(end.start() - extent.start()) as usize..(end.end() - extent.start()) as usize];
        let counted = ends.into_iter().filter(|end| at(*end).iter().any(|byte| *byte != 0));
        let partial: u64 = counted.map(|end| self.not_held(self.cut.around(end.start()))).sum();
        self.not_held(whole) + partial
    }

    fn put_in_area(
        &self,
        area: u64,
        part: Extent,
        bytes: &[u8],
        ends: &Ends,
        claim: &mut Claim<'_>,
    ) -> Result<bool, WriteError> {
        let _guard = self.lock_to_write(area);
        let before = self.map.load(area);
        let Some(steps) = self.steps(&before, part, bytes, ends) else { return Ok(false) };
        let mut after = before;
        for (granules, state, _) in &steps {
            after.set(granules.clone(), *state);
        }
        let fresh = after.held().saturating_sub(before.held());
        claim.use_up(fresh)?;
        self.preserve(area, granules_in(part));
        let mut written = steps.iter().filter_map(|step| step.2.as_ref());
        let written = written.try_for_each(|(offset, bytes)| self.medium.write(*offset, bytes));
        // The bytes change in any case, which a flush has to put on the disk; the states need not.
        let changed = after != before;
        let told = written.and_then(|()| if changed { self.tell(area, &after) } else { Ok(()) });
        if let Err(error) = told {
            self.take_back(area, &before, granules_in(part));
            self.room.give_back(fresh);
            return Err(explain(&error));
        }
        if changed {
            self.settle(area, &before, &after);
        }
        Ok(true)
    }

    /// The steps that write `bytes` at `part`, which lies in one area; `None` if an end is missing.
    fn steps<'a>(&self, before: &Area, part: Extent, bytes: &'a [u8], ends: &Ends) -> Option<Vec<Step<'a>>> {
        let mut steps = Vec::with_capacity(3);
        let whole = self.cut.whole(part);
        let at =
            |extent: Extent| &bytes[(extent.start() - part.start()) as usize..(extent.end() - part.start()) as usize];
        let partials = if whole.is_empty() {
            // It may still be in two granules.
            let border = self.cut.around(part.start()).end().min(part.end());
            [part.start()..border, border..part.end()]
        } else {
            steps.push((granules_in(whole), State::Held, Some((whole.start(), at(whole).into()))));
            [part.start()..whole.start(), whole.end()..part.end()]
        };
        for partial in partials.map(Extent::from).into_iter().filter(|partial| !partial.is_empty()) {
            steps.push(self.merge(before, partial, at(partial), ends)?);
        }
        Some(steps)
    }

    /// A change to a part of one granule.
    fn merge<'a>(&self, before: &Area, partial: Extent, bytes: &'a [u8], ends: &Ends) -> Option<Step<'a>> {
        let (granule, whole) = (granules_in(partial), self.cut.around(partial.start()));
        let mut merged = match before.get(granule.start) {
            State::Held => return Some((granule, State::Held, Some((partial.start(), bytes.into())))),
            State::Zero => vec![0; GRANULE],
            State::Base => ends.0.iter().find(|(start, _)| *start == whole.start())?.1.clone(),
        };
        let from = (partial.start() - whole.start()) as usize;
        merged[from..from + bytes.len()].copy_from_slice(bytes);
        if merged == ZEROS {
            return Some((granule, State::Zero, None));
        }
        Some((granule, State::Held, Some((whole.start(), merged.into()))))
    }

    /// A write failed half-way: what it has put where nothing is held is given back.
    fn take_back(&self, area: u64, before: &Area, granules: Range<usize>) {
        let empty = granules.filter(|granule| before.get(*granule) != State::Held);
        for granule in empty {
            let start = area * AREA_BYTES + granule as u64 * GRANULE_BYTES;
            if let Err(error) = self.medium.punch(start..start + GRANULE_BYTES) {
                tracing::warn!(%error, "returning the room of a failed write failed");
            }
        }
    }

    /// Makes whole granules read as zeros and gives their room back.
    pub fn clear(&self, whole: Extent) -> Result<(), WriteError> {
        for (area, part) in by_area(whole) {
            let granules = granules_in(part);
            let _guard = self.lock_to_write(area);
            let before = self.map.load(area);
            let mut after = before;
            after.set(granules.clone(), State::Zero);
            if after == before {
                continue;
            }
            let held = before.held_in(granules.clone());
            if held > 0 {
                self.preserve(area, granules);
                let end = part.end().next_multiple_of(GRANULE_BYTES);
                self.medium.punch(part.start()..end).map_err(|error| explain(&error))?;
            }
            self.tell(area, &after).map_err(|error| explain(&error))?;
            self.settle(area, &before, &after);
            self.room.give_back(held);
        }
        Ok(())
    }

    /// Records the result of a change of `extent`, for later flushes; logs the first refusal.
    pub fn account(&self, extent: Extent, done: Result<(), WriteError>) -> Result<(), WriteError> {
        let image = self.base.name();
        match &done {
            _ if extent.is_empty() => {}
            Ok(()) if self.refused.strike(extent) => {
                tracing::warn!(image, "all refused writes are repeated or discarded: flushes succeed again");
            }
            Ok(()) => {}
            Err(error) if !self.refused.add(extent, error) => {}
            Err(WriteError::Full) => tracing::error!(
                image,
                held_bytes = self.room.held_bytes(),
                max_bytes = self.room.max_bytes(),
                "the overlay is full: writes fail with ENOSPC, and flushes fail until the refused writes are repeated or \
                 discarded. `vfield overlay reset` drops all changes; to keep them, `vfield overlay save FILE` and start again \
                 with --overlay-from FILE and a larger --overlay-size"
            ),
            Err(error) => tracing::error!(
                image, %error,
                "a write was refused: flushes fail until it is repeated or discarded, or until `vfield overlay reset`"
            ),
        }
        done
    }

    /// Writes, waiting for the base's bytes around it if need be.
    pub async fn write(&self, extent: Extent, bytes: &[u8]) -> Result<(), WriteError> {
        while !extent.is_empty() {
            let ends = self.ends(extent).await?;
            if self.apart(|| self.put(extent, bytes, &ends))? {
                break;
            }
        }
        Ok(())
    }

    /// Zeros, waiting for the base's bytes around it if need be.
    pub async fn zero(&self, extent: Extent) -> Result<(), WriteError> {
        let whole = self.cut.whole(extent);
        let parts = if whole.is_empty() {
            // Less than two granules.
            [extent, extent.take(0)]
        } else {
            [Extent::from(extent.start()..whole.start()), Extent::from(whole.end()..extent.end())]
        };
        let zeros = Bytes::from_static(&[0; 2 * GRANULE]);
        for part in parts {
            self.write(part, &zeros[..part.len() as usize]).await?;
        }
        self.apart(|| self.clear(whole))
    }
}

/// Room taken before its use; dropping it returns the rest.
struct Claim<'a> {
    room: &'a Room,
    granules: u64,
}

impl Claim<'_> {
    fn take(&mut self, granules: u64) -> Result<(), WriteError> {
        if !self.room.take(granules) {
            return Err(WriteError::Full);
        }
        self.granules += granules;
        Ok(())
    }

    /// Uses room up, some more than was claimed if need be.
    fn use_up(&mut self, granules: u64) -> Result<(), WriteError> {
        self.take(granules.saturating_sub(self.granules))?;
        self.granules -= granules;
        Ok(())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.room.give_back(self.granules);
    }
}

/// The granule number of an extent that is one, as a range.
fn granule_of(granule: Extent) -> Range<u64> {
    let number = granule.start() / GRANULE_BYTES;
    number..number + 1
}

fn explain(error: &io::Error) -> WriteError {
    if is_full(error) { WriteError::Full } else { WriteError::Io(error.to_string()) }
}

/// The bytes of `pieces` as a whole granule, with zeros after them.
fn gather(granule: Extent, pieces: &[Piece]) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; GRANULE];
    let mut filled = 0;
    for piece in pieces {
        let length = piece.len() as usize;
        let room = bytes.get_mut(filled..filled + length);
        let room = room.ok_or_else(|| ReadError::Io(granule, "the source answered more than was asked for".into()))?;
        match piece {
            Piece::Zero(_) => {}
            Piece::Bytes(bytes) => room.copy_from_slice(bytes),
            Piece::File(file) => {
                let mut done = 0;
                while done < room.len() {
                    match rustix::io::pread(file.fd(), &mut room[done..], file.offset() + done as u64) {
                        Ok(0) => return Err(ReadError::Io(granule, format!("the file of {file:?} ends early"))),
                        Ok(count) => done += count,
                        Err(Errno::INTR) => {}
                        Err(errno) => return Err(ReadError::Io(granule, errno.to_string())),
                    }
                }
            }
        }
        filled += length;
    }
    Ok(bytes)
}
