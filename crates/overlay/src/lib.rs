//! A private copy-on-write overlay: changes over a [`BlockSource`] that never changes itself.
//!
//! It is a crate of its own because it knows neither the writers (NBD, FUSE...) nor the source of
//! the base (a node, a file, a test's vector of bytes). It is between two traits of the core:
//! [`BlockSource`] below it and [`BlockDevice`] above. So exports can be tested with it and
//! without.
//!
//! Changes are kept in granules of 4 KiB ([`granule`]), each at its own place in a sparse file
//! ([`medium`]). That is a memory file, or a file in a [`Folder`]. The folder's [`journal`] says
//! which granules count after a power loss, and its [`live`] file which ones count after a kill.
//! The [`map`] has the state of each granule: the base's, held, or zeros. Readers of the base's
//! granules take no lock. A [`saved`] overlay is one file with all changes of one moment.
//!
//! Promises of an answer:
//!
//! - In memory: none, as changes end with the process however it ends.
//! - In a folder: the change survives a kill.
//!
//! Promises of a flush: in a folder, the changes survive a power loss too. In both, no part of them
//! was refused.
//!
//! [`BlockSource`]: vfield_block::source::BlockSource
//! [`BlockDevice`]: vfield_block::device::BlockDevice

mod committer;
mod entry;
mod error;
mod folder;
pub mod granule;
mod inner;
pub mod journal;
mod live;
mod map;
mod medium;
mod overlay;
mod read;
mod refused;
mod replacement;
mod restore;
mod room;
mod save;
pub mod saved;
mod write;

pub use error::{OpenError, ReplaceError, RestoreError, SaveError};
pub use folder::Folder;
pub use overlay::{Overlay, Usage};
pub use replacement::Replacement;
pub use restore::check;
