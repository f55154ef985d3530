//! A command's side of the control socket. Blocking: a command has nothing else to do.

use super::message::{DaemonStatus, REPLY_BYTES_MAX, Reply, Request};
use super::place::{self, Occupant};
use crate::fd_message;
use crate::impostor::{self, NotTrusted};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vfield_console::failure::{Failure, plain};

/// How often a daemon that is not there yet is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A conversation with a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    /// Bytes of a [`Reply::Data`] that were not taken yet.
    left: u64,
}

/// What the daemon at `wished`, or at the usual place, knows now.
pub fn status(wished: Option<&Path>) -> Result<DaemonStatus, Failure> {
    Client::connect(wished)?.status()
}

impl Client {
    /// Connects to the daemon at `wished`, or at the usual place.
    pub fn connect(wished: Option<&Path>) -> Result<Self, Failure> {
        let path = place::choose(wished);
        let stream = UnixStream::connect(&path).map_err(|error| refusal(&path, &error))?;
        Self::with(path, stream)
    }

    /// Begins the conversation, if it is not with an impostor.
    fn with(path: PathBuf, stream: UnixStream) -> Result<Self, Failure> {
        match impostor::check(&stream, &path) {
            Ok(()) => Ok(Self { path, reader: BufReader::with_capacity(256 << 10, stream), left: 0 }),
            Err(NotTrusted::Unknown(error)) => Err(refusal(&path, &error)),
            Err(NotTrusted::Foreign { uid }) => {
                let failure = Failure::failed(format!("control socket {}: user {uid} answers there", path.display()));
                Err(failure.hint("a daemon is your own, root's, or in a directory that only its user can change"))
            }
        }
    }

    /// Like [`Client::connect`], for at most `patience` until there is a daemon.
    pub fn await_daemon(wished: Option<&Path>, patience: Duration) -> Result<Self, Failure> {
        let deadline = Instant::now() + patience;
        let path = place::choose(wished);
        loop {
            match UnixStream::connect(&path) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                Err(error) => return Err(refusal(&path, &error)),
                Ok(stream) => return Self::with(path, stream),
            }
        }
    }

    /// Sends the one request of this conversation.
    pub fn send(&mut self, request: &Request) -> Result<(), Failure> {
        let sent = self.reader.get_mut().write_all(&request.line());
        sent.map_err(|error| self.broken(&plain(&error)))
    }

    /// Sends it together with a file of this process.
    pub fn send_with(&mut self, request: &Request, file: &File) -> Result<(), Failure> {
        let sent = fd_message::send(self.reader.get_ref(), None, &request.line(), Some(file.as_fd()));
        sent.map_err(|error| self.broken(&plain(&error)))
    }

    /// Sends a request with two files. A daemon that knows of one only takes the second.
    pub fn send_with_both(&mut self, request: &Request, first: &File, second: &File) -> Result<(), Failure> {
        let line = request.line();
        // Each file comes with the bytes that are sent with it.
        let (begin, rest) = line.split_at(1);
        let socket = self.reader.get_ref();
        let sent = fd_message::send(socket, None, begin, Some(first.as_fd()))
            .and_then(|()| fd_message::send(socket, None, rest, Some(second.as_fd())));
        sent.map_err(|error| self.broken(&plain(&error)))
    }

    /// What the daemon knows now: the request of a conversation that has had none.
    pub fn status(&mut self) -> Result<DaemonStatus, Failure> {
        self.send(&Request::Status)?;
        match self.reply()? {
            Reply::Status { status } => Ok(*status),
            _ => Err(self.unexpected()),
        }
    }

    /// The next reply; a refusal is a failure.
    pub fn reply(&mut self) -> Result<Reply, Failure> {
        self.last_reply()?.ok_or_else(|| self.broken("it ended before its answer"))
    }

    /// The next reply, of a daemon that may end before it: then none.
    pub fn last_reply(&mut self) -> Result<Option<Reply>, Failure> {
        let mut line = Vec::new();
        let limit = REPLY_BYTES_MAX as u64;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut line);
        match read {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            read => read.map_err(|error| self.broken(&plain(&error)))?,
        };
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(self.broken("it ended before its answer"));
        }
        match Reply::parse(&line) {
            Ok(Reply::Refused { fact, hint }) => Err(Failure::failed(fact).hint(hint)),
            Ok(Reply::Starting { doing }) => {
                let failure = Failure::failed(format!("the daemon is still starting: {doing}"));
                Err(failure.hint("`vfield status --wait filled` waits for it"))
            }
            Ok(reply) => Ok(Some(reply)),
            Err(_) => {
                let failure =
                    Failure::failed(format!("no vfield daemon of this version answers at {}", self.path.display()));
                Err(failure.hint("check --control, and that the daemon is of the same version as this program"))
            }
        }
    }

    /// The next bytes of what [`Request::Cat`] asked for: as much of `buffer` as is here, at least
    /// one; 0 after the last.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        while self.left == 0 {
            match self.reply()? {
                Reply::Data { bytes } => self.left = bytes,
                Reply::Done => return Ok(0),
                _ => return Err(self.unexpected()),
            }
        }
        let part = self.left.min(buffer.len() as u64) as usize;
        match self.reader.read(&mut buffer[..part]) {
            Ok(0) => Err(self.broken("it ended in the middle of an answer")),
            Ok(bytes) => {
                self.left -= bytes as u64;
                Ok(bytes)
            }
            Err(error) => Err(self.broken(&plain(&error))),
        }
    }

    /// Returns when the daemon has closed, which after a leave is when it has ended.
    pub fn await_end(&mut self) {
        // An error is an end as well.
        let _ = std::io::copy(&mut self.reader, &mut std::io::sink());
    }

    /// The answer that does not belong to the question.
    pub fn unexpected(&self) -> Failure {
        self.broken("it gave an unexpected answer")
    }

    fn broken(&self, why: &str) -> Failure {
        let failure = Failure::failed(format!("the daemon at {} did not answer: {why}", self.path.display()));
        failure.hint("see its log; `vfield status` shows whether it still runs")
    }
}

fn refusal(path: &Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ConnectionRefused if matches!(Occupant::at(path), Ok(Occupant::NotASocket)) => {
            Failure::failed(format!("control socket {}: it is no socket", path.display()))
                .hint("check --control and VFIELD_CONTROL")
        }
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let failure = Failure::failed(format!("no daemon runs at {}", path.display()));
            failure.hint(
                "start one with `vfield serve` or `vfield join`, or name its socket with --control or VFIELD_CONTROL",
            )
        }
        ErrorKind::PermissionDenied => {
            let failure = Failure::failed(format!("{}: permission denied", path.display()));
            failure.hint("only the daemon's own user may control it")
        }
        _ => Failure::failed(format!("control socket {}: {}", path.display(), plain(error))).hint("check --control"),
    }
}
