//! A file system in an exported image, mounted through a loop device, and files that are written to
//! it until there is no room.
//!
//! Used by the tests of overlays. A file is acknowledged once its `fsync` has succeeded; such a
//! file must never be lost.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_lab::process::run;
use vfield_lab::{Host, LabError, wait_until};

/// A command on a file system of a test takes a second or two.
const LIMIT: Duration = Duration::from_secs(60);
/// Length of each file of [`Tree::fill`]; its last block is a partial one.
const FILE_BYTES: usize = 3_999_999;
/// Arguments: the directory. Prints how many files were acknowledged; file `n` consists of the byte
/// `n + 1`.
const FILL: &str = "import os, sys
done = 0
try:
    while done < 10:
        with open(f'{sys.argv[1]}/{done}', 'wb') as file:
            file.write(bytes([done + 1]) * 3_999_999)
            file.flush()
            os.fsync(file.fileno())
        done += 1
except OSError:
    pass
print(done)";

/// Makes an empty file system in a new file of this length, in the words of `truncate`.
///
/// # Errors
/// If a tool refuses.
pub fn format(file: &Path, length: &str) -> Result<(), LabError> {
    run(Command::new("truncate").args(["-s", length]).arg(file))?;
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(file)).map(drop)
}

/// A file system to which nothing can be written: whoever tries waits. Thawed at the end.
#[derive(Debug)]
pub struct Frozen<'a>(&'a Tree);

/// A file system in a file of a mount, mounted; unmounted at the end.
#[derive(Debug)]
pub struct Tree {
    dir: PathBuf,
    file: PathBuf,
}

impl Tree {
    /// Mounts the file system in `file`.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn of(host: &Host, file: &Path) -> Result<Self, LabError> {
        let dir = host.dir().join("tree");
        run(Command::new("mkdir").arg("-p").arg(&dir))?;
        run(host.client(LIMIT, "mount").args(["-o", "loop"]).arg(file).arg(&dir))?;
        Ok(Self { dir, file: file.to_owned() })
    }

    /// Its root directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Freezes the file system.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn freeze(&self) -> Result<Frozen<'_>, LabError> {
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.dir))?;
        Ok(Frozen(self))
    }

    /// Writes everything back and lets go of it, the loop device included.
    ///
    /// # Errors
    /// If it stays in use.
    pub fn unmount(self) -> Result<(), LabError> {
        // A program that another thread starts has this process's files until it runs.
        wait_until("nobody uses the tree", LIMIT, || run(Command::new("umount").arg(&self.dir)).is_ok())?;
        let attached = || run(Command::new("losetup").arg("--associated").arg(&self.file));
        wait_until("the loop device lets go of the file", LIMIT, || {
            attached().is_ok_and(|devices| devices.is_empty())
        })?;
        Ok(())
    }

    /// Writes up to ten files of 4 MB until one is refused; returns how many were acknowledged.
    ///
    /// # Errors
    /// If the writer hangs.
    pub fn fill(&self, host: &Host) -> Result<usize, LabError> {
        let said = run(host.client(LIMIT, "python3").args(["-c", FILL]).arg(&self.dir))?;
        Ok(said.trim().parse().unwrap_or_else(|_| panic!("{said}")))
    }

    /// Checks the first `done` files of [`Tree::fill`].
    ///
    /// # Panics
    /// If one is lost.
    pub fn has_filled(&self, done: usize) {
        for number in 0..done {
            let found = std::fs::read(self.dir.join(number.to_string())).unwrap_or_default();
            let sound = found.len() == FILE_BYTES && found.iter().all(|byte| usize::from(*byte) == number + 1);
            assert!(sound, "file {number} of {done} was acknowledged and is lost");
        }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Else nobody could unmount it.
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0.dir).output();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Unmounted already, unless a test failed.
        let _ = Command::new("umount").arg("-l").arg(&self.dir).output();
    }
}
