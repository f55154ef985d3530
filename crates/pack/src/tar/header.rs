//! A tar's header: one block of 512 bytes with fields of text.
//!
//! The fields are those of POSIX.1-2017 (pax, ustar interchange format); GNU tar adds numbers in
//! base 256 and maps of sparse files.

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 512;
/// Parts of a sparse file in its first header, and in each block that follows it.
const PARTS: [usize; 2] = [4, 21];

/// A part of a sparse file: its offset in the file, and its bytes.
pub type Part = (u64, u64);

/// One header, with a valid checksum.
#[derive(Debug)]
pub struct Header<'a>(&'a [u8; BLOCK_BYTES as usize]);

impl<'a> Header<'a> {
    /// The header in a block; a reason if its checksum is wrong.
    pub fn new(block: &'a [u8; BLOCK_BYTES as usize]) -> Result<Self, &'static str> {
        let header = Self(block);
        let sum = |of: fn(u8) -> i64| -> i64 {
            let bytes = block.iter().enumerate();
            bytes.map(|(at, byte)| if (148..156).contains(&at) { 32 } else { of(*byte) }).sum()
        };
        let says = header.number(148, 8).ok_or("a header without a checksum")? as i64;
        // Old programs have summed signed bytes.
        let is_right = says == sum(i64::from) || says == sum(|byte| i64::from(byte as i8));
        is_right.then_some(header).ok_or("a header with a wrong checksum")
    }

    /// The letter of the entry's type.
    pub fn kind(&self) -> u8 {
        self.0[156]
    }

    /// The path, with the prefix that ustar has for long ones.
    pub fn path(&self) -> Vec<u8> {
        let name = self.text(0, 100);
        let is_posix = &self.0[257..263] == b"ustar\0";
        match self.text(345, 155) {
            prefix if is_posix && !prefix.is_empty() => [prefix, name].join(&b'/'),
            _ => name.to_vec(),
        }
    }

    /// The target of a link.
    pub fn target(&self) -> Vec<u8> {
        self.text(157, 100).to_vec()
    }

    /// Permissions, below 0o10000.
    pub fn mode(&self) -> Option<u32> {
        self.number(100, 8).map(|mode| mode as u32 & 0o7777)
    }

    /// Number of the user who owns it.
    pub fn uid(&self) -> Option<u32> {
        u32::try_from(self.number(108, 8)?).ok()
    }

    /// Number of the group that owns it.
    pub fn gid(&self) -> Option<u32> {
        u32::try_from(self.number(116, 8)?).ok()
    }

    /// Bytes behind the header.
    pub fn size_bytes(&self) -> Option<u64> {
        u64::try_from(self.number(124, 12)?).ok()
    }

    /// Time of the last change, in seconds since 1970.
    pub fn mtime_s(&self) -> Option<i64> {
        i64::try_from(self.number(136, 12)?).ok()
    }

    /// Major and minor number of a device.
    pub fn device(&self) -> Option<(u32, u32)> {
        Some((u32::try_from(self.number(329, 8)?).ok()?, u32::try_from(self.number(337, 8)?).ok()?))
    }

    /// Parts of an old GNU sparse file; whether more follow; the file's length.
    pub fn sparse(&self) -> Option<(Vec<Part>, bool, u64)> {
        let length = u64::try_from(self.number(483, 12)?).ok()?;
        Some((parts(&self.0[386..], PARTS[0])?, self.0[482] != 0, length))
    }

    fn text(&self, at: usize, length: usize) -> &'a [u8] {
        let field = &self.0[at..at + length];
        field.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn number(&self, at: usize, length: usize) -> Option<i128> {
        number(&self.0[at..at + length])
    }
}

/// More parts of an old GNU sparse file, and whether another block of them follows.
pub fn more_parts(block: &[u8; BLOCK_BYTES as usize]) -> Option<(Vec<Part>, bool)> {
    Some((parts(block, PARTS[1])?, block[504] != 0))
}

fn parts(bytes: &[u8], count: usize) -> Option<Vec<Part>> {
    let fields = bytes.chunks(24).take(count).take_while(|part| part[0] != 0);
    let half = |bytes: &[u8]| u64::try_from(number(bytes)?).ok();
    fields.map(|part| Some((half(&part[..12])?, half(&part[12..])?))).collect()
}

/// A number in octal digits between spaces and zeros, or in base 256 if the first bit is set.
fn number(field: &[u8]) -> Option<i128> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let start = if first & 0x40 != 0 { -1_i128 << 6 } else { 0 } | i128::from(first & 0x3f);
        return Some(rest.iter().fold(start, |number, byte| number << 8 | i128::from(*byte)));
    }
    let text = field.split(|byte| *byte == 0).next()?.trim_ascii();
    let digit = |number: i128, byte: &u8| matches!(byte, b'0'..=b'7').then(|| number << 3 | i128::from(byte - b'0'));
    text.iter().try_fold(0, digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_forms() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0"), Some(0));
        assert_eq!(number(b"12x\0"), None);
        assert_eq!(number(b"\x80\0\0\x01\x02"), Some(258));
        assert_eq!(number(b"\xff\xff\xff\xfb"), Some(-5));
    }
}
