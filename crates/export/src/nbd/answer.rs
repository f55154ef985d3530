//! From judged requests to the bytes of their answers.
//!
//! Owns the requests in flight of one connection: reads, status requests and changes that wait for
//! the source, long reads that wait for room, and the outbox. Invariants: a long read is taken in
//! windows, so it never holds more of the source than one of them; a reply whose header is out is
//! finished before anything else is added, or the connection ends; all other answers go out in the
//! order in which they are ready. The connection calls it and decides how much it may take on.

use super::Limits;
use super::advice::Advice;
use super::budget::Budget;
use super::codec::{Errno, reply};
use super::collect::{Found, collect};
use super::connection::End;
use super::outbox::Outbox;
use super::session::{Change, Form, Kind, Session, Verdict};
use super::upload::{Late, Upload, refusal};
use super::waits::{Waiting, Waits};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use vfield_block::device::WriteError;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocation, BlockSource, Piece, ReadError, Urgency};

/// How much of a read is looked for, waited for and held at a time. A simple reply of up to this
/// length is complete before its header is sent, so that an error can still be reported as one; it
/// is what the Linux kernel's and QEMU's requests stay below.
const WINDOW_BYTES: u64 = 1 << 20;

/// Zeros from this length on are sent as a hole of their own. A hole costs two chunk headers, 60
/// bytes, and the client the handling of them, about as much as copying a page.
const HOLE_BYTES_MIN: u64 = 4 << 10;

/// A read that has not been answered to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) cookie: u64,
    pub(super) form: Form,
    /// Its remaining extent of the device.
    pub(super) rest: Extent,
    /// Its length from the first byte on.
    pub(super) length: u32,
    /// The header of a reply in one piece is out: there is no way back.
    pub(super) begun: bool,
}

impl Read {
    /// The next part, cut where windows of the image end so that chunks are not looked up twice.
    fn window(&self) -> Extent {
        self.rest.take(WINDOW_BYTES - self.rest.start() % WINDOW_BYTES)
    }
}

/// A status request that waits for the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) cookie: u64,
    pub(super) extent: Extent,
    pub(super) one: bool,
}

/// Requests without their whole answer, which another process goes on with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// At most one is begun in one piece, and then the outbox ends in it.
    pub(super) reads: Vec<Read>,
    pub(super) statuses: Vec<Status>,
    /// Cookies of advice, which is not followed any further.
    pub(super) advice: Vec<u64>,
}

/// A change that waits for the source.
#[derive(Debug, Clone, Copy)]
struct Changing {
    cookie: u64,
    /// Bytes of it that are kept until it is done.
    kept_bytes: u64,
}

/// Requests in flight of one client.
pub(super) struct Answers {
    source: Arc<dyn BlockSource>,
    session: Session,
    pub(super) outbox: Outbox,
    reads: Waits<Read, Found>,
    /// Bytes that `reads` wait for, and that `changes` keep.
    waiting_bytes: u64,
    statuses: Waits<Status, Result<Vec<Allocation>, ReadError>>,
    changes: Waits<Changing, Result<(), WriteError>>,
    advice: Advice,
    /// What windows that wait may keep in place.
    held: Budget,
    /// Long reads in several chunks that go on when there is room.
    stalled: VecDeque<Read>,
    /// A long read in one piece, half sent, and what it waits for.
    stream: Option<(Read, Option<Waiting<Found>>)>,
    /// Kept for its allocation.
    pieces: Vec<Piece>,
}

impl Answers {
    pub(super) fn new(source: Arc<dyn BlockSource>, session: Session, advice: Advice, held: Budget) -> Self {
        Self {
            source,
            session,
            outbox: Outbox::default(),
            reads: Waits::new(),
            waiting_bytes: 0,
            statuses: Waits::new(),
            changes: Waits::new(),
            advice,
            held,
            stalled: VecDeque::new(),
            stream: None,
            pieces: Vec::new(),
        }
    }

    /// True if no request is in flight, the outbox aside.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting() == 0 && self.stalled.is_empty() && self.stream.is_none()
    }

    fn waiting(&self) -> usize {
        self.reads.len() + self.statuses.len() + self.changes.len()
    }

    /// True if another request may be started.
    pub(super) fn may_take_on(&self, limits: &Limits) -> bool {
        self.stream.is_none() && self.waiting() < limits.waiting_requests && self.waiting_bytes < limits.waiting_bytes
    }

    /// Starts a request.
    pub(super) fn start(&mut self, cookie: u64, verdict: Verdict) -> Result<(), End> {
        match verdict {
            Verdict::Read(form, rest) => {
                let length = rest.len() as u32;
                return self.advance(Read { cookie, form, rest, length, begun: false });
            }
            Verdict::ReadNothing(Form::Chunks | Form::Whole) => self.outbox.write(|out| reply::none(out, cookie)),
            Verdict::Status { extent, one } => self.start_status(Status { cookie, extent, one }),
            Verdict::Cache(extent) => {
                if !self.advice.take(&self.source, cookie, self.session.stored(extent)) {
                    self.outbox.write(|out| reply::simple(out, cookie, None));
                }
            }
            Verdict::ReadNothing(Form::Simple) | Verdict::Done => {
                self.outbox.write(|out| reply::simple(out, cookie, None));
            }
            Verdict::Change(change) => self.start_change(cookie, change, Vec::new()),
            Verdict::Refuse(errno, why) => self.fail(cookie, errno, why),
            Verdict::Disconnect => {}
        }
        Ok(())
    }

    /// Finishes a write whose payload is here.
    pub(super) fn finish(&mut self, upload: Upload) {
        let (cookie, change) = (upload.cookie, upload.change);
        match upload.outcome() {
            Err((errno, why)) => self.fail(cookie, errno, &why),
            Ok(late) => self.start_change(cookie, change, late),
        }
    }

    /// Completes a change: `late` are the parts of a write that have to wait.
    fn start_change(&mut self, cookie: u64, change: Change, late: Vec<Late>) {
        if change.kind == Kind::Write && late.is_empty() && !change.durable {
            return self.tell_change(cookie, Ok(()));
        }
        let kept_bytes = late.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        self.waiting_bytes += kept_bytes;
        let done = Box::pin(make(self.source.clone(), change, late));
        self.changes.push(Changing { cookie, kept_bytes }, done);
    }

    fn tell_change(&mut self, cookie: u64, done: Result<(), WriteError>) {
        match done {
            Ok(()) => self.outbox.write(|out| reply::simple(out, cookie, None)),
            Err(error) => {
                let (errno, why) = refusal(&error);
                tracing::debug!(why, "a change failed");
                self.fail(cookie, errno, &why);
            }
        }
    }

    /// Goes on with one thing that was under way; false if all of them wait.
    pub(super) fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        match self.stream.take() {
            None => {}
            Some((read, None)) => return self.advance(read).map(|()| true),
            Some((read, Some(mut wait))) => match wait.as_mut().poll(cx) {
                Poll::Ready(found) => return self.settle(read, found).map(|()| true),
                Poll::Pending => {
                    self.stream = Some((read, Some(wait)));
                    return Ok(false);
                }
            },
        }
        if let Poll::Ready((read, found)) = self.reads.poll_next(cx) {
            self.waiting_bytes -= read.window().len();
            return self.settle(read, found).map(|()| true);
        }
        if let Poll::Ready((status, runs)) = self.statuses.poll_next(cx) {
            self.tell_status(status, runs);
            return Ok(true);
        }
        if let Poll::Ready((changing, done)) = self.changes.poll_next(cx) {
            self.waiting_bytes -= changing.kept_bytes;
            self.tell_change(changing.cookie, done);
            return Ok(true);
        }
        if let Some(read) = self.stalled.pop_front() {
            return self.advance(read).map(|()| true);
        }
        if let Poll::Ready(cookie) = self.advice.poll_done(cx) {
            self.outbox.write(|out| reply::simple(out, cookie, None));
            return Ok(true);
        }
        Ok(false)
    }

    /// Answers all advice as if it had been followed: nobody will read.
    pub(super) fn forget_advice(&mut self) {
        self.advice.settle();
    }

    /// The client is gone: nothing that waits is of use any more.
    pub(super) fn give_up(&mut self) {
        self.reads.cancel();
        self.statuses.cancel();
        self.changes.cancel();
        self.advice.give_up();
        self.stalled.clear();
        self.stream = None;
        self.waiting_bytes = 0;
    }

    /// Gives up all waiting requests, for another process to go on with. `None` if a change is
    /// under way, which only this process can finish.
    pub(super) fn leave(&mut self) -> Option<Left> {
        if self.changes.len() > 0 {
            return None;
        }
        let stream = self.stream.take().map(|(read, _)| read);
        let reads = self.reads.cancel().into_iter().chain(self.stalled.drain(..)).chain(stream).collect();
        self.waiting_bytes = 0;
        Some(Left { reads, statuses: self.statuses.cancel(), advice: self.advice.give_up() })
    }

    /// Goes on with what another process left.
    pub(super) fn resume(&mut self, left: Left) {
        let (begun, others): (Vec<Read>, Vec<Read>) = left.reads.into_iter().partition(|read| read.begun);
        // Its beginning is what the client has seen last: nothing goes out before its rest.
        self.stream = begun.into_iter().next().map(|read| (read, None));
        self.stalled.extend(others);
        left.statuses.into_iter().for_each(|status| self.start_status(status));
        self.advice.owe(left.advice);
    }

    /// Answers everything that is under way with an error.
    pub(super) fn refuse_waiting(&mut self, errno: Errno, why: &str) -> Result<(), End> {
        if self.stream.is_some() {
            return Err(End::Unfinished(why.to_owned()));
        }
        let reads = self.reads.cancel().into_iter().chain(self.stalled.drain(..)).collect::<Vec<_>>();
        let statuses = self.statuses.cancel();
        let changes = self.changes.cancel();
        self.waiting_bytes = 0;
        for read in reads {
            self.fail(read.cookie, errno, why);
        }
        for cookie in statuses.iter().map(|status| status.cookie).chain(changes.iter().map(|change| change.cookie)) {
            self.fail(cookie, errno, why);
        }
        Ok(())
    }

    /// Answers the next window of a read if it is here, and waits for it otherwise.
    fn advance(&mut self, read: Read) -> Result<(), End> {
        let window = read.window();
        let stored = self.session.stored(window);
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        if stored.is_empty() || self.source.try_read(stored, &mut pieces) {
            let delivered = self.deliver(read, &mut pieces);
            pieces.clear();
            self.pieces = pieces;
            return delivered;
        }
        self.pieces = pieces;
        let later = self.session.stored(read.rest.skip(window.len()));
        if !later.is_empty() {
            self.source.prefetch(later, Urgency::Now);
        }
        let found: Waiting<Found> = Box::pin(collect(self.source.clone(), stored, self.held.clone()));
        if read.begun {
            self.stream = Some((read, Some(found)));
        } else {
            self.waiting_bytes += window.len();
            self.reads.push(read, found);
        }
        Ok(())
    }

    fn settle(&mut self, read: Read, found: Found) -> Result<(), End> {
        match found {
            Ok(mut pieces) => self.deliver(read, &mut pieces),
            Err(error) => {
                let errno = match error {
                    ReadError::ShuttingDown | ReadError::Dropped => Errno::Shutdown,
                    ReadError::TimedOut(_) | ReadError::SourceChanged(_) | ReadError::Io(..) => Errno::Io,
                };
                self.fail_read(read, errno, &error.to_string())
            }
        }
    }

    /// Adds the answer for a window to the outbox and goes on to the next one.
    fn deliver(&mut self, read: Read, pieces: &mut Vec<Piece>) -> Result<(), End> {
        let mark = self.outbox.mark();
        if let Err(error) = self.lay_out(read, pieces) {
            self.outbox.rollback(mark);
            return self.fail_read(read, Errno::Io, &format!("reading the stored bytes failed: {error}"));
        }
        let rest = read.rest.skip(read.window().len());
        if rest.is_empty() {
            return Ok(());
        }
        match read.form {
            Form::Chunks => self.stalled.push_back(Read { rest, ..read }),
            Form::Simple | Form::Whole => self.stream = Some((Read { rest, begun: true, ..read }, None)),
        }
        Ok(())
    }

    fn lay_out(&mut self, read: Read, pieces: &mut Vec<Piece>) -> io::Result<()> {
        let window = read.window();
        let stored = self.session.stored(window);
        let found: u64 = pieces.iter().map(Piece::len).sum();
        if found != stored.len() {
            return Err(io::Error::other(format!("the source gave {found} of {} bytes", stored.len())));
        }
        if stored.len() < window.len() {
            pieces.push(Piece::Zero(window.len() - stored.len()));
        }
        let Read { cookie, length, .. } = read;
        match read.form {
            Form::Chunks => return self.lay_out_chunks(read, pieces),
            _ if read.begun => {}
            Form::Simple => self.outbox.write(|out| reply::simple(out, cookie, None)),
            Form::Whole => {
                let offset = window.start();
                let hole = pieces.iter().all(|piece| matches!(piece, Piece::Zero(_)));
                if hole && window == read.rest {
                    self.outbox.write(|out| reply::offset_hole(out, cookie, true, offset, length));
                    return Ok(());
                }
                self.outbox.write(|out| reply::offset_data(out, cookie, true, offset, length));
            }
        }
        pieces.drain(..).try_for_each(|piece| self.outbox.piece(piece))
    }

    fn lay_out_chunks(&mut self, read: Read, pieces: &mut Vec<Piece>) -> io::Result<()> {
        let is_hole = |piece: &Piece| matches!(piece, Piece::Zero(length) if *length >= HOLE_BYTES_MIN);
        let mut offset = read.rest.start();
        let mut pieces = pieces.drain(..);
        while let Some(first) = pieces.as_slice().first() {
            let hole = is_hole(first);
            let run = pieces.as_slice().iter().take_while(|piece| is_hole(piece) == hole);
            let (count, length) = run.fold((0, 0), |(count, length), piece| (count + 1, length + piece.len()));
            let done = offset + length == read.rest.end();
            // A window has less than 2^32 bytes.
            let (at, bytes) = (offset, length as u32);
            if hole {
                self.outbox.write(|out| reply::offset_hole(out, read.cookie, done, at, bytes));
                pieces.by_ref().take(count).for_each(drop);
            } else {
                self.outbox.write(|out| reply::offset_data(out, read.cookie, done, at, bytes));
                pieces.by_ref().take(count).try_for_each(|piece| self.outbox.piece(piece))?;
            }
            offset += length;
        }
        Ok(())
    }

    fn start_status(&mut self, status: Status) {
        let stored = self.session.stored(status.extent);
        if stored.is_empty() {
            return self.tell_status(status, Ok(Vec::new()));
        }
        let source = self.source.clone();
        self.statuses.push(status, Box::pin(async move { source.allocation(stored).await }));
    }

    fn tell_status(&mut self, status: Status, runs: Result<Vec<Allocation>, ReadError>) {
        let Status { cookie, extent, one } = status;
        match runs {
            Ok(runs) => {
                let runs = self.session.status(extent, one, &runs);
                if runs.is_empty() {
                    return self.fail(cookie, Errno::Io, "the source does not know");
                }
                self.outbox.write(|out| reply::block_status(out, cookie, &runs));
            }
            Err(ReadError::ShuttingDown) => self.fail(cookie, Errno::Shutdown, "the server is stopping"),
            Err(error @ ReadError::Dropped) => self.fail(cookie, Errno::Shutdown, &error.to_string()),
            Err(error) => self.fail(cookie, Errno::Io, &error.to_string()),
        }
    }

    fn fail_read(&mut self, read: Read, errno: Errno, why: &str) -> Result<(), End> {
        if read.begun {
            return Err(End::Unfinished(why.to_owned()));
        }
        tracing::warn!(extent = ?read.rest, why, "a read failed");
        self.fail(read.cookie, errno, why);
        Ok(())
    }

    fn fail(&mut self, cookie: u64, errno: Errno, why: &str) {
        let structured = self.session.structured();
        self.outbox.write(|out| match structured {
            true => reply::error(out, cookie, errno, why),
            false => reply::simple(out, cookie, Some(errno)),
        });
    }
}

/// Makes a change; for a write, its remaining parts.
async fn make(source: Arc<dyn BlockSource>, change: Change, late: Vec<Late>) -> Result<(), WriteError> {
    let Some(device) = source.device() else { return Err(WriteError::Io("the source is read-only".into())) };
    match change.kind {
        Kind::Write => {
            for (offset, bytes) in late {
                device.write(offset, bytes).await?;
            }
        }
        Kind::Zero => device.zero(change.extent).await?,
        Kind::Trim => device.discard(change.extent)?,
        Kind::Flush => return device.flush().await,
    }
    if change.durable { device.flush().await } else { Ok(()) }
}
