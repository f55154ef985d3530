//! Readers of machines: their requests to the cores, and their progress.

use super::{Event, Field, Reads};
use crate::checks;
use crate::reader::{Order, Reader};
use std::ops::Range;
use std::time::Duration;
use vfield_block::source::ReadError;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::Token;
use vfield_core::node::Input;
use vfield_core::prefetch::Prefetcher;
use vfield_core::read_ahead::ReadAhead;
use vfield_core::wire::Priority;

/// Chunks requested at once, as by a client with requests of 128 KiB.
const READ_CHUNKS: u64 = 8;

impl Field {
    /// A reader on `machine` begins to read chunks of an image in order.
    pub fn read(&mut self, machine: usize, image: usize, chunks: Range<u64>) -> usize {
        self.read_blocks(machine, image, Order::Along { chunks, step: READ_CHUNKS }, 1)
    }

    /// Reads a whole image on each of `machines` at the same time.
    pub fn read_all(&mut self, machines: &[usize], image: usize) -> Vec<usize> {
        let data = self.images[image].data();
        machines.iter().map(|&machine| self.read(machine, image, data.clone())).collect()
    }

    /// Starts a reader of blocks in some order, with `depth` blocks at a time.
    pub fn read_blocks(&mut self, machine: usize, image: usize, order: Order, depth: usize) -> usize {
        let geometry = &self.images[image].geometry;
        let ahead = if self.config.read_ahead { self.config.chunks_ahead(geometry.chunk_bytes()) } else { 0 };
        let ahead = ReadAhead::new(geometry.data_chunks(), ahead);
        let mut reader = Reader::new(machine, image, order, depth, ahead, self.now());
        let window = self.config.chunks_ahead(geometry.chunk_bytes());
        reader.prefetcher = self.learned.as_ref().map(|list| Prefetcher::new(list, window));
        reader.groups = self.groups;
        reader.times = self.keeps_times.then(Vec::new);
        reader.think = self.think.of(self.machines[machine].place as usize).unwrap_or_default();
        self.readers.push(reader);
        let reader = self.readers.len() - 1;
        self.machines[machine].readers.push(reader as u32);
        self.tell_uses(machine, image);
        self.go_on(reader);
        reader
    }

    /// A reader begins after a while.
    pub fn read_later(&mut self, wait: Duration, machine: usize, reads: Reads) {
        self.after(wait, Event::Begin(machine as u32, Box::new(reads)));
    }

    /// A reader takes the available chunks and requests more.
    pub(super) fn go_on(&mut self, at: usize) {
        let now = self.queue.now();
        let reader = &mut self.readers[at];
        let host = &self.machines[reader.machine];
        let (on, image) = (reader.machine, reader.image);
        if !host.alive {
            return;
        }
        let id = self.images[image].id;
        let mut moved = 0;
        loop {
            for block in &mut reader.open {
                let before = block.left.start;
                while block.token.is_none()
                    && !block.left.is_empty()
                    && host.has_part(image, Chunk(block.left.start), block.part)
                {
                    block.left.start += 1;
                }
                if block.left.start > before {
                    (block.since, moved) = (now, moved + block.left.start - before);
                }
            }
            if let Some(times) = &mut reader.times {
                times.extend(reader.open.iter().filter(|block| block.left.is_empty()).map(|block| now - block.begun));
            }
            for done in reader.take(now) {
                self.queue.push(done, Event::GoOn(at as u32));
            }
            let Some(block) = reader.begin(now) else { break };
            let (mut ahead, leads) = reader.prefetcher.as_mut().map_or_else(Default::default, |prefetcher| {
                (prefetcher.note(block.clone()), prefetcher.leads(block.clone()))
            });
            if leads {
                reader.ahead.note_led(block);
            } else {
                ahead.push(reader.ahead.note(block));
            }
            for chunks in ahead.into_iter().filter(|ahead| !ahead.is_empty()) {
                let input = Input::Prefetch { image: id, chunks, priority: Priority::ReadAhead };
                self.queue.push(now, Event::Tell(on as u32, Box::new(input)));
            }
        }
        let is_done = reader.is_done();
        if moved > 0 || is_done {
            reader.moved(moved, now);
        }
        for block in 0..reader.open.len() {
            if reader.open[block].token.is_some() {
                continue;
            }
            let (token, slice) = (reader.token(at), reader.slice(&self.images[image].geometry, block));
            let block = &mut reader.open[block];
            block.token = Some(token);
            let input = match slice {
                Some((chunk, groups)) => Input::ReadSlice { token, image: id, chunk, groups },
                None => Input::Read { token, image: id, chunks: block.left.clone() },
            };
            self.queue.push(now, Event::Tell(on as u32, Box::new(input)));
        }
        if is_done {
            self.tell_uses(on, image);
        }
    }

    /// The core answers a reader.
    pub(super) fn answered(&mut self, machine: usize, token: Token, result: Result<(), ReadError>) {
        self.note(machine, "answers", [token.0, u64::from(result.is_ok())]);
        let (at, now) = (Reader::of(token), self.now());
        let Some(reader) = self.readers.get_mut(at) else { return };
        let image = reader.image;
        let Some(block) = reader.answered(token, now) else {
            let what = format!("answers {token:?}, which does not wait");
            return self.found(checks::violation(self, "reads", machine, what));
        };
        let (chunk, part) = (Chunk(block.left.start), block.part);
        match result {
            Ok(()) if !self.machines[machine].has_part(image, chunk, part) => {
                let what = format!("answers {token:?}, but {chunk} is not here");
                self.found(checks::violation(self, "reads", machine, what));
            }
            Ok(()) => {}
            Err(error) => reader.failed = Some(error),
        }
        if self.readers[at].failed.is_none() {
            self.queue.push(now, Event::GoOn(at as u32));
        }
    }

    /// The longest that any of these readers waited for one chunk.
    pub fn longest_wait(&self, readers: &[usize]) -> Duration {
        readers.iter().map(|at| self.readers[*at].longest_wait).max().unwrap_or_default()
    }
}
