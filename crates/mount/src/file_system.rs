//! The file systems that images have, and how each is told from its first bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file system that the kernel mounts from an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As `vfield pack` makes it.
    Erofs,
    /// Compressed; as live systems have it.
    Squashfs,
    /// Any of ext2, ext3 and ext4.
    Ext4,
    /// Mounted without its log, and beside another one with the same UUID.
    Xfs,
    /// On one device only.
    Btrfs,
    /// As on optical discs.
    Iso9660,
}

/// Where each has its magic, and which it is.
const MAGICS: [(u64, &[u8], Kind); 6] = [
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], Kind::Erofs),
    (0, b"hsqs", Kind::Squashfs),
    (1080, &[0x53, 0xef], Kind::Ext4),
    (0, b"XFSB", Kind::Xfs),
    (65_600, b"_BHRfS_M", Kind::Btrfs),
    (32_769, b"CD001", Kind::Iso9660),
];

impl Kind {
    /// All of them, for people to choose from.
    pub const ALL: [Self; 6] = [Self::Erofs, Self::Squashfs, Self::Ext4, Self::Xfs, Self::Btrfs, Self::Iso9660];

    /// The file system that begins in a file, if it is a known one.
    pub(crate) fn of(file: &File) -> io::Result<Option<Self>> {
        for (at, magic, kind) in MAGICS {
            let mut bytes = [0; 8];
            let bytes = &mut bytes[..magic.len()];
            match file.read_exact_at(bytes, at) {
                Ok(()) if bytes == magic => return Ok(Some(kind)),
                Ok(()) => {}
                // A short file may have another one.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The kernel's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Erofs => "erofs",
            Self::Squashfs => "squashfs",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Iso9660 => "iso9660",
        }
    }

    /// What it needs so that nothing has to be written.
    pub(crate) const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["noload"],
            Self::Xfs => &["norecovery", "nouuid"],
            Self::Erofs | Self::Squashfs | Self::Btrfs | Self::Iso9660 => &[],
        }
    }
}
