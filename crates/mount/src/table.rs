//! The kernel's table of mounts, read for the mount on top of a directory.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The mount on top of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Top {
    /// The file or device that is mounted; of a loop device, its file.
    pub source: PathBuf,
}

/// The mount on top of `dir`, an absolute path without links; `None` if nothing is mounted there.
pub fn top(dir: &Path) -> Option<Top> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let source = find(&table, dir)?;
    let file = source.file_name().map(|name| Path::new("/sys/block").join(name).join("loop/backing_file"));
    let backing = file.and_then(|file| fs::read_to_string(file).ok());
    Some(Top { source: backing.map_or(source, |path| PathBuf::from(path.trim_end())) })
}

/// The source of the last line of a directory.
fn find(table: &[u8], dir: &Path) -> Option<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let mut at_dir = lines.filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let place = fields.nth(4)?;
        // Behind a dash: the file system, then its source.
        let source = fields.skip_while(|field| field != b"-").nth(2)?;
        (unescaped(place) == dir.as_os_str().as_bytes()).then(|| unescaped(source))
    });
    at_dir.next_back().map(|source| PathBuf::from(std::ffi::OsStr::from_bytes(&source)))
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), field);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_directory_is_its_top() {
        let table = b"24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 24 0:5 / /mnt/my\\040data ro - erofs /field/v1 ro\n\
            31 24 0:6 / /mnt/my\\040data ro master:1 shared:2 - erofs /field/v2 ro\n\
            short\n";
        assert_eq!(find(table, Path::new("/mnt/my data")), Some("/field/v2".into()));
        assert_eq!(find(table, Path::new("/")), Some("/dev/sda1".into()));
        assert_eq!(find(table, Path::new("/mnt")), None);
        assert_eq!(unescaped(b"a\\134b\\0"), b"a\\b\\0");
    }
}
