//! Small memory files: what a daemon leaves to the one after it.
//!
//! Whoever reads one does not believe it: its length is bounded, and its content is parsed.

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::io;
use std::os::fd::OwnedFd;

/// A new file with these bytes; `name` is shown in lists of open files.
pub fn write(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
    let mut done = 0;
    while done < bytes.len() {
        done += retry_on_intr(|| pwrite(&file, &bytes[done..], done as u64))?;
    }
    Ok(file)
}

/// All bytes of a file; `None` if it has more than `most`, or cannot be read.
pub fn read(file: &OwnedFd, most: u64) -> Option<Vec<u8>> {
    let length = fstat(file).ok()?.st_size.cast_unsigned();
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= most)?];
    let mut done = 0;
    while done < bytes.len() {
        match retry_on_intr(|| pread(file, &mut bytes[done..], done as u64)).ok()? {
            0 => return None,
            count => done += count,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_up_to_a_bound() {
        let file = write("vfield-test", b"what is left").unwrap();
        assert_eq!(read(&file, 12).as_deref(), Some(&b"what is left"[..]));
        assert_eq!(read(&file, 11), None);
        assert_eq!(read(&write("vfield-test", b"").unwrap(), 0), Some(Vec::new()));
    }
}
