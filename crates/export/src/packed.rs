//! Plain values as bytes, for state that one process leaves to the next: integers little-endian,
//! runs of bytes behind their length.
//!
//! Invariant: packed bytes are hostile. A run is never longer than the bytes that are here, so
//! nothing is allocated beyond them.

/// Bytes in the making.
#[derive(Debug, Default)]
pub(crate) struct Packer(Vec<u8>);

impl Packer {
    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn word(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// At most 4 GiB.
    pub(crate) fn run(&mut self, bytes: &[u8]) {
        self.word(u32::try_from(bytes.len()).expect("no state has that much"));
        self.0.extend(bytes);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Bytes that are taken apart from the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unpacker<'a>(pub(crate) &'a [u8]);

impl<'a> Unpacker<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn run(&mut self) -> Option<&'a [u8]> {
        let length = self.word()? as usize;
        let (run, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(run)
    }

    /// A run that is text.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        self.run().and_then(|run| str::from_utf8(run).ok())
    }

    /// As many of `item` as a number before them says; nothing if one of them is none.
    pub(crate) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.word()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Some(items)
    }

    /// True if nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }
}
