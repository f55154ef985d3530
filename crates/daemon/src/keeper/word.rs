//! What a guard and its daemon say to each other: one message each, some with a file.
//!
//! Names of files are messages as they are; all else begins with a mark that no name has. Guard and
//! daemon may be of different versions, so unknown words are skipped.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use vfield_control::fd_message;

/// What a word begins with that is no name.
const MARK: char = '!';
/// Longer messages are cut: a reason, or a name.
const TEXT_BYTES_MAX: usize = 256;
/// How long the other side may take to make room for a message.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// A message between a guard and its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// A file's name. From a daemon: keep this file, or without a file forget that one. From the
    /// guard: this is left to you.
    File(String),
    /// Daemon: start my successor. The number is the version of the state that it will find; the
    /// file, if there is one, speaks for whoever names another program.
    Upgrade(u32),
    /// Successor: I am a daemon that understands such a state.
    Alive,
    /// Successor: nothing slow is left to do.
    Ready,
    /// Successor: I cannot, since...
    Refuse(String),
    /// Guard, to the daemon: your successor is ready, hand over. To the successor: you have it all.
    Go,
    /// Guard: there is no successor, since...
    Failed(String),
    /// Daemon: you have it all, and I end.
    Handed,
    /// Daemon: all that was left to me is taken over.
    Up,
}

impl Word {
    fn text(&self) -> String {
        let word = |word: &str| format!("{MARK}{word}");
        match self {
            Self::File(name) => name.clone(),
            Self::Upgrade(version) => word(&format!("upgrade {version}")),
            Self::Alive => word("alive"),
            Self::Ready => word("ready"),
            Self::Refuse(why) => word(&format!("refuse {why}")),
            Self::Go => word("go"),
            Self::Failed(why) => word(&format!("failed {why}")),
            Self::Handed => word("handed"),
            Self::Up => word("up"),
        }
    }

    /// `None` for a word of another version.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let Some(word) = text.strip_prefix(MARK) else { return Some(Self::File(text.into_owned())) };
        let (word, rest) = word.split_once(' ').unwrap_or((word, ""));
        Some(match word {
            "upgrade" => Self::Upgrade(rest.parse().ok()?),
            "alive" => Self::Alive,
            "ready" => Self::Ready,
            "refuse" => Self::Refuse(rest.to_owned()),
            "go" => Self::Go,
            "failed" => Self::Failed(rest.to_owned()),
            "handed" => Self::Handed,
            "up" => Self::Up,
            _ => return None,
        })
    }
}

/// The outcome of listening.
#[derive(Debug)]
pub enum Heard {
    /// A message, perhaps with a file.
    Word(Word, Option<OwnedFd>),
    /// Nothing is here.
    Nothing,
    /// The other side has ended.
    End,
}

/// Says a word; waits a little if the other side is slow.
pub fn say(line: impl AsFd, word: &Word, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut text = word.text();
    while text.len() > TEXT_BYTES_MAX {
        text.pop();
    }
    loop {
        match fd_message::send(&line, None, text.as_bytes(), file) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
        if !wait(&line, PollFlags::OUT, Some(ROOM_WITHIN))? {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

/// Takes the next word, if there is one. Does not block.
pub fn hear(line: impl AsFd) -> Heard {
    let mut text = vec![0; TEXT_BYTES_MAX];
    loop {
        match fd_message::receive_into(&line, &mut text) {
            Ok((0, _)) => return Heard::End,
            Ok((bytes, file)) => match Word::parse(&text[..bytes]) {
                Some(word) => return Heard::Word(word, file),
                None => continue,
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
            Err(_) => return Heard::End,
        }
    }
}

/// Waits for something to hear.
pub fn listen(line: impl AsFd) -> io::Result<()> {
    wait(line, PollFlags::IN, None).map(drop)
}

/// False if the time is over.
fn wait(line: impl AsFd, what: PollFlags, time: Option<Duration>) -> io::Result<bool> {
    let time = time.map(|time| Timespec::try_from(time).expect("a short time"));
    let mut fds = [PollFd::from_borrowed_fd(line.as_fd(), what)];
    match poll(&mut fds, time.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn words_come_back_and_unknown_ones_are_skipped() {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let words = [
            Word::File("store-1".into()),
            Word::Upgrade(7),
            Word::Alive,
            Word::Ready,
            Word::Refuse("it is full".into()),
            Word::Go,
            Word::Failed(String::new()),
            Word::Handed,
            Word::Up,
        ];
        for word in &words {
            fd_message::send(&one, None, b"!of another version", None).unwrap();
            say(&one, word, None).unwrap();
        }
        fd_message::send(&one, None, b"!upgrade now", None).unwrap();
        for word in &words {
            assert!(matches!(hear(&other), Heard::Word(heard, None) if heard == *word), "{word:?}");
        }
        assert!(matches!(hear(&other), Heard::Nothing));
        say(&one, &Word::Refuse("ü".repeat(400)), None).unwrap();
        assert!(
            matches!(hear(&other), Heard::Word(Word::Refuse(why), None) if why.chars().all(|letter| letter == 'ü'))
        );
        drop(one);
        assert!(matches!(hear(&other), Heard::End));
    }
}
