//! The guard as a keeper: it has the files in its own hands, and gives them to each daemon that it
//! starts.
//!
//! Between the two is a line, the daemon's standard input. Words of the daemon stay in it, files
//! included, until the guard looks, so a daemon may be killed at any moment. The files for a daemon
//! end with [`Word::Go`].

use super::word::{self, Heard, Word};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use vfield_node::keeper::Keeper;

/// Sockets, a mount, the events and a store for each image are a few dozen. A server hands over 128
/// connections at most. Further files are not kept.
const FILES_MAX: usize = 1024;
/// What the names of files begin with that are of use to one daemon only, the next.
pub const ONCE: &str = "once-";

/// The guard's part.
#[derive(Debug, Default)]
pub struct Custody {
    files: Vec<(String, OwnedFd)>,
}

/// The two ends of a line; while both are here nothing that is in it gets lost.
#[derive(Debug)]
pub struct Ends {
    /// The end that stays with the guard.
    pub guard: OwnedFd,
    /// The end that becomes the daemon's standard input.
    pub daemon: OwnedFd,
}

impl Ends {
    /// A new line.
    pub fn new() -> io::Result<Self> {
        let (guard, daemon) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok(Self { guard, daemon })
    }
}

impl Custody {
    /// Gives all files to the daemon at the end of a line, which takes them meanwhile.
    pub fn give(&self, line: &OwnedFd) -> io::Result<()> {
        for (name, file) in &self.files {
            word::say(line, &Word::File(name.clone()), Some(file.as_fd()))?;
        }
        word::say(line, &Word::Go, None)
    }

    /// Keeps a file, or forgets the one of that name.
    pub fn change(&mut self, name: String, file: Option<OwnedFd>) {
        self.files.retain(|(other, _)| *other != name);
        if let Some(file) = file.filter(|_| self.files.len() < FILES_MAX) {
            self.files.push((name, file));
        }
    }

    /// Drops all files that only one daemon could use.
    pub fn spend(&mut self) {
        self.files.retain(|(name, _)| !name.starts_with(ONCE));
    }
}

/// The daemon's part.
#[derive(Debug)]
pub struct Line;

impl Line {
    /// Says a word to the guard.
    pub fn say(&self, word: &Word, file: Option<BorrowedFd<'_>>) {
        if let Err(error) = word::say(std::io::stdin(), word, file) {
            tracing::warn!(%error, "the guard was not told: {word:?}");
        }
    }
}

impl Keeper for Line {
    /// Waits until the guard has said that this is all.
    fn take(&self) -> Vec<(String, OwnedFd)> {
        let mut files = Vec::new();
        loop {
            match word::hear(std::io::stdin()) {
                Heard::Word(Word::File(name), Some(file)) => files.push((name, file)),
                Heard::Word(Word::Go, _) | Heard::End => return files,
                Heard::Word(..) => {}
                Heard::Nothing => {
                    if word::listen(std::io::stdin()).is_err() {
                        return files;
                    }
                }
            }
        }
    }

    fn keep(&self, name: &str, file: BorrowedFd<'_>) {
        self.say(&Word::File(name.to_owned()), Some(file));
    }

    fn forget(&self, name: &str) {
        self.say(&Word::File(name.to_owned()), None);
    }

    fn keeps_sockets(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _, Write as _};

    fn file(text: &str) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.into()
    }

    /// What a daemon is left.
    fn left(custody: &Custody) -> Vec<(String, String)> {
        let line = Ends::new().unwrap();
        custody.give(&line.guard).unwrap();
        let mut texts = Vec::new();
        loop {
            match word::hear(&line.daemon) {
                Heard::Word(Word::File(name), Some(file)) => {
                    let (mut file, mut text) = (std::fs::File::from(file), String::new());
                    file.rewind().unwrap();
                    file.read_to_string(&mut text).unwrap();
                    texts.push((name, text));
                }
                Heard::Word(Word::Go, None) => return texts,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn each_daemon_has_what_those_before_it_gave() {
        let mut custody = Custody::default();
        assert_eq!(left(&custody), []);
        custody.change("one".into(), Some(file("first")));
        custody.change("two".into(), Some(file("second")));
        assert_eq!(left(&custody), [("one".into(), "first".into()), ("two".into(), "second".into())]);
        custody.change("one".into(), Some(file("third")));
        custody.change("two".into(), None);
        custody.change("once-x".into(), Some(file("spent")));
        assert_eq!(left(&custody), [("one".into(), "third".into()), ("once-x".into(), "spent".into())]);
        custody.spend();
        assert_eq!(left(&custody), [("one".into(), "third".into())]);
        for number in 0..FILES_MAX + 3 {
            custody.change(number.to_string(), Some(file("")));
        }
        assert_eq!(custody.files.len(), FILES_MAX);
    }
}
