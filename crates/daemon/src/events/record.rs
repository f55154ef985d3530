//! One event as bytes: number, time, process, the lengths of word and text, and both of them.

use vfield_control::events::EventStatus;

/// Length of a record: a page has sixteen, so that a write of one is never torn between two pages.
pub const RECORD_BYTES: usize = 256;
const HEAD_BYTES: usize = 8 + 8 + 4 + 2;
/// Longest word; ours have 17 bytes at most.
const WORD_BYTES_MAX: usize = 24;

/// An event within [`RECORD_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number of the event, from 1 on.
    pub number: u64,
    at_ms: u64,
    pid: u32,
    word: String,
    text: String,
}

impl Record {
    /// Cuts a text that is too long, between two characters.
    pub fn new(number: u64, at_ms: u64, pid: u32, word: &str, text: &str) -> Self {
        let word = cut(word, WORD_BYTES_MAX);
        let text = cut(text, RECORD_BYTES - HEAD_BYTES - word.len());
        Self { number, at_ms, pid, word: word.to_owned(), text: text.to_owned() }
    }

    /// All of it in a record's length, with zeros behind.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.at_ms.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        bytes.extend([self.word.len() as u8, self.text.len() as u8]);
        bytes.extend(self.word.bytes());
        bytes.extend(self.text.bytes());
        bytes.resize(RECORD_BYTES, 0);
        bytes.try_into().expect("a record fits its length")
    }

    /// The inverse of [`Record::encode`]; `None` for anything else, and for a place without one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (at_ms, rest) = rest.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let ([word, text], rest) = rest.split_first_chunk()?;
        let (word, rest) = rest.split_at_checked((*word).into())?;
        let text = rest.get(..(*text).into())?;
        let number = u64::from_le_bytes(*number);
        let plain = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let record = Self {
            number,
            at_ms: u64::from_le_bytes(*at_ms),
            pid: u32::from_le_bytes(*pid),
            word: plain(word).filter(|word| word.len() <= WORD_BYTES_MAX)?,
            text: plain(text)?,
        };
        (number > 0).then_some(record)
    }

    /// The event for display.
    pub fn event(self) -> EventStatus {
        let Self { number, at_ms, pid, word: event, text } = self;
        EventStatus { number, at_ms, pid, event, text }
    }
}

/// As much of a text as fits, in whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let ends = text.char_indices().map(|(at, letter)| at + letter.len_utf8());
    &text[..ends.take_while(|end| *end <= bytes_max).last().unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_long_ones_are_cut() {
        let long = "ü".repeat(300);
        for (word, text) in [("joined", "joined x"), ("", ""), (long.as_str(), long.as_str())] {
            let record = Record::new(7, 8, 9, word, text);
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        assert_eq!(Record::new(1, 0, 0, "x", &long).text, "ü".repeat((RECORD_BYTES - HEAD_BYTES - 1) / 2));
        assert_eq!(Record::decode(&[0; RECORD_BYTES]), None);
        assert_eq!(Record::decode(&[0xff; RECORD_BYTES]), None);
        assert_eq!(Record::decode(b"short"), None);
    }
}
