//! What a client may ask for after the handshake, and what it gets at once.
//!
//! Owns the rules by which a request is judged: once, here, so that everything behind it works with
//! extents that lie within the device. The connection calls it for each request. It reads nothing
//! and sends nothing.

use super::codec::{Chosen, Command, Errno, PAYLOAD_BYTES_MAX, Request, SECTOR_BYTES, flag};
use vfield_block::extent::Extent;
use vfield_block::source::Allocation;

/// Runs in one block status answer, 64 KiB of them; a client that wants to know more asks again.
const STATUS_RUNS_MAX: usize = 8192;

/// The size of a device that holds `image_bytes`.
pub(super) const fn device_bytes(image_bytes: u64) -> u64 {
    match image_bytes.checked_next_multiple_of(SECTOR_BYTES) {
        Some(bytes) => bytes,
        None => image_bytes,
    }
}

/// How the answer to a read is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A simple reply: a header, then all bytes.
    Simple,
    /// A structured reply in as many chunks as it takes, zeros as holes.
    Chunks,
    /// A structured reply in one chunk, because the client said "do not fragment".
    Whole,
}

/// A change that a client may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: Kind,
    /// What of the device is changed; may be empty.
    pub(super) extent: Extent,
    /// Answer only when it is durable.
    pub(super) durable: bool,
}

/// How the device is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the payload that follows.
    Write,
    /// Makes the extent zeros.
    Zero,
    /// To whatever costs nothing.
    Trim,
    /// No change of bytes; earlier changes become durable.
    Flush,
}

/// A request that has been judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Read an extent of the device that is not empty.
    Read(Form, Extent),
    /// A read of no bytes: nothing to do but to say so.
    ReadNothing(Form),
    /// Tell which parts of an extent of the device (not empty) are zeros; only the first run if
    /// `one`.
    Status { extent: Extent, one: bool },
    /// Prefetch an extent of the device.
    Cache(Extent),
    /// Change the device.
    Change(Change),
    /// Nothing to do: report success.
    Done,
    /// The client leaves.
    Disconnect,
    /// Report an error.
    Refuse(Errno, &'static str),
}

/// One connection's choice of export and of ways to answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    image_bytes: u64,
    structured: bool,
    allocation: bool,
    writable: bool,
}

impl Session {
    pub(super) fn new(image_bytes: u64, writable: bool, chosen: Chosen) -> Self {
        Self { image_bytes, structured: chosen.structured, allocation: chosen.allocation, writable }
    }

    /// True if the source can be changed.
    pub(super) fn writable(&self) -> bool {
        self.writable
    }

    /// True if errors and reads are answered with structured replies.
    pub(super) fn structured(&self) -> bool {
        self.structured
    }

    /// The stored part of `extent`; the rest lies past the image's end and is zeros.
    pub(super) fn stored(&self, extent: Extent) -> Extent {
        extent.clip(Extent::from(0..self.image_bytes))
    }

    /// Decides how `request` is answered.
    pub(super) fn judge(&self, request: &Request) -> Verdict {
        let allowed = match request.command {
            Command::Read if self.structured => flag::DF,
            Command::BlockStatus => flag::REQ_ONE,
            // Whether zeros take up room is for the source to say: they never do, and writes find
            // room or not.
            Command::WriteZeroes if self.writable => flag::NO_HOLE,
            Command::Write | Command::Trim if self.writable => 0,
            // Refused anyway, and for the better reason.
            Command::Write | Command::Trim | Command::WriteZeroes | Command::Unknown(_) => u16::MAX,
            Command::Disconnect => u16::MAX,
            _ => 0,
        };
        // FUA may come with any command (section "Command flags"), and means something with changes
        // only.
        if request.flags & !(allowed | flag::FUA) != 0 {
            return Verdict::Refuse(Errno::Invalid, "the request has flags that were not negotiated");
        }
        match request.command {
            Command::Read => self.judge_read(request),
            Command::BlockStatus => self.judge_status(request),
            Command::Cache => self.within(request).map_or_else(|refusal| refusal, Verdict::Cache),
            Command::Flush if !self.writable => Verdict::Done,
            Command::Flush => Verdict::Change(Change { kind: Kind::Flush, extent: Extent::from(0..0), durable: false }),
            Command::Disconnect => Verdict::Disconnect,
            Command::Write | Command::Trim | Command::WriteZeroes if !self.writable => {
                Verdict::Refuse(Errno::Perm, "the export is read-only")
            }
            Command::Write => self.judge_change(request, Kind::Write),
            Command::WriteZeroes => self.judge_change(request, Kind::Zero),
            Command::Trim => self.judge_change(request, Kind::Trim),
            Command::Unknown(_) => Verdict::Refuse(Errno::Invalid, "unknown command"),
        }
    }

    fn within(&self, request: &Request) -> Result<Extent, Verdict> {
        match Extent::new(request.offset, u64::from(request.length)) {
            Some(extent) if extent.end() <= device_bytes(self.image_bytes) => Ok(extent),
            _ => Err(Verdict::Refuse(Errno::Invalid, "the request goes past the end of the export")),
        }
    }

    fn judge_change(&self, request: &Request, kind: Kind) -> Verdict {
        let durable = request.flags & flag::FUA != 0;
        match self.within(request) {
            Ok(extent) => Verdict::Change(Change { kind, extent, durable }),
            // Section "Error values": what would need a larger device has no room.
            Err(_) if kind != Kind::Trim => {
                Verdict::Refuse(Errno::NoSpace, "the change goes past the end of the export")
            }
            Err(refusal) => refusal,
        }
    }

    fn judge_read(&self, request: &Request) -> Verdict {
        let form = match (self.structured, request.flags & flag::DF != 0) {
            (false, _) => Form::Simple,
            (true, false) => Form::Chunks,
            (true, true) => Form::Whole,
        };
        if request.length > PAYLOAD_BYTES_MAX {
            let errno = if form == Form::Whole { Errno::Overflow } else { Errno::Invalid };
            return Verdict::Refuse(errno, "more than 32 MiB cannot be read at once");
        }
        match self.within(request) {
            Err(refusal) => refusal,
            Ok(extent) if extent.is_empty() => Verdict::ReadNothing(form),
            Ok(extent) => Verdict::Read(form, extent),
        }
    }

    fn judge_status(&self, request: &Request) -> Verdict {
        if !self.allocation {
            return Verdict::Refuse(Errno::Invalid, "the context base:allocation was not negotiated");
        }
        match self.within(request) {
            Err(refusal) => refusal,
            Ok(extent) if extent.is_empty() => Verdict::Refuse(Errno::Invalid, "block status of no bytes"),
            Ok(extent) => Verdict::Status { extent, one: request.flags & flag::REQ_ONE != 0 },
        }
    }

    /// Block status runs for `extent` from what the source says about its stored part: neighbours
    /// of the same kind become one, the part past the image's end is zeros, and no run reaches past
    /// `extent`. Empty only if the source said nothing.
    pub(super) fn status(&self, extent: Extent, one: bool, runs: &[Allocation]) -> Vec<(u32, u32)> {
        let mut left = self.stored(extent).len();
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut add = |length: u64, zero: bool| {
            let state = if zero { flag::STATE_HOLE | flag::STATE_ZERO } else { 0 };
            // No overflow: the runs of a request add up to its length at most, which has 32 bits.
            let full = found.len() == STATUS_RUNS_MAX;
            match found.last_mut() {
                Some(last) if last.1 == state => last.0 += length as u32,
                _ if full => return false,
                _ => found.push((length as u32, state)),
            }
            true
        };
        for run in runs {
            let length = run.length_bytes.min(left);
            if length > 0 && !add(length, run.zero) {
                break;
            }
            left -= length;
        }
        let padding = extent.len() - self.stored(extent).len();
        if left == 0 && padding > 0 {
            add(padding, true);
        }
        if one {
            found.truncate(1);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(structured: bool) -> Session {
        Session::new(1000, false, Chosen { offer: 0, structured, allocation: structured })
    }

    fn request(command: Command, flags: u16, offset: u64, length: u32) -> Request {
        Request { command, flags, cookie: 1, offset, length }
    }

    fn errno(verdict: Verdict) -> Option<Errno> {
        if let Verdict::Refuse(errno, _) = verdict { Some(errno) } else { None }
    }

    #[test]
    fn reads_lie_within_the_padded_device() {
        let judge = |offset, length| session(true).judge(&request(Command::Read, 0, offset, length));
        assert_eq!(judge(0, 1024), Verdict::Read(Form::Chunks, Extent::from(0..1024)));
        assert_eq!(judge(1023, 1), Verdict::Read(Form::Chunks, Extent::from(1023..1024)));
        assert_eq!(judge(1024, 0), Verdict::ReadNothing(Form::Chunks));
        for (offset, length) in [(0, 1025), (1024, 1), (1025, 0), (u64::MAX, 1), (u64::MAX, u32::MAX), (0, u32::MAX)] {
            assert_eq!(errno(judge(offset, length)), Some(Errno::Invalid), "{offset}+{length}");
        }
    }

    #[test]
    fn flags_need_what_they_belong_to() {
        let judge = |structured, command, flags| session(structured).judge(&request(command, flags, 0, 512));
        assert_eq!(errno(judge(false, Command::Read, flag::DF)), Some(Errno::Invalid));
        assert_eq!(judge(true, Command::Read, flag::DF), Verdict::Read(Form::Whole, Extent::from(0..512)));
        assert_eq!(errno(judge(true, Command::Read, flag::REQ_ONE)), Some(Errno::Invalid));
        assert_eq!(errno(judge(true, Command::Flush, 1 << 9)), Some(Errno::Invalid));
        assert_eq!(judge(true, Command::Flush, flag::FUA), Verdict::Done);
        assert_eq!(errno(judge(false, Command::BlockStatus, 0)), Some(Errno::Invalid));
        assert_eq!(errno(judge(true, Command::Unknown(99), 0)), Some(Errno::Invalid));
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            assert_eq!(errno(judge(true, command, u16::MAX)), Some(Errno::Perm));
        }
    }

    #[test]
    fn changes_lie_within_the_device() {
        let session = Session::new(1024, true, Chosen { offer: 0, structured: true, allocation: true });
        let judge = |command, flags, offset, length| session.judge(&request(command, flags, offset, length));
        let change = |kind, length, durable| Verdict::Change(Change { kind, extent: Extent::from(0..length), durable });
        assert_eq!(judge(Command::Write, flag::FUA, 0, 1024), change(Kind::Write, 1024, true));
        assert_eq!(judge(Command::Trim, 0, 0, 0), change(Kind::Trim, 0, false));
        assert_eq!(judge(Command::WriteZeroes, flag::NO_HOLE, 0, 7), change(Kind::Zero, 7, false));
        assert_eq!(judge(Command::Flush, 0, 0, 0), change(Kind::Flush, 0, false));
        for (command, errno_found) in
            [(Command::Write, Errno::NoSpace), (Command::WriteZeroes, Errno::NoSpace), (Command::Trim, Errno::Invalid)]
        {
            assert_eq!(errno(judge(command, 0, 1, 1024)), Some(errno_found));
            assert_eq!(errno(judge(command, 0, u64::MAX, u32::MAX)), Some(errno_found));
            assert_eq!(errno(judge(command, 1 << 9, 0, 1)), Some(Errno::Invalid));
        }
        assert_eq!(errno(judge(Command::Write, flag::NO_HOLE, 0, 1)), Some(Errno::Invalid));
    }

    #[test]
    fn a_read_that_is_too_long_says_which_way() {
        let session = Session::new(1 << 40, false, Chosen { offer: 0, structured: true, allocation: true });
        let judge = |flags, length| session.judge(&request(Command::Read, flags, 0, length));
        assert_eq!(errno(judge(0, PAYLOAD_BYTES_MAX + 1)), Some(Errno::Invalid));
        assert_eq!(errno(judge(flag::DF, u32::MAX)), Some(Errno::Overflow));
        assert_eq!(errno(judge(0, PAYLOAD_BYTES_MAX)), None);
    }

    #[test]
    fn status_runs_are_merged_padded_and_cut() {
        let run = |length_bytes, zero| Allocation { length_bytes, zero };
        let status = |extent, one, runs: &[Allocation]| session(true).status(extent, one, runs);
        let all = Extent::from(0..1024);
        assert_eq!(
            status(all, false, &[run(400, true), run(100, true), run(500, false)]),
            [(500, 3), (500, 0), (24, 3)]
        );
        assert_eq!(status(all, false, &[run(1000, true)]), [(1024, 3)]);
        assert_eq!(status(all, true, &[run(10, false), run(990, true)]), [(10, 0)]);
        // Only a part was told: nothing is said about the rest, padding included.
        assert_eq!(status(all, false, &[run(10, false)]), [(10, 0)]);
        assert_eq!(status(Extent::from(0..100), false, &[run(5000, false)]), [(100, 0)]);
        assert_eq!(status(Extent::from(1000..1024), false, &[]), [(24, 3)]);
    }
}
