//! The part of EROFS that is written and read here, as bytes.
//!
//! Owns the on-disk numbers of the superblock and of extended inodes, as the kernel documents them
//! (`Documentation/filesystems/erofs.rst`, <https://erofs.docs.kernel.org/en/latest/ondisk/>). All
//! are little-endian. Knows no layout: [`crate::layout`] says where something lies.
//!
//! Only extended inodes are written. They hold every size, owner and time, so an inode never
//! outgrows its place when its file gets a later time or a larger size.

pub mod directory;
pub mod xattrs;

/// Bytes of a block: the only size that kernels before 6.4 mount.
pub const BLOCK_BYTES: u64 = 4096;
/// Bytes of the unit in which inode numbers count addresses.
pub const SLOT_BYTES: u64 = 32;
/// Bytes of an extended inode.
pub const INODE_BYTES: u64 = 64;
/// Where the superblock begins.
pub const SUPERBLOCK_AT: usize = 1024;
/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 128;
/// Highest inode number of a root directory: its field has 16 bits.
pub const ROOT_NID_MAX: u64 = u16::MAX as u64;
/// The address that stands for a hole in the map of a file of chunks.
pub const HOLE: u32 = u32::MAX;
/// Most blocks of an image: addresses have 32 bits, and one of them stands for a hole.
pub const BLOCKS_MAX: u64 = HOLE as u64;

const MAGIC: u32 = 0xE0F5_E1E2;
const BLOCK_BITS: u8 = 12;
/// The superblock has a checksum, and times of inodes are those of their last change.
const COMPATIBLE: u32 = 0x1 | 0x2;
/// Some files are maps of chunks.
const CHUNKED_FILE: u32 = 0x4;
/// The Castagnoli polynomial with its bits reversed.
const CRC32C: u32 = 0x82F6_3B78;

const _: () = assert!(1 << BLOCK_BITS == BLOCK_BYTES);

/// Where the contents of an inode lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In consecutive blocks from this one on, or nowhere.
    Plain(u32),
    /// Behind the inode and its attributes, in the same block.
    Inline,
    /// In chunks of `1 << bits` blocks, whose addresses stand behind the inode and its attributes.
    Chunked {
        /// Binary logarithm of the blocks in a chunk, below 32.
        bits: u8,
    },
    /// Nowhere: a device has this number.
    Device(u32),
}

/// An extended inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Number of the user who owns it.
    pub uid: u32,
    /// Number of the group that owns it.
    pub gid: u32,
    /// Seconds since 1970; negative before.
    pub mtime_s: i64,
    /// Nanoseconds of the time, below 10^9.
    pub mtime_ns: u32,
    /// Names of the inode; for a directory, its own entries and those of its subdirectories.
    pub links: u32,
    /// Bytes of its contents.
    pub size_bytes: u64,
    /// Bytes of its attributes, a multiple of 4.
    pub xattr_bytes: u64,
    /// Where the contents lie.
    pub form: Form,
}

impl Inode {
    /// The inode's bytes. `nid` is its number.
    ///
    /// # Panics
    /// If the attributes have more bytes than [`xattrs::BYTES_MAX`].
    pub fn encode(&self, nid: u64) -> [u8; INODE_BYTES as usize] {
        let (layout, u) = match self.form {
            Form::Plain(block) => (0, block),
            Form::Inline => (2, 0),
            Form::Chunked { bits } => (4, u32::from(bits)),
            Form::Device(number) => (0, number),
        };
        let mut bytes = [0; INODE_BYTES as usize];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &(1_u16 | layout << 1).to_le_bytes());
        put(2, &xattrs::count(self.xattr_bytes).to_le_bytes());
        put(4, &self.mode.to_le_bytes());
        put(8, &self.size_bytes.to_le_bytes());
        put(16, &u.to_le_bytes());
        // Only systems with inode numbers of 32 bits show it.
        put(20, &(nid as u32).to_le_bytes());
        put(24, &self.uid.to_le_bytes());
        put(28, &self.gid.to_le_bytes());
        put(32, &self.mtime_s.to_le_bytes());
        put(40, &self.mtime_ns.to_le_bytes());
        put(44, &self.links.to_le_bytes());
        bytes
    }

    /// The inode in `bytes`; `None` if this project does not write such inodes.
    pub fn decode(bytes: &[u8; INODE_BYTES as usize]) -> Option<Self> {
        let format = u16_at(bytes, 0);
        let mode = u16_at(bytes, 4);
        let u = u32_at(bytes, 16);
        let form = match (format, mode & MODE_TYPE) {
            (1, MODE_CHARACTER | MODE_BLOCK) => Form::Device(u),
            (1, _) => Form::Plain(u),
            (0b101, _) => Form::Inline,
            (0b1001, MODE_FILE) if u < 32 => Form::Chunked { bits: u as u8 },
            _ => return None,
        };
        Some(Self {
            mode,
            uid: u32_at(bytes, 24),
            gid: u32_at(bytes, 28),
            mtime_s: u64_at(bytes, 32) as i64,
            mtime_ns: u32_at(bytes, 40),
            links: u32_at(bytes, 44),
            size_bytes: u64_at(bytes, 8),
            xattr_bytes: xattrs::bytes(u16_at(bytes, 2)),
            form,
        })
    }
}

/// The bits of a mode that say what an inode is.
pub const MODE_TYPE: u16 = 0o170_000;
/// A regular file.
pub const MODE_FILE: u16 = 0o100_000;
/// A directory of other files.
pub const MODE_DIRECTORY: u16 = 0o040_000;
/// A symbolic link.
pub const MODE_SYMLINK: u16 = 0o120_000;
/// A character device.
pub const MODE_CHARACTER: u16 = 0o020_000;
/// A block device.
pub const MODE_BLOCK: u16 = 0o060_000;
/// A named pipe.
pub const MODE_FIFO: u16 = 0o010_000;
/// A socket, which is nothing but a name.
pub const MODE_SOCKET: u16 = 0o140_000;

/// A device's number as the kernel encodes it, or `None` above 12 bits of major and 20 of minor
/// number.
pub fn device_number(major: u32, minor: u32) -> Option<u32> {
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some((minor & 0xff) | major << 8 | (minor & !0xff) << 12)
}

/// What the superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Number of the root directory's inode, at most [`ROOT_NID_MAX`].
    pub root_nid: u16,
    /// Number of inodes.
    pub inodes: u64,
    /// Time of the newest inode, in seconds since 1970.
    pub built_s: u64,
    /// Blocks of the image.
    pub blocks: u32,
    /// Number of the file system.
    pub uuid: [u8; 16],
    /// True if a file is a map of chunks.
    pub has_chunked: bool,
}

impl Superblock {
    /// Writes the superblock into the image's first block, and its checksum of that block.
    ///
    /// # Panics
    /// If `first_block` is no block.
    pub fn seal(&self, first_block: &mut [u8]) {
        assert_eq!(first_block.len() as u64, BLOCK_BYTES);
        let area = &mut first_block[SUPERBLOCK_AT..];
        area[..SUPERBLOCK_BYTES].fill(0);
        let mut put = |at: usize, field: &[u8]| area[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC.to_le_bytes());
        put(8, &COMPATIBLE.to_le_bytes());
        put(12, &[BLOCK_BITS]);
        put(14, &self.root_nid.to_le_bytes());
        put(16, &self.inodes.to_le_bytes());
        put(24, &self.built_s.to_le_bytes());
        put(36, &self.blocks.to_le_bytes());
        put(48, &self.uuid);
        put(80, &(if self.has_chunked { CHUNKED_FILE } else { 0 }).to_le_bytes());
        let checksum = crc32c(area);
        area[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The superblock in the first block of an image.
    ///
    /// # Errors
    /// A reason, if the block is not as [`Superblock::seal`] makes it.
    ///
    /// # Panics
    /// If `first_block` is no block.
    pub fn open(first_block: &[u8]) -> Result<Self, &'static str> {
        assert_eq!(first_block.len() as u64, BLOCK_BYTES);
        let mut area = first_block[SUPERBLOCK_AT..].to_vec();
        if u32_at(&area, 0) != MAGIC {
            return Err("no EROFS image");
        }
        if area[12] != BLOCK_BITS || u32_at(&area, 8) != COMPATIBLE || u32_at(&area, 40) != 0 {
            return Err("an EROFS image of another program");
        }
        let checksum = u32_at(&area, 4);
        area[4..8].fill(0);
        if crc32c(&area) != checksum {
            return Err("damaged: the checksum of its superblock is wrong");
        }
        Ok(Self {
            root_nid: u16_at(&area, 14),
            inodes: u64_at(&area, 16),
            built_s: u64_at(&area, 24),
            blocks: u32_at(&area, 36),
            uuid: area[48..64].try_into().expect("16 bytes"),
            has_chunked: u32_at(&area, 80) == CHUNKED_FILE,
        })
    }
}

/// CRC-32C of `bytes` as the kernel has it: from all ones, not inverted at the end.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { CRC32C } else { 0 })
    })
}

/// A little-endian number of 16 bits.
///
/// # Panics
/// If `bytes` ends before it; the same holds for its siblings.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

/// A little-endian number of 32 bits.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// A little-endian number of 64 bits.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(!crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn inodes_are_read_as_they_are_written() {
        let inode = Inode {
            mode: MODE_FILE | 0o4755,
            uid: 70_000,
            gid: 3,
            mtime_s: -5,
            mtime_ns: 999_999_999,
            links: 2,
            size_bytes: 1 << 40,
            xattr_bytes: 0,
            form: Form::Plain(7),
        };
        for inode in [
            inode,
            Inode { form: Form::Inline, xattr_bytes: 24, ..inode },
            Inode { form: Form::Chunked { bits: 4 }, ..inode },
            Inode { mode: MODE_BLOCK, form: Form::Device(9), ..inode },
        ] {
            assert_eq!(Inode::decode(&inode.encode(36)), Some(inode));
        }
    }

    #[test]
    fn device_numbers_are_the_kernels() {
        assert_eq!(device_number(8, 1), Some(0x801));
        assert_eq!(device_number(259, 0x12345), Some(0x1231_0345));
        assert_eq!(device_number(4096, 0), None);
        assert_eq!(device_number(0, 1 << 20), None);
    }

    #[test]
    fn a_superblock_is_read_as_it_is_sealed_and_only_so() {
        let superblock =
            Superblock { root_nid: 36, inodes: 5, built_s: 7, blocks: 16, uuid: [3; 16], has_chunked: true };
        let mut block = vec![1; BLOCK_BYTES as usize];
        superblock.seal(&mut block);
        assert_eq!(Superblock::open(&block), Ok(superblock));
        block[2000] ^= 1;
        assert!(Superblock::open(&block).is_err());
    }
}
