//! A connection that one process leaves to the next: its socket, and where in the conversation it
//! is.
//!
//! The client notices nothing. Unread requests stay in the socket. The state has the rest: waiting
//! reads with the bytes that are still owed, a part of a request, and answers that the socket did
//! not take yet. A connection under TLS is not handed over, since the library has its keys. Neither
//! is a connection in the middle of a write.
//!
//! Invariant: a state is hostile until parsed. It names an export of the server; extents in it lie
//! within that export's device.

use super::answer::{Left, Read, Status};
use super::session::{Form, device_bytes};
use crate::packed::{Packer, Unpacker};
use std::os::fd::OwnedFd;
use vfield_block::extent::Extent;

/// Raised when a state changes its meaning.
const VERSION: u8 = 1;

/// A connection on its way to another process.
#[derive(Debug)]
pub struct Handed {
    /// The client's socket.
    pub socket: OwnedFd,
    /// Where in the conversation it is; opaque to all but the next server.
    pub state: Vec<u8>,
}

/// Where in its conversation a connection is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// A name of the chosen export.
    pub(super) export: String,
    pub(super) structured: bool,
    pub(super) allocation: bool,
    /// A part of a request.
    pub(super) inbox: Vec<u8>,
    /// Answers that were not sent yet.
    pub(super) outbox: Vec<u8>,
    pub(super) left: Left,
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Packer::default();
        out.byte(VERSION);
        out.run(self.export.as_bytes());
        out.byte(u8::from(self.structured));
        out.byte(u8::from(self.allocation));
        out.run(&self.inbox);
        out.run(&self.outbox);
        let Left { reads, statuses, advice } = &self.left;
        out.word(reads.len() as u32);
        for read in reads {
            out.number(read.cookie);
            out.byte(read.form as u8);
            extent(&mut out, read.rest);
            out.word(read.length);
            out.byte(u8::from(read.begun));
        }
        out.word(statuses.len() as u32);
        for status in statuses {
            out.number(status.cookie);
            extent(&mut out, status.extent);
            out.byte(u8::from(status.one));
        }
        out.word(advice.len() as u32);
        advice.iter().for_each(|cookie| out.number(*cookie));
        out.finish()
    }

    /// The inverse of [`State::encode`]; `None` for anything else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Unpacker(bytes);
        (rest.byte()? == VERSION).then_some(())?;
        let state = Self {
            export: rest.text()?.to_owned(),
            structured: flag(&mut rest)?,
            allocation: flag(&mut rest)?,
            inbox: rest.run()?.to_vec(),
            outbox: rest.run()?.to_vec(),
            left: Left {
                reads: rest.list(|rest| {
                    Some(Read {
                        cookie: rest.number()?,
                        form: form(rest.byte()?)?,
                        rest: taken_extent(rest)?,
                        length: rest.word()?,
                        begun: flag(rest)?,
                    })
                })?,
                statuses: rest.list(|rest| {
                    Some(Status { cookie: rest.number()?, extent: taken_extent(rest)?, one: flag(rest)? })
                })?,
                advice: rest.list(Unpacker::number)?,
            },
        };
        rest.is_done().then_some(state)
    }

    /// True if it can be of an image of that length.
    pub(super) fn fits(&self, image_bytes: u64) -> bool {
        let within = |extent: &Extent| !extent.is_empty() && extent.end() <= device_bytes(image_bytes);
        let Left { reads, statuses, .. } = &self.left;
        reads.iter().filter(|read| read.begun).count() <= 1
            && reads.iter().map(|read| &read.rest).all(within)
            && reads.iter().all(|read| read.rest.len() <= u64::from(read.length))
            && statuses.iter().map(|status| &status.extent).all(within)
    }
}

fn extent(out: &mut Packer, extent: Extent) {
    out.number(extent.start());
    out.number(extent.len());
}

fn taken_extent(rest: &mut Unpacker<'_>) -> Option<Extent> {
    Extent::new(rest.number()?, rest.number()?)
}

fn flag(rest: &mut Unpacker<'_>) -> Option<bool> {
    match rest.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn form(number: u8) -> Option<Form> {
    [Form::Simple, Form::Chunks, Form::Whole].into_iter().find(|form| *form as u8 == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> State {
        let read = |form, begun| Read { cookie: 7, form, rest: Extent::from(512..1024), length: 1024, begun };
        State {
            export: "viver".into(),
            structured: true,
            allocation: false,
            inbox: vec![1; 27],
            outbox: vec![2; 3],
            left: Left {
                reads: vec![read(Form::Chunks, false), read(Form::Simple, true)],
                statuses: vec![Status { cookie: 9, extent: Extent::from(0..1), one: true }],
                advice: vec![11],
            },
        }
    }

    #[test]
    fn it_comes_back_and_fits_its_image_only() {
        let state = state();
        assert_eq!(State::decode(&state.encode()).as_ref(), Some(&state));
        assert!(state.fits(1000), "the device of 1000 bytes has 1024");
        assert!(!state.fits(512), "a read lies past the end");
        let begun = vec![Read { begun: true, ..state.left.reads[0] }; 2];
        let two = State { left: Left { reads: begun, ..Left::default() }, ..State::default() };
        assert!(!two.fits(1 << 20), "two answers in one piece at once");
    }

    #[test]
    fn another_version_is_unknown() {
        let mut bytes = state().encode();
        bytes[0] += 1;
        assert_eq!(State::decode(&bytes), None);
    }

    proptest! {
        #[test]
        fn rubbish_does_no_harm(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = state().encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
            let _ = State::decode(&bytes).map(|state| state.fits(1000));
        }
    }
}
