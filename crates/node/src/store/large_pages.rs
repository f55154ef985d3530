//! Memory files in pages of 2 MiB.
//!
//! Such a page takes one look-up where small ones take 512, so bytes are copied out of it in a
//! third of the time. A part of it cannot be given back while a socket holds the page: the kernel
//! would zero it in place, and so change bytes under way. So a file of such pages is for a store
//! that evicts nothing, and never punched. Only the sparse file uses this.
//!
//! Invariant: a mapping lasts for one call, and its bytes are not touched through it.

#![expect(unsafe_code, reason = "only a mapping can ask for large pages, and only the caller knows what it maps")]

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 2 << 20;
const SMALL_PAGE_BYTES: usize = 4 << 10;
/// Where the kernel says which memory it gives in large pages.
const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";

/// The large pages of a file.
#[derive(Debug)]
pub struct LargePages {
    /// A bit for each page that was asked for.
    asked: Box<[AtomicU64]>,
}

impl LargePages {
    /// Of a file of this length. None of them has been asked for.
    pub fn new(length_bytes: u64) -> Self {
        let words = length_bytes.div_ceil(PAGE_BYTES as u64).div_ceil(64);
        Self { asked: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Has the kernel give the pages of a range of the file, in which the file has its length.
    pub fn take(&self, file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
        let page_bytes = PAGE_BYTES as u64;
        for page in range.start / page_bytes..range.end.div_ceil(page_bytes) {
            let (word, bit) = (&self.asked[(page / 64) as usize], 1 << (page % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                // Two tasks may ask at once, which does no harm.
                populate(file, page * page_bytes)?;
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Addresses that nothing else uses.
struct Reserved {
    start: *mut c_void,
    length: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `populate`, which alone knows it.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// Touches the page at `offset` of the file. If the kernel has no large one, it gives a small one.
fn populate(file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    // Twice as much has an aligned page in it.
    let length = 2 * PAGE_BYTES;
    // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
    let start = unsafe {
        mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
    };
    let reserved = Reserved { start, length };
    let aligned = reserved.start.wrapping_byte_add(reserved.start.align_offset(PAGE_BYTES));
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the page lies in the range that was just reserved, which holds nothing else.
    unsafe { mmap(aligned, PAGE_BYTES, protection, MapFlags::SHARED | MapFlags::FIXED, file, offset)? };
    // SAFETY: as above. The kernel adds zeros to holes of the file, and changes no byte.
    let populated = unsafe {
        madvise(aligned, PAGE_BYTES, Advice::LinuxHugepage)
            .and_then(|()| madvise(aligned, SMALL_PAGE_BYTES, Advice::LinuxPopulateWrite))
    };
    match populated {
        // Kernels before 5.14 do not know the advice: bytes are written into small pages.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// True if the kernel gives large pages to a memory file that asks for them.
pub fn are_given() -> bool {
    are_given_by(Path::new(SETTINGS))
}

fn are_given_by(settings: &Path) -> bool {
    // The chosen word of several stands in brackets.
    let word = |path: &str| {
        let words = fs::read_to_string(settings.join(path)).unwrap_or_default();
        words.split(['[', ']']).nth(1).map(str::to_owned)
    };
    let gives = |word: &str| matches!(word, "always" | "within_size" | "advise" | "force");
    let all = word("shmem_enabled").is_some_and(|word| gives(&word));
    // Later kernels can say it of each size apart.
    match word("hugepages-2048kB/shmem_enabled").as_deref() {
        None | Some("inherit") => all,
        Some(word) => gives(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_settings_are_understood() {
        let cases = [
            ("always within_size [advise] never deny force", None, true),
            ("always within_size advise [never] deny force", None, false),
            ("always within_size advise [never] deny force", Some("always inherit within_size [advise] never"), true),
            ("always within_size [advise] never deny force", Some("always [inherit] within_size advise never"), true),
            ("always within_size [advise] never deny force", Some("always inherit within_size advise [never]"), false),
            ("always within_size advise never [deny] force", None, false),
            ("", None, false),
        ];
        for (all, size, given) in cases {
            let dir = tempfile::tempdir().expect("a directory");
            fs::write(dir.path().join("shmem_enabled"), all).expect("written");
            if let Some(size) = size {
                fs::create_dir(dir.path().join("hugepages-2048kB")).expect("made");
                fs::write(dir.path().join("hugepages-2048kB/shmem_enabled"), size).expect("written");
            }
            assert_eq!(are_given_by(dir.path()), given, "{all} {size:?}");
        }
        assert!(!are_given_by(Path::new("/none")));
    }
}
