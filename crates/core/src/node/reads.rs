//! Readers of this machine: the chunks that they wait for, and the fetches that follow.

use super::{Node, Output, Serve, Timer};
use crate::chunk::Chunk;
use crate::fetch::{Asker, Beneficiary, Fetch, Stage, Token, Why};
use crate::image::ImageId;
use crate::placement::Holding;
use crate::reach::Reach;
use crate::slow_reads::SlowRead;
use crate::time::Time;
use crate::wire::{Priority, Refusal};
use std::ops::Range;
use std::time::Duration;
use vfield_block::extent::Extent;
use vfield_block::source::ReadError;

/// Time after a miss in which a reader counts as active. A program that computes between its reads
/// does not notice a fill; one that reads without a pause would.
const READING: Duration = Duration::from_millis(200);

/// Reads that no fetch foresaw until a reader is taken for one that reads here and there: more than
/// read-ahead needs to see an order.
const SURPRISES: u32 = 5;

/// A reader that waits for a chunk.
#[derive(Debug)]
pub(super) struct Reader {
    image: ImageId,
    chunk: Chunk,
    since: Time,
    deadline: Option<Time>,
}

impl Node {
    pub(super) fn read(&mut self, token: Token, id: ImageId, chunks: Range<u64>) {
        self.reads_now();
        self.note_surprise(chunks.clone().any(|number| self.is_surprise(id, Chunk(number))));
        for number in chunks.clone() {
            self.want(id, Chunk(number), Priority::Demand, Beneficiary::Reader);
        }
        let chunk = Chunk(chunks.start);
        let Some(goal) = self.goal(id, chunk) else {
            self.out(Output::Answer(token, Err(ReadError::Dropped)));
            return;
        };
        let Some(fetch) = self.fetches.get_mut(goal) else {
            self.out(Output::Answer(token, Ok(())));
            return;
        };
        fetch.waiters.push(token);
        self.note_reader(token, id, chunk);
        if matches!(self.stage(id, chunk), Some(Stage::Waiting)) {
            self.no_source(id, chunk);
        }
    }

    /// True while readers come to chunks that no fetch foresaw. A reader in order, or along a
    /// learned list, finds its chunks here or under way.
    pub(super) fn is_surprised(&self) -> bool {
        self.now < self.surprised_until
    }

    pub(super) fn surprised_now(&mut self) {
        self.surprised_until = self.now + READING;
    }

    /// Counts the reads that no fetch foresaw, less the others. Readers in order begin with a few.
    fn note_surprise(&mut self, is_one: bool) {
        self.surprises = if is_one { SURPRISES.min(self.surprises + 1) } else { self.surprises.saturating_sub(1) };
        if is_one && self.surprises == SURPRISES {
            self.surprised_now();
        }
    }

    /// True for a chunk that is neither here nor under way.
    fn is_surprise(&self, id: ImageId, chunk: Chunk) -> bool {
        self.images.get(&id).is_some_and(|image| !image.inventory.is_here(chunk)) && self.fetch_of(id, chunk).is_none()
    }

    /// Notes that a reader is active.
    pub(super) fn reads_now(&mut self) {
        self.reading_until = self.now + READING;
    }

    /// Notes that a reader waits for a chunk, or for a slice of it.
    pub(super) fn note_reader(&mut self, token: Token, id: ImageId, chunk: Chunk) {
        let deadline = self.config.io_timeout.map(|timeout| self.now + timeout);
        self.reads.insert(token, Reader { image: id, chunk, since: self.now, deadline });
        self.expire_soon(deadline);
    }

    /// Fails the reads of a dropped image.
    pub(super) fn end_reads(&mut self, id: ImageId) {
        let ended = self.reads.iter().filter(|(_, reader)| reader.image == id).map(|(token, _)| *token);
        let ended: Vec<Token> = ended.collect();
        for token in ended {
            self.reads.remove(&token);
            self.out(Output::Answer(token, Err(ReadError::Dropped)));
        }
    }

    /// The first chunk of an image that a reader of this machine waits for.
    pub(super) fn reads_from(&self, id: ImageId) -> Option<Chunk> {
        self.reads.values().filter(|reader| reader.image == id).map(|reader| reader.chunk).min()
    }

    /// Since when a reader of this machine has waited longest for an image, and for which chunk.
    pub(super) fn longest_read(&self, id: ImageId) -> Option<(Time, Chunk)> {
        self.reads.values().filter(|reader| reader.image == id).map(|reader| (reader.since, reader.chunk)).min()
    }

    pub(super) fn cancel_read(&mut self, token: Token) {
        let Some(reader) = self.reads.remove(&token) else { return };
        if let Some(fetch) = self.fetch_mut(reader.image, reader.chunk) {
            fetch.waiters.retain(|waiter| *waiter != token);
            self.drop_unwanted(reader.image, reader.chunk);
        }
        self.forget_slice(reader.image, reader.chunk, token);
    }

    pub(super) fn prefetch(&mut self, id: ImageId, chunks: Range<u64>, priority: Priority) {
        for chunk in chunks.map(Chunk) {
            self.want(id, chunk, priority, Beneficiary::Store);
            if priority == Priority::ReadAhead
                && let Some(fetch) = self.fetch_mut(id, chunk)
            {
                fetch.stream = true;
            }
        }
    }

    /// Makes sure that a chunk is here, under way, or queued.
    pub(super) fn want(&mut self, id: ImageId, chunk: Chunk, priority: Priority, beneficiary: Beneficiary) {
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.inventory.geometry().chunk(chunk.0).is_none() {
            return;
        }
        let (goal, parent) = ((image.number, chunk), image.inventory.geometry().parent(chunk).map(|(page, _)| page));
        if let Some(page) = parent {
            image.inventory.touch(page);
        }
        if image.inventory.is_here(chunk) {
            image.inventory.touch(chunk);
            return;
        }
        if self.fetches.get(goal).is_some() {
            if self.fetches.urge(goal, priority, beneficiary) {
                parent.into_iter().for_each(|page| self.want(id, page, priority, beneficiary));
            }
            return;
        }
        self.fetches.begin(goal, priority, beneficiary);
        self.enqueue(id, chunk);
    }

    /// How long a read may wait for a holder; `None`: for ever.
    pub const fn io_timeout(&self) -> Option<Duration> {
        self.config.io_timeout
    }

    /// Queues a fetch, or its parent first if that is not here.
    pub(super) fn enqueue(&mut self, id: ImageId, chunk: Chunk) {
        let Some(image) = self.images.get(&id) else { return };
        let (goal, parent) = ((image.number, chunk), image.inventory.geometry().parent(chunk).map(|(page, _)| page));
        let missing = parent.filter(|page| !image.inventory.is_here(*page));
        let Some(fetch) = self.fetches.get(goal) else { return };
        let (priority, beneficiary) = (fetch.priority(), fetch.beneficiary());
        match missing {
            None => self.fetches.queue(goal),
            Some(page) => {
                self.fetches.await_parent(goal);
                self.want(id, page, priority, beneficiary);
                let parent = self.fetches.get_mut((goal.0, page));
                parent.expect("a chunk that is not here and is wanted has a fetch").children.push(chunk);
            }
        }
    }

    /// Takes a fetch off the table, and its timer.
    fn end_fetch(&mut self, id: ImageId, chunk: Chunk) -> Option<Box<Fetch>> {
        let fetch = self.fetches.end(self.goal(id, chunk)?)?;
        self.cancel(fetch.timer());
        Some(fetch)
    }

    /// Serves all that wait for a chunk, once it is here.
    pub(super) fn complete(&mut self, id: ImageId, chunk: Chunk) {
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.inventory.is_stored(chunk) || image.inventory.is_zero(chunk) {
            image.fill.arrived(chunk);
        }
        let fetch = self.end_fetch(id, chunk);
        if fetch.as_ref().is_some_and(|fetch| fetch.fill) {
            let Some(image) = self.images.get_mut(&id) else { return };
            if image.inventory.is_stored(chunk) || image.inventory.is_zero(chunk) {
                image.fill.arrived(chunk);
                self.set_fill(id);
                self.announce_soon(id);
            } else {
                // The store became full while it was on its way: nobody may take it for held.
                self.shorten(id);
            }
        }
        self.after_fill(id);
        let Some(fetch) = fetch else { return };
        for request in fetch.requests() {
            self.orphan(*request);
        }
        let Some(goal) = self.goal(id, chunk) else { return };
        let (priority, mut trail) = (fetch.priority(), fetch.trail);
        trail.left(fetch.stage(), self.now);
        for (asker, since) in fetch.askers {
            self.asks.ended(&asker, goal);
            let waited = self.now - since;
            self.out(Output::Serve(Serve { asker, image: id, chunk, priority, waited }));
        }
        for token in fetch.waiters {
            let reader = self.reads.remove(&token);
            if let Some(Reader { since, .. }) = reader {
                let (ended, waited) = (self.now, self.now - since);
                self.slow_reads.note(SlowRead { image: id, chunk, ended, waited, trail });
            }
            self.out(Output::Answer(token, Ok(())));
        }
        for child in fetch.children {
            let Some(image) = self.images.get(&id) else { return };
            if image.inventory.is_here(child) {
                self.complete(id, child);
            } else if self.stage(id, child) == Some(Stage::NeedsParent) {
                self.enqueue(id, child);
            }
        }
    }

    /// Handles a chunk without any peer to ask: peers get a refusal, readers wait on, or fail.
    pub(super) fn no_source(&mut self, id: ImageId, chunk: Chunk) {
        let now = self.now;
        let Some(image) = self.images.get_mut(&id) else { return };
        let goal = (image.number, chunk);
        let Some(fetch) = self.fetches.get_mut(goal) else { return };
        // An origin asks others only for what its own file no longer has.
        let changed = fetch.source_changed || image.origin;
        let (me, peers) = (self.membership.me().node, &self.peers);
        // A holder that stands still, or is too busy to answer, is still one.
        let is_other =
            |home: &Holding| home.node != me && image.map.has(home, chunk) && peers.is_believed(home.node, now);
        let hopeless =
            changed && !image.map.homes(chunk).any(is_other) && !self.former.has_lost(id, image.map.ring(), chunk, now);
        let why = if hopeless {
            Why::SourceChanged
        } else if !changed && !image.map.origins().is_empty() {
            Why::Undelivered
        } else if fetch.tried.is_empty() {
            Why::NoHolder
        } else {
            Why::Refused
        };
        let askers: Vec<Asker> = std::mem::take(&mut fetch.askers).into_iter().map(|(asker, _)| asker).collect();
        fetch.reach = Reach::READER;
        let refusal = if why == Why::SourceChanged { Refusal::SourceChanged } else { Refusal::NotHeld };
        self.fetches.wait(goal, why, now);
        self.refuse(askers, goal, refusal);
        if why == Why::SourceChanged {
            self.fail(id, chunk);
        }
        if self.fetches.get(goal).is_some_and(|fetch| fetch.fill) {
            self.set_fill(id);
        }
        self.drop_unwanted(id, chunk);
        self.retry_later();
    }

    /// Fails the readers of a chunk, and of all chunks whose hash is in it: the origin's file has
    /// changed.
    fn fail(&mut self, id: ImageId, chunk: Chunk) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let extent = image.inventory.geometry().extent(chunk);
        let Some(fetch) = self.fetches.get_mut((image.number, chunk)) else { return };
        let children = fetch.children.clone();
        for token in std::mem::take(&mut fetch.waiters) {
            self.reads.remove(&token);
            self.out(Output::Answer(token, Err(ReadError::SourceChanged(extent))));
        }
        for child in children {
            self.fail(id, child);
        }
    }

    /// Schedules the timeout of the first reader; all have the same limit.
    fn expire_soon(&mut self, deadline: Option<Time>) {
        if let Some(at) = deadline.filter(|_| self.expire_at.is_none()) {
            self.expire_at = Some(at);
            self.set(at - self.now, Timer::ExpireReads);
        }
    }

    /// Fails the readers whose time is up.
    pub(super) fn expire_reads(&mut self) {
        let now = self.now;
        self.expire_at = None;
        let late = |reader: &Reader| reader.deadline.is_some_and(|deadline| deadline <= now);
        let late: Vec<(Token, ImageId, Chunk)> = self
            .reads
            .iter()
            .filter(|(_, reader)| late(reader))
            .map(|(token, reader)| (*token, reader.image, reader.chunk))
            .collect();
        for (token, id, chunk) in late {
            let extent = self.images.get(&id).map(|image| image.inventory.geometry().extent(chunk));
            self.cancel_read(token);
            self.out(Output::Answer(token, Err(ReadError::TimedOut(extent.unwrap_or(Extent::from(0..0))))));
        }
        self.expire_soon(self.reads.values().filter_map(|reader| reader.deadline).min());
    }

    /// The stage of a chunk's fetch.
    pub(super) fn stage(&self, id: ImageId, chunk: Chunk) -> Option<Stage> {
        self.fetch_of(id, chunk).map(Fetch::stage)
    }

    /// Drops an unwanted fetch, and so on up the tree.
    pub(super) fn drop_unwanted(&mut self, id: ImageId, chunk: Chunk) {
        if !self.fetch_of(id, chunk).is_some_and(Fetch::is_unwanted) {
            return;
        }
        self.end_fetch(id, chunk);
        let Some(image) = self.images.get(&id) else { return };
        if let Some((page, _)) = image.inventory.geometry().parent(chunk) {
            if let Some(parent) = self.fetches.get_mut((image.number, page)) {
                parent.children.retain(|child| *child != chunk);
            }
            self.drop_unwanted(id, page);
        }
    }
}
