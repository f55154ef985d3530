//! The guard as a keeper: it has the files in its own hands, and gives them to each daemon that it
//! starts.
//!
//! A guard that a service manager has started leaves the same files with the manager, so that they
//! outlive the guard too: all but sockets, which are of no use once the guard has ended.
//!
//! Between the two is a line, the daemon's standard input. Words of the daemon stay in it, files
//! included, until the guard looks, so a daemon may be killed at any moment. The files for a daemon
//! end with [`Word::Go`].

use super::word::{self, Heard, Word};
use crate::estate;
use rustix::fs::fstat;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use vfield_node::keeper::Keeper;

/// Sockets, a mount, events and orders are a dozen. Others remember 256 images of a node, and each
/// has a store, or a file that was added and its hashes. A server hands over 128 connections at
/// most. Further files are not kept.
const FILES_MAX: usize = 1024;
/// What the names of files begin with that are of use to one daemon only, the next.
pub const ONCE: &str = "once-";

/// The guard's part.
#[derive(Debug, Default)]
pub struct Custody {
    files: Vec<(String, OwnedFd)>,
    /// Whoever keeps files for the guard.
    behind: Option<Box<dyn Keeper>>,
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
    /// Goes on with the files of an earlier guard, which `behind` has kept, if anybody did.
    pub fn with(behind: Option<Box<dyn Keeper>>) -> Self {
        let files = behind.as_ref().map_or_else(Vec::new, |behind| behind.take());
        Self { files, behind }
    }

    /// Gives all files to the daemon at the end of a line, which takes them meanwhile.
    pub fn give(&self, line: &OwnedFd) -> io::Result<()> {
        for (name, file) in &self.files {
            word::say(line, &Word::File(name.clone()), Some(file.as_fd()))?;
        }
        word::say(line, &Word::Go, None)
    }

    /// Keeps a file, or forgets the one of that name.
    pub fn change(&mut self, name: String, file: Option<OwnedFd>) {
        let before = self.files.iter().position(|(other, _)| *other == name).map(|at| self.files.remove(at).1);
        let file = file.filter(|_| self.files.len() < FILES_MAX);
        if let Some(behind) = self.behind.as_ref().filter(|_| estate::outlives_guard(&name)) {
            let same = before.as_ref().zip(file.as_ref()).is_some_and(|(before, file)| is_same(before, file));
            if before.is_some() && !same {
                behind.forget(&name);
            }
            file.iter().filter(|_| !same).for_each(|file| behind.keep(&name, file.as_fd()));
        }
        self.files.extend(file.map(|file| (name, file)));
    }

    /// Drops all files that only one daemon could use.
    pub fn spend(&mut self) {
        self.files.retain(|(name, _)| !name.starts_with(ONCE));
    }
}

/// True if both lead to one file. A service manager may keep two files under a name.
fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let id = |file: &OwnedFd| fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino));
    id(one).is_some_and(|one| Some(one) == id(other))
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
    use std::sync::{Arc, Mutex};

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

    /// Writes down what it is told.
    #[derive(Debug, Default)]
    struct Manager {
        told: Arc<Mutex<Vec<String>>>,
        kept: Mutex<Vec<(String, OwnedFd)>>,
    }

    impl Keeper for Manager {
        fn take(&self) -> Vec<(String, OwnedFd)> {
            std::mem::take(&mut *self.kept.lock().unwrap())
        }

        fn keep(&self, name: &str, _: BorrowedFd<'_>) {
            self.told.lock().unwrap().push(format!("keep {name}"));
        }

        fn forget(&self, name: &str) {
            self.told.lock().unwrap().push(format!("forget {name}"));
        }
    }

    #[test]
    fn a_service_manager_has_what_outlives_the_guard() {
        let told = Arc::<Mutex<Vec<String>>>::default();
        let kept = Mutex::new(vec![("store-1".to_owned(), file("of before"))]);
        let manager = Manager { told: Arc::clone(&told), kept };
        let mut custody = Custody::with(Some(Box::new(manager)));
        assert_eq!(left(&custody), [("store-1".into(), "of before".into())]);
        let mut tells = |name: &str, file: Option<OwnedFd>| {
            custody.change(name.into(), file);
            std::mem::take(&mut *told.lock().unwrap())
        };
        let store = file("");
        let again = store.try_clone().unwrap();
        assert_eq!(tells("store-1", Some(store)), ["forget store-1", "keep store-1"]);
        assert_eq!(tells("store-1", Some(again)), [""; 0], "it has that file");
        assert_eq!(tells("events", Some(file(""))), ["keep events"]);
        for socket in ["control", "node-tcp", "once-client-0"] {
            assert_eq!(tells(socket, Some(file(""))), [""; 0], "{socket}");
        }
        assert_eq!(tells("store-1", None), ["forget store-1"]);
        assert_eq!(tells("control", None), [""; 0]);
        assert_eq!(tells("mount", None), [""; 0], "nothing of that name was kept");
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
