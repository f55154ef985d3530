//! A process beside the daemon that opens its block devices in its place.
//!
//! The last one that closes a block device waits for reads of it that are under way. Everybody who
//! opens it meanwhile waits as well, and no signal ends either wait. A daemon that did so with a
//! device of its own could wait for itself. Killed, it could not end, nobody could take the device
//! over, and its readers would wait for as long as the machine runs (decision 0103).
//!
//! The onlooker begins while the daemon is one thread, and ends with it. It has no capabilities and
//! no file but the line on which questions come. A child of its own answers each, so a device that
//! does not answer holds up no question about another one.

#![expect(unsafe_code, reason = "a process that is to outlive a daemon's threads begins by fork(2)")]

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{read, retry_on_intr, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, WaitOptions, getrlimit, setsid, waitpid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_name, set_no_new_privs};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use vfield_control::fd_message;

/// A first page that is on this machine or a few hops away; else nobody knows who uses a device.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// After that it is asked again about a device that another question is about. Most take less.
const AGAIN: Duration = Duration::from_millis(10);
/// A question, and the longest name of a block device of ours.
const ORDER_BYTES_MAX: usize = 64;
/// What the devices of a daemon are called, with a number behind.
const DEVICES: [&str; 2] = ["/dev/nbd", "/dev/ublkb"];

/// The daemon's end of the line; no process where there are no devices.
#[derive(Debug, Default)]
pub struct Onlooker(Option<OwnedFd>);

/// A use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    IsClaimed = 1,
    IsOpen = 2,
    OpenOnce = 3,
}

impl Onlooker {
    /// Starts the process. While this one has no other thread.
    ///
    /// # Errors
    /// If the system has no room for one more process.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        if begin()?.is_none() {
            drop(ours);
            stand(theirs);
        }
        Ok(Self(Some(ours)))
    }

    /// True while somebody has claimed a device for himself, such as a mount; in doubt, too. Blocks
    /// for a second at most.
    pub fn is_claimed(&self, device: &Path) -> bool {
        self.ask(Question::IsClaimed, device, Some(ANSWERED_WITHIN)).unwrap_or(true)
    }

    /// True while anybody has a device open; in doubt, too. Blocks for a second at most.
    pub fn is_open(&self, device: &Path) -> bool {
        self.ask(Question::IsOpen, device, Some(ANSWERED_WITHIN)).unwrap_or(true)
    }

    /// Opens a device and closes it again. Blocks until the kernel has read of it what it wants to
    /// see of a new device.
    pub fn open_once(&self, device: &Path) {
        // A device that cannot be opened is not looked at by the kernel either.
        let _ = self.ask(Question::OpenOnce, device, None);
    }

    fn ask(&self, question: Question, device: &Path, patience: Option<Duration>) -> Option<bool> {
        let line = self.0.as_ref()?;
        let mut order = vec![question as u8];
        order.extend(device.as_os_str().as_bytes());
        let end = patience.map(|patience| Instant::now() + patience);
        loop {
            let (paper, pen) = pipe_with(PipeFlags::CLOEXEC).ok()?;
            fd_message::send(line, None, &order, Some(pen.as_fd())).ok()?;
            drop(pen);
            match answer(&paper, end) {
                Answer::Is(answer) => return Some(answer),
                Answer::None if end.is_none_or(|end| Instant::now() < end) => std::thread::sleep(AGAIN),
                Answer::None | Answer::Late => return None,
            }
        }
    }
}

/// The outcome of a question.
enum Answer {
    Is(bool),
    /// Another question about the device is under way.
    None,
    Late,
}

fn answer(paper: &OwnedFd, end: Option<Instant>) -> Answer {
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let came = retry_on_intr(|| poll(&mut [PollFd::new(paper, PollFlags::IN)], left.as_ref()));
    let mut answer = [0];
    match came.map(|came| (came > 0).then(|| read(paper, &mut answer))) {
        Ok(Some(Ok(1))) => Answer::Is(answer == [1]),
        Ok(Some(_)) => Answer::None,
        _ => Answer::Late,
    }
}

/// A new process; `None` in itself.
fn begin() -> io::Result<Option<Pid>> {
    // SAFETY: this process has one thread, so the copy finds no lock held and nothing half done.
    let child = unsafe { libc::fork() };
    if child < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(child)) }
}

/// The life of the onlooker.
fn stand(line: OwnedFd) -> ! {
    let _ = set_name(c"vfield-onlooker");
    // It ends with the daemon, whatever a terminal or a service manager tells both.
    let _ = setsid();
    let _ = SigSet::all().thread_block();
    let none = CapabilitySet::empty();
    let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
    let _ = set_no_new_privs(true);
    let Ok(line) = keep_only(line) else { end() };
    let mut under_way: Vec<(Pid, Vec<u8>)> = Vec::new();
    let mut order = [0; ORDER_BYTES_MAX];
    loop {
        let _ = retry_on_intr(|| poll(&mut [PollFd::new(&line, PollFlags::IN)], None));
        let (order, pen) = match fd_message::receive_into(line, &mut order) {
            Ok((bytes @ 1.., Some(pen))) => (&order[..bytes], pen),
            Ok((1.., None)) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            _ => end(),
        };
        under_way.retain(|(child, _)| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None)));
        let Some((question, device)) = parse(order) else { continue };
        // Two looks at a device would see each other.
        if under_way.iter().any(|(_, other)| other == device) {
            continue;
        }
        match begin() {
            Ok(None) => {
                let is = question.answer(Path::new(OsStr::from_bytes(device)));
                let _ = write(&pen, &[u8::from(is)]);
                end();
            }
            Ok(Some(child)) => under_way.push((child, device.to_vec())),
            // The pen goes, which says that there is no answer.
            Err(_) => {}
        }
    }
}

/// A question and its device. The daemon may have been taken over by somebody who wants to
/// open other files.
fn parse(order: &[u8]) -> Option<(Question, &[u8])> {
    let (question, device) = order.split_first()?;
    let all = [Question::IsClaimed, Question::IsOpen, Question::OpenOnce];
    let question = all.into_iter().find(|known| *known as u8 == *question)?;
    let is_device = DEVICES.iter().any(|name| {
        let number = device.strip_prefix(name.as_bytes()).unwrap_or_default();
        !number.is_empty() && number.iter().all(u8::is_ascii_digit)
    });
    is_device.then_some((question, device))
}

impl Question {
    fn answer(self, device: &Path) -> bool {
        match self {
            Self::IsClaimed => vfield_export::is_claimed(device),
            Self::IsOpen => vfield_export::is_open(device),
            Self::OpenOnce => std::fs::File::open(device).is_ok(),
        }
    }
}

/// Makes the line descriptor 0 and closes all others: the daemon's sockets would not be closed with
/// the daemon.
fn keep_only(line: OwnedFd) -> io::Result<BorrowedFd<'static>> {
    rustix::stdio::dup2_stdin(&line)?;
    std::mem::forget(line);
    // SAFETY: nothing of this process uses any descriptor from here on but 0.
    if unsafe { libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) } != 0 {
        // Before Linux 5.9.
        let most = getrlimit(Resource::Nofile).current.unwrap_or_default();
        for number in 1..i32::try_from(most).unwrap_or(i32::MAX) {
            // SAFETY: as above.
            unsafe { libc::close(number) };
        }
    }
    Ok(rustix::stdio::stdin())
}

/// Ends this process without the duties of the daemon that it began as.
fn end() -> ! {
    // SAFETY: it ends here, and nothing else happens.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_block_devices_of_daemons_and_nothing_else() {
        let order = |device: &str| [&[2], device.as_bytes()].concat();
        for device in ["/dev/nbd0", "/dev/ublkb17"] {
            assert_eq!(parse(&order(device)), Some((Question::IsOpen, device.as_bytes())));
        }
        for other in ["/dev/nbd", "/dev/nbd0p1", "/dev/nbd0/../sda", "/dev/sda", "/etc/shadow", "nbd0", ""] {
            assert_eq!(parse(&order(other)), None, "{other}");
        }
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(b"\x09/dev/nbd0"), None, "a question that nobody knows");
    }
}
