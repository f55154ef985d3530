//! A private copy-on-write overlay: changes over a [`BlockSource`] that never changes itself.
//!
//! A crate of its own because it knows neither who writes (NBD, FUSE...) nor where the base comes from (a node,
//! a file, a test's vector of bytes): it stands between two traits of the core, [`BlockSource`] below it and
//! [`BlockDevice`] above, and exports can be tested with it as it can be without them.
//!
//! Changes are kept in granules of 4 KiB ([`granule`]), each at its own place in a sparse file ([`medium`]): a
//! memory file, or a file in a [`Folder`] whose [`journal`] says which granules of it count after a power loss, and
//! whose [`live`] file says it after a kill. The [`map`] says of each granule whether it is the base's, held, or
//! zeros; readers of what is the base's take no lock. A [`saved`] overlay is one file with everything in it, of one
//! moment.
//!
//! What an answer means: in memory nothing, as changes end with the process however it ends; in a folder, that the
//! change is found there after a kill. What a flush means: that it is found there after a power loss, too, and, in
//! memory as well, that nothing of what was to be changed was refused.
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
