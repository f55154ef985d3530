//! The state of a daemon that hands over, beside its files.
//!
//! Invariant: a found state is hostile until parsed. Its version comes first, so a daemon of any
//! version can tell whether it understands the rest. A successor says so before the daemon hands
//! over.

use crate::memory_file;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;

/// Raised when the state, or what a file of it means, changes its meaning.
pub const VERSION: u32 = 1;
/// A longer state is none: a connection takes a few megabytes at most, and most take a few bytes.
const BYTES_MAX: u64 = 1 << 30;

/// The state of a daemon that hands over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The program's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// When it stopped to answer: milliseconds since 1970.
    pub paused_ms: u64,
    /// Some live members of the field.
    pub members: Vec<String>,
    /// For each NBD server, in the order of the command line, where each of its connections is.
    pub clients: Vec<Vec<Vec<u8>>>,
}

impl State {
    /// A memory file with it.
    pub fn write(&self) -> io::Result<OwnedFd> {
        let body = postcard::to_stdvec(self).map_err(io::Error::other)?;
        let bytes = [&VERSION.to_le_bytes()[..], &body].concat();
        memory_file::write("vfield-state", &bytes)
    }

    /// The inverse of [`State::write`]; `None` for anything else.
    pub fn read(file: &OwnedFd) -> Option<Self> {
        let bytes = memory_file::read(file, BYTES_MAX)?;
        let (version, body) = bytes.split_first_chunk()?;
        (u32::from_le_bytes(*version) == VERSION).then(|| postcard::from_bytes(body).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::pwrite;

    #[test]
    fn it_comes_back_and_another_version_is_none() {
        let state = State {
            version: "0.1.0".into(),
            pid: 7,
            paused_ms: 1 << 40,
            members: vec!["198.18.0.1:4440".into()],
            clients: vec![Vec::new(), vec![vec![1, 2], Vec::new()]],
        };
        let file = state.write().unwrap();
        assert_eq!(State::read(&file), Some(state.clone()));
        pwrite(&file, &[VERSION as u8 + 1], 0).unwrap();
        assert_eq!(State::read(&file), None);
        let file = state.write().unwrap();
        rustix::fs::ftruncate(&file, 20).unwrap();
        assert_eq!(State::read(&file), None);
        assert_eq!(State::read(&tempfile::tempfile().unwrap().into()), None);
    }
}
