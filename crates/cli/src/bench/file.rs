//! A file that is read as programs read it: through the page cache, which is emptied of it before.
//!
//! Direct reads would go around the cache, but one that nobody answers cannot be interrupted.

use super::load::{Answer, Channel};
use crate::failure::{Failure, plain};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One reader of a file; one request at a time.
pub struct FileReader {
    path: PathBuf,
    file: File,
    block_bytes: u64,
    end_bytes: u64,
    asked: Option<(u64, u64)>,
    buffer: Vec<u8>,
}

impl FileReader {
    /// Opens a file for reading in blocks, up to `end_bytes`, and has the kernel forget what it knows of it.
    pub fn open(path: &Path, block_bytes: u64, end_bytes: u64) -> Result<Self, Failure> {
        let open = || {
            let file = File::open(path)?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
            Ok::<_, io::Error>(file)
        };
        let file = open().map_err(|error| failed(path, &error))?;
        let (path, buffer) = (path.to_owned(), vec![0; block_bytes as usize]);
        Ok(Self { path, file, block_bytes, end_bytes, asked: None, buffer })
    }
}

impl Channel for FileReader {
    fn ask(&mut self, request: u64, block: u64) -> Result<(), Failure> {
        self.asked = Some((request, block * self.block_bytes));
        Ok(())
    }

    fn answer(&mut self, _: &dyn Fn() -> bool) -> Result<Answer, Failure> {
        let Some((request, offset)) = self.asked.take() else { return Ok(Answer::Over) };
        let length = self.block_bytes.min(self.end_bytes.saturating_sub(offset));
        let read = self.file.read_exact_at(&mut self.buffer[..length as usize], offset);
        read.map_err(|error| failed(&self.path, &error))?;
        Ok(Answer::Bytes { request, bytes: length })
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::failed(format!("{}: {}", path.display(), plain(error)));
    failure.hint("only the user who mounted it may read it; `vfield status` says what is missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_may_be_shorter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [7; 1000]).unwrap();
        let mut reader = FileReader::open(&path, 600, 1000).unwrap();
        for (request, bytes) in [(0, 600), (1, 400)] {
            reader.ask(request, request).unwrap();
            assert_eq!(reader.answer(&|| false), Ok(Answer::Bytes { request, bytes }));
        }
        assert_eq!(reader.answer(&|| false), Ok(Answer::Over));
        assert!(FileReader::open(&dir.path().join("none"), 600, 1).is_err());
        let mut short = FileReader::open(&path, 600, 5000).unwrap();
        short.ask(0, 1).unwrap();
        assert!(short.answer(&|| false).is_err(), "a file that is shorter than it should be");
    }
}
