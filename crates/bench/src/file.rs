//! A file that is read, or written, as programs do it: through the page cache, which is emptied of
//! it before.
//!
//! Direct reads would go around the cache, but one that nobody answers cannot be interrupted.

use super::export::read_only;
use super::load::{Answer, Channel, Doing, noise};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use vfield_console::failure::{Failure, plain};

/// One reader or writer of a file; one request at a time.
pub struct FileUser {
    path: PathBuf,
    file: File,
    doing: Doing,
    block_bytes: u64,
    end_bytes: u64,
    asked: Option<(u64, u64)>,
    buffer: Vec<u8>,
}

impl FileUser {
    /// Opens a file to be read or written in blocks, up to `end_bytes`, and has the kernel forget
    /// what it knows of it.
    pub fn open(path: &Path, doing: Doing, block_bytes: u64, end_bytes: u64) -> Result<Self, Failure> {
        let open = || {
            let file = File::options().read(true).write(doing == Doing::Writing).open(path)?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
            Ok::<_, io::Error>(file)
        };
        let file = open().map_err(|error| match error.kind() {
            ErrorKind::ReadOnlyFilesystem => read_only(&path.display()),
            _ => failed(path, &error),
        })?;
        let buffer = if doing == Doing::Writing { noise(block_bytes) } else { vec![0; block_bytes as usize] };
        Ok(Self { path: path.to_owned(), file, doing, block_bytes, end_bytes, asked: None, buffer })
    }
}

impl Channel for FileUser {
    fn ask(&mut self, request: u64, block: u64) -> Result<(), Failure> {
        self.asked = Some((request, block * self.block_bytes));
        Ok(())
    }

    fn answer(&mut self, _: &dyn Fn() -> bool) -> Result<Answer, Failure> {
        let Some((request, offset)) = self.asked.take() else { return Ok(Answer::Over) };
        let length = self.block_bytes.min(self.end_bytes.saturating_sub(offset));
        let buffer = &mut self.buffer[..length as usize];
        let done = match self.doing {
            Doing::Reading => self.file.read_exact_at(buffer, offset),
            Doing::Writing => self.file.write_all_at(buffer, offset),
        };
        done.map_err(|error| failed(&self.path, &error))?;
        Ok(Answer::Bytes { request, bytes: length })
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::failed(format!("{}: {}", path.display(), plain(error)));
    failure.hint("a mount is readable for its own user only; `vfield status` lists missing chunks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_may_be_shorter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [7; 1000]).unwrap();
        let mut reader = FileUser::open(&path, Doing::Reading, 600, 1000).unwrap();
        for (request, bytes) in [(0, 600), (1, 400)] {
            reader.ask(request, request).unwrap();
            assert_eq!(reader.answer(&|| false), Ok(Answer::Bytes { request, bytes }));
        }
        assert_eq!(reader.answer(&|| false), Ok(Answer::Over));
        assert!(FileUser::open(&dir.path().join("none"), Doing::Reading, 600, 1).is_err());
        let mut short = FileUser::open(&path, Doing::Reading, 600, 5000).unwrap();
        short.ask(0, 1).unwrap();
        assert!(short.answer(&|| false).is_err(), "a file that is shorter than it should be");
    }

    #[test]
    fn what_is_written_is_no_zeros_and_keeps_the_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [0; 1000]).unwrap();
        let mut writer = FileUser::open(&path, Doing::Writing, 600, 1000).unwrap();
        for (request, bytes) in [(0, 600), (1, 400)] {
            writer.ask(request, request).unwrap();
            assert_eq!(writer.answer(&|| false), Ok(Answer::Bytes { request, bytes }));
        }
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len(), 1000);
        assert!(found.chunks(8).all(|part| part.iter().any(|byte| *byte != 0)));
    }
}
