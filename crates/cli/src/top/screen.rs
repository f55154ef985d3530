//! The terminal of `vfield top`: its size, its keys, and the way back to what it was before.

use super::view::Size;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};
use std::io::{self, Read as _, Write as _, stdin, stdout};
use tokio::sync::mpsc;
use vfield_console::failure::{Failure, plain};

/// Another screen beside that of the shell, without a cursor and without breaks of long lines.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Rows of one step of Page Up and Page Down.
const PAGE: isize = 10;

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Quit,
    /// Another order of the rows.
    Order,
    /// So many rows down, or up if negative.
    Scroll(isize),
    Other,
}

/// The terminal while it is drawn upon. Dropping it gives it back as it was.
#[derive(Debug)]
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes the terminal.
    pub fn enter() -> Result<Self, Failure> {
        let hint = "`vfield top --once` prints it once, to anything";
        if !isatty(stdin()) || !isatty(stdout()) {
            return Err(Failure::failed("top needs a terminal").hint(hint));
        }
        let refused = |error: io::Error| Failure::failed(format!("the terminal: {}", plain(&error))).hint(hint);
        let before = tcgetattr(stdin()).map_err(|errno| refused(errno.into()))?;
        let mut raw = before.clone();
        // Signals are keys here, so that no key ends the program in the midst of a picture.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        (raw.special_codes[SpecialCodeIndex::VMIN], raw.special_codes[SpecialCodeIndex::VTIME]) = (1, 0);
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(|errno| refused(errno.into()))?;
        let screen = Self { before };
        // A panic ends the process without any drop.
        let (tell, before) = (std::panic::take_hook(), screen.before.clone());
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&before);
            tell(panic);
        }));
        put(ENTER).map_err(refused)?;
        Ok(screen)
    }

    /// Shows these lines and nothing else.
    pub fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut out = b"\x1b[H".to_vec();
        for (number, line) in lines.iter().enumerate() {
            let end = if number + 1 == lines.len() { "\x1b[K\x1b[J" } else { "\x1b[K\r\n" };
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(end.as_bytes());
        }
        put(&out)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.before);
    }
}

fn give_back(before: &Termios) {
    // The terminal may be gone; nobody is left to be told.
    let _ = put(LEAVE);
    let _ = tcsetattr(stdin(), OptionalActions::Now, before);
}

fn put(bytes: &[u8]) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// The size of the terminal on stdout, if it is one and says it.
pub fn size() -> Option<Size> {
    let size = tcgetwinsize(stdout()).ok()?;
    let (width, height) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (width > 0).then_some(Size { width, height: (height > 0).then_some(height) })
}

/// The keys that come from now on.
pub fn keys() -> mpsc::Receiver<Key> {
    let (send, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok(read @ 1..) = stdin().lock().read(&mut bytes) {
            for key in parse(&bytes[..read]) {
                if send.blocking_send(key).is_err() {
                    return;
                }
            }
        }
    });
    keys
}

/// The keys in the bytes of a terminal, which sends each of them at once.
fn parse(mut bytes: &[u8]) -> Vec<Key> {
    /// The sequences of keys without a letter.
    const SEQUENCES: [(&[u8], Key); 6] = [
        (b"\x1b[A", Key::Scroll(-1)),
        (b"\x1b[B", Key::Scroll(1)),
        (b"\x1bOA", Key::Scroll(-1)),
        (b"\x1bOB", Key::Scroll(1)),
        (b"\x1b[5~", Key::Scroll(-PAGE)),
        (b"\x1b[6~", Key::Scroll(PAGE)),
    ];
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(sequence, _)| bytes.starts_with(sequence)) {
            keys.push(*key);
            bytes = &bytes[sequence.len()..];
            continue;
        }
        keys.push(match first {
            // Control-C among them.
            b'q' | 0x03 => Key::Quit,
            b'o' => Key::Order,
            b'j' => Key::Scroll(1),
            b'k' => Key::Scroll(-1),
            _ => Key::Other,
        });
        // The rest of an unknown sequence are no letters.
        bytes = if *first == 0x1b { &[] } else { rest };
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        assert_eq!(parse(b"q"), [Key::Quit]);
        assert_eq!(parse(b"\x03"), [Key::Quit]);
        assert_eq!(parse(b"\x1b[B\x1b[5~ko"), [Key::Scroll(1), Key::Scroll(-PAGE), Key::Scroll(-1), Key::Order]);
        assert_eq!(parse(b"\x1b[1;5q"), [Key::Other], "no letter of a sequence is a key");
        assert_eq!(parse(b""), []);
    }
}
