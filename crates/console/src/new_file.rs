//! A file that a command makes: under its name when it is complete, and not before.
//!
//! Until then it has no name where the file system can do that, so a killed program leaves nothing
//! behind. Elsewhere it has a hidden name beside its own.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Permissions of a new file, less the process's mask.
const MODE: Mode = Mode::from_raw_mode(0o644);

/// A file that is being written.
#[derive(Debug)]
pub struct NewFile {
    /// Where the bytes go.
    pub file: fs::File,
    path: PathBuf,
    /// The name until then, if it has one.
    temporary: Option<PathBuf>,
}

impl NewFile {
    /// A new file that will have the name `path`, and takes the place of a regular file there.
    ///
    /// # Errors
    /// If there can be none.
    pub fn create(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                return Err(io::Error::other("not a regular file, which a new one could replace"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = openat(CWD, directory_of(path), flags | OFlags::TMPFILE, MODE) {
            return Ok(Self { file: file.into(), path: path.to_owned(), temporary: None });
        }
        let temporary = beside(path)?;
        let file = openat(CWD, &temporary, flags | OFlags::CREATE | OFlags::EXCL, MODE)?;
        Ok(Self { file: file.into(), path: path.to_owned(), temporary: Some(temporary) })
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// If the bytes or the name cannot be written; nothing is left behind then.
    pub fn finish(mut self) -> io::Result<()> {
        // A name must not outlive a power failure that the bytes do not.
        self.file.sync_data()?;
        if self.temporary.is_none() {
            let temporary = beside(&self.path)?;
            let through_proc = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(CWD, through_proc, CWD, &temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.temporary = Some(temporary);
        }
        let temporary = self.temporary.as_ref().expect("it has a name by now");
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // There is no better place to say that it is still there.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The directory of a path.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A hidden name beside a path, which two programs do not choose at once.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("no name of a file"))?;
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Ok(directory_of(path).join(format!(".{:016x}.{}.new", hasher.finish(), std::process::id())))
}
