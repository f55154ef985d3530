//! `vfield upgrade`: another program in the place of the running daemon.
//!
//! The daemon's guard starts the program; who names one shows who he is by a pair of sockets that
//! this process has made. How it went is read from the events of the daemon that serves afterwards.

use crate::args::UpgradeOptions;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_control::client::Client;
use vfield_control::events::EventStatus;
use vfield_control::fd_message;
use vfield_control::message::{DaemonStatus, Reply, Request};
use vfield_control::values::until::Until;

/// How long a daemon may be missing while another one takes its place.
const GONE_WITHIN: Duration = Duration::from_secs(60);
/// The interval of looks for its successor, which is there within some ten milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Runs `vfield upgrade`.
pub fn run(options: &UpgradeOptions) -> Result<(), Failure> {
    let control = options.control.control.as_deref();
    let before = Client::connect(control)?.status()?;
    let last = events(control, 0)?.last().map_or(0, |event| event.number);
    let witness = options.program.as_deref().map(witness).transpose()?;
    let mut client = Client::connect(control)?;
    match &witness {
        Some((theirs, _)) => client.send_with(&Request::Upgrade, theirs)?,
        None => client.send(&Request::Upgrade)?,
    }
    // A daemon that has ended before its answer has handed over.
    match client.last_reply()? {
        Some(Reply::HandingOver) | None => {}
        Some(_) => return Err(client.unexpected()),
    }
    client.await_end();
    drop(client);
    let after = successor(control, &before)?;
    let events = events(control, last)?;
    let said = |word: &str| events.iter().rfind(|event| event.event == word);
    if let Some(failed) = said("upgrade_failed") {
        return Err(Failure::failed(failed.text.clone()).hint("the program before serves again; see the daemon's log"));
    }
    let Some(done) = said("upgraded").filter(|_| after.pid != before.pid) else {
        let fact = format!("another daemon serves now, process {}, which has not taken over", after.pid);
        return Err(Failure::failed(fact).hint("`vfield events` shows what happened"));
    };
    let stays = events.iter().filter(|event| event.event == "stays").map(|event| format!("{}\n", event.text));
    output::put((text(&before, &after, done) + &stays.collect::<String>()).as_bytes())
}

/// The status of the daemon that is there once the one of `before` has ended: it answers others
/// until it ends, or breaks off in an answer.
fn successor(control: Option<&Path>, before: &DaemonStatus) -> Result<DaemonStatus, Failure> {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let status = ready(control);
        let is_there = status.as_ref().is_ok_and(|status| status.pid != before.pid);
        if is_there || Instant::now() >= deadline {
            return status;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The status of the daemon that is there, once it is ready.
fn ready(control: Option<&Path>) -> Result<DaemonStatus, Failure> {
    let mut client = Client::await_daemon(control, GONE_WITHIN)?;
    client.send(&Request::Wait { until: Until::Ready, timeout_ms: None })?;
    client.reply()?;
    Client::connect(control)?.status()
}

fn text(before: &DaemonStatus, after: &DaemonStatus, done: &EventStatus) -> String {
    let of = |status: &DaemonStatus| format!("version {}, process {}", status.node.version, status.pid);
    format!("{} -> {}\n{}\n", of(before), of(after), done.text)
}

fn events(control: Option<&Path>, after: u64) -> Result<Vec<EventStatus>, Failure> {
    let mut client = Client::connect(control)?;
    client.send(&Request::Events { after, most: usize::MAX, follow: false })?;
    match client.reply()? {
        Reply::Events { events } => Ok(events),
        _ => Err(client.unexpected()),
    }
}

/// A socket over which a program is named, for the daemon's guard, and this process's end of it.
fn witness(program: &Path) -> Result<(File, OwnedFd), Failure> {
    let refused = |error: std::io::Error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => "give the path of the new program",
            _ => "it has to be readable and executable",
        };
        Failure::failed(format!("{}: {}", program.display(), plain(&error))).hint(hint)
    };
    let path = program.canonicalize().map_err(refused)?;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(|errno| refused(errno.into()))?;
    fd_message::send(&ours, None, path.as_os_str().as_bytes(), None).map_err(refused)?;
    Ok((theirs.into(), ours))
}
