//! The guard as a keeper: it has the files in its own hands, and gives them to each daemon that it
//! starts.
//!
//! Between the two is a line, which is the daemon's standard input. What a guard has is in it when
//! the daemon starts; what the daemon sends stays in it, files included, until that daemon has
//! ended and the guard looks. So the guard sleeps for as long as all is well, and a daemon may be
//! killed at any moment.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::Stdio;
use vfield_control::fd_message;
use vfield_node::keeper::Keeper;

/// One for each image, of which a machine has a few, and one for the events; further ones are not
/// kept.
const FILES_MAX: usize = 17;

/// The guard's part.
#[derive(Debug, Default)]
pub struct Custody {
    files: Vec<(String, OwnedFd)>,
    line: Option<Ends>,
}

/// The two ends of a line; while both are here nothing that is in it gets lost.
#[derive(Debug)]
struct Ends {
    guard: OwnedFd,
    daemon: OwnedFd,
}

impl Custody {
    /// What the next daemon is to have as its standard input. Without a line it goes without its
    /// files.
    pub fn hand_over(&mut self) -> Stdio {
        let end = self.open();
        end.map_or_else(
            |error| {
                tracing::warn!(%error, "nothing can be kept");
                Stdio::null()
            },
            Stdio::from,
        )
    }

    /// A new line with all files in it; the daemon's end.
    fn open(&mut self) -> io::Result<OwnedFd> {
        let (guard, daemon) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let end = daemon.try_clone()?;
        for (name, file) in &self.files {
            fd_message::send(&guard, None, name.as_bytes(), Some(file.as_fd()))?;
        }
        self.line = Some(Ends { guard, daemon });
        Ok(end)
    }

    /// Takes what a daemon that has ended wanted to be kept, and drops what it did not.
    pub fn take_back(&mut self) {
        let Some(Ends { guard, daemon }) = self.line.take() else { return };
        while let Some((name, file)) = fd_message::receive(&guard) {
            let Ok(name) = String::from_utf8(name) else { continue };
            self.files.retain(|(other, _)| *other != name);
            if let Some(file) = file.filter(|_| self.files.len() < FILES_MAX) {
                self.files.push((name, file));
            }
        }
        drop(daemon);
    }
}

/// The daemon's part.
#[derive(Debug)]
pub struct Line;

impl Line {
    fn send(&self, name: &str, file: Option<BorrowedFd<'_>>) {
        if let Err(error) = fd_message::send(std::io::stdin(), None, name.as_bytes(), file) {
            tracing::warn!(%error, "the guard was not told of {name}");
        }
    }
}

impl Keeper for Line {
    fn take(&self) -> Vec<(String, OwnedFd)> {
        let messages = std::iter::from_fn(|| fd_message::receive(std::io::stdin())).take(FILES_MAX);
        messages.filter_map(|(name, file)| Some((String::from_utf8(name).ok()?, file?))).collect()
    }

    fn keep(&self, name: &str, file: BorrowedFd<'_>) {
        self.send(name, Some(file));
    }

    fn forget(&self, name: &str) {
        self.send(name, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _, Write as _};

    fn file(text: &str) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn texts(line: &OwnedFd) -> Vec<(String, String)> {
        let messages = std::iter::from_fn(|| fd_message::receive(line));
        let text = |file: OwnedFd| {
            let (mut file, mut text) = (std::fs::File::from(file), String::new());
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        messages.map(|(name, file)| (String::from_utf8(name).unwrap(), text(file.unwrap()))).collect()
    }

    #[test]
    fn each_daemon_has_what_those_before_it_gave() {
        let mut custody = Custody::default();
        let line = custody.open().unwrap();
        assert_eq!(texts(&line), []);
        fd_message::send(&line, None, b"one", Some(file("first").as_fd())).unwrap();
        fd_message::send(&line, None, b"two", Some(file("second").as_fd())).unwrap();
        // It is killed: nothing but the line knows of its files.
        drop(line);
        custody.take_back();
        let line = custody.open().unwrap();
        assert_eq!(texts(&line), [("one".into(), "first".into()), ("two".into(), "second".into())]);
        fd_message::send(&line, None, b"one", Some(file("third").as_fd())).unwrap();
        fd_message::send(&line, None, b"two", None).unwrap();
        fd_message::send(&line, None, b"\xff", Some(file("without a name").as_fd())).unwrap();
        drop(line);
        custody.take_back();
        let line = custody.open().unwrap();
        assert_eq!(texts(&line), [("one".into(), "third".into())]);
        for number in 0..2 * FILES_MAX {
            fd_message::send(&line, None, number.to_string().as_bytes(), Some(file("").as_fd())).unwrap();
        }
        custody.take_back();
        assert_eq!(custody.files.len(), FILES_MAX);
    }
}
