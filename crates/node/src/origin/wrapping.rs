//! Files that have a disk in them, and are none themselves.
//!
//! A cloud's image often is QCOW2, or compressed. Its readers would find no file system in it. It
//! is served as it is, since a hypervisor may want just that, and a remark says so. Magic numbers
//! from the formats' specifications.

use super::Origin;

/// The bytes that tell, from a file's start.
pub const HEAD_BYTES: u64 = 512;

/// How a disk lies in a file.
enum Wrapping {
    /// In a format of hypervisors.
    Format(&'static str),
    /// By a program, which also unpacks.
    Compressed(&'static str),
    Tar,
}

use Wrapping::{Compressed, Format, Tar};

/// The place, and the bytes there.
const KNOWN: [(usize, &[u8], Wrapping); 11] = [
    (0, b"QFI\xfb", Format("QCOW2")),
    (0, b"QED\0", Format("QED")),
    (0, b"KDMV", Format("VMDK")),
    (0, b"vhdxfile", Format("VHDX")),
    (0, b"conectix", Format("VHD")),
    (64, b"\x7f\x10\xda\xbe", Format("VDI")),
    (0, b"\x1f\x8b\x08", Compressed("gzip")),
    (0, b"\xfd7zXZ\0", Compressed("xz")),
    (0, b"\x28\xb5\x2f\xfd", Compressed("zstd")),
    (0, b"BZh", Compressed("bzip2")),
    (257, b"ustar", Tar),
];

/// A remark about the file of this name that begins with these bytes, if its readers will hardly
/// expect them.
pub fn remark(name: &str, head: &[u8]) -> Option<String> {
    let is_there = |(at, bytes, _): &&(usize, &[u8], Wrapping)| head.get(*at..).is_some_and(|at| at.starts_with(bytes));
    let (_, _, wrapping) = KNOWN.iter().find(is_there)?;
    Some(match wrapping {
        Format(format) => format!(
            "{name} is in the format {format}: readers get this file, not the disk in it; \
             `qemu-img convert -O raw FILE NEW` makes an image of that"
        ),
        Compressed(program) => format!(
            "{name} is compressed: readers get this file, not the bytes in it; `{program} -dk FILE` unpacks them"
        ),
        Tar => format!(
            "{name} is a tar archive: readers get this file, not a file system; `vfield pack FILE -o NEW` makes one"
        ),
    })
}

impl Origin {
    /// A remark about a file that is hardly meant to be read as it is. Reads its first bytes, and
    /// may wait for its disk.
    pub fn remark(&self) -> Option<String> {
        let mut head = [0; HEAD_BYTES as usize];
        // A file that cannot be read is told elsewhere.
        let read = self.file.read(0, &mut head).ok()?;
        remark(&self.name, head.get(..read)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_files_and_images_are_served_without_a_remark() {
        for head in [&b""[..], b"Q", b"hsqs", &[0; 64], &[0; HEAD_BYTES as usize]] {
            assert_eq!(remark("a", head), None);
        }
    }
}
