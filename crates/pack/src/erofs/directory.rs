//! Directories as bytes: blocks of entries, each block readable by itself.
//!
//! A block begins with its entries of 12 bytes, and their names follow in the same order. The names
//! of a whole directory are in ascending order of their bytes, `.` and `..` among them.

use super::{BLOCK_BYTES, u16_at, u64_at};

/// Bytes of an entry without its name.
const ENTRY_BYTES: usize = 12;
/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;

/// One name of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name, with 1 to [`NAME_BYTES_MAX`] bytes, none of which is zero or a slash.
    pub name: &'a [u8],
    /// Number of the inode.
    pub nid: u64,
    /// Type of the inode, as in its mode.
    pub mode: u16,
}

/// The bytes of a directory with these names, in ascending order: whole blocks, and the used part
/// of the last.
pub fn length_bytes<'a>(names: impl Iterator<Item = &'a [u8]>) -> u64 {
    let (mut whole, mut used) = (0, 0);
    for name in names {
        let more = (ENTRY_BYTES + name.len()) as u64;
        if used + more > BLOCK_BYTES {
            whole += BLOCK_BYTES;
            used = 0;
        }
        used += more;
    }
    whole + used
}

/// Appends the directory's bytes to `out`, of the length that [`length_bytes`] says.
pub fn encode(entries: &[Entry<'_>], out: &mut Vec<u8>) {
    let mut rest = entries;
    while !rest.is_empty() {
        let mut used = 0;
        let fitting = rest.iter().take_while(|entry| {
            used += ENTRY_BYTES + entry.name.len();
            used as u64 <= BLOCK_BYTES
        });
        let (block, after) = rest.split_at(fitting.count());
        let start = out.len();
        let mut name_at = block.len() * ENTRY_BYTES;
        for entry in block {
            out.extend(entry.nid.to_le_bytes());
            out.extend((name_at as u16).to_le_bytes());
            out.extend([type_of(entry.mode), 0]);
            name_at += entry.name.len();
        }
        for entry in block {
            out.extend(entry.name);
        }
        if !after.is_empty() {
            out.resize(start + BLOCK_BYTES as usize, 0);
        }
        rest = after;
    }
}

/// The name and the inode number of each entry in a block. The last block of a directory may be its
/// used part alone. `None` if it is no such block.
pub fn decode(block: &[u8]) -> Option<Vec<(&[u8], u64)>> {
    if block.len() < ENTRY_BYTES {
        return None;
    }
    let names_at = usize::from(u16_at(block, 8));
    if names_at == 0 || names_at % ENTRY_BYTES != 0 || names_at > block.len() {
        return None;
    }
    let heads: Vec<&[u8]> = block[..names_at].chunks(ENTRY_BYTES).collect();
    let mut entries = Vec::with_capacity(heads.len());
    for (index, head) in heads.iter().enumerate() {
        let start = usize::from(u16_at(head, 8));
        let end = heads.get(index + 1).map_or(block.len(), |next| usize::from(u16_at(next, 8)));
        let name = block.get(start..end).filter(|_| start >= names_at)?;
        // The last name of a block that is not full ends at a zero.
        let name = name.split(|byte| *byte == 0).next()?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&b'/') {
            return None;
        }
        entries.push((name, u64_at(head, 0)));
    }
    Some(entries)
}

/// The code of an inode's type in an entry.
fn type_of(mode: u16) -> u8 {
    match mode & super::MODE_TYPE {
        super::MODE_FILE => 1,
        super::MODE_DIRECTORY => 2,
        super::MODE_CHARACTER => 3,
        super::MODE_BLOCK => 4,
        super::MODE_FIFO => 5,
        super::MODE_SOCKET => 6,
        super::MODE_SYMLINK => 7,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_many_blocks_is_read_as_it_is_written() {
        let names: Vec<Vec<u8>> = (0..1000_u32).map(|number| format!("{number:0>100}").into_bytes()).collect();
        let entries: Vec<Entry> =
            names.iter().zip(36..).map(|(name, nid)| Entry { name, nid, mode: super::super::MODE_FILE }).collect();
        let mut bytes = Vec::new();
        encode(&entries, &mut bytes);
        assert_eq!(bytes.len() as u64, length_bytes(names.iter().map(Vec::as_slice)));
        let read: Vec<_> =
            bytes.chunks(BLOCK_BYTES as usize).flat_map(|block| decode(block).expect("a block")).collect();
        assert_eq!(read.len(), 1000);
        assert!(read.iter().zip(&entries).all(|(read, entry)| *read == (entry.name, entry.nid)));
    }

    #[test]
    fn garbage_is_no_block() {
        for block in [&[][..], &[0; 12], &[255; 4096], &[12; 40]] {
            assert_eq!(decode(block), None);
        }
    }
}
