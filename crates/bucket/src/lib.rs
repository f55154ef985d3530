//! Images in a bucket: plain objects, and versions that share packs of compressed chunks. And in a
//! registry: see [`artifact`].
//!
//! ```text
//! packs/PACK         compressed chunks, with their hashes: see [`pack`]
//! images/ID          the index of an image: in which pack each chunk lies: see [`index`]
//! images/ID.vfh      its hashes, as they lie beside a plain object
//! tags/NAME          the text of a tag: see [`vfield_core::tag`]
//! writers/NUMBER     somebody who writes now: see [`claim`]
//! sweep, doomed      rubbish is removed now; objects that nobody needs: see [`sweep`]
//! ```
//!
//! Packs and images are named by their content, so an object is written once and never changed.
//! Tags alone move, by conditional writes. Invariant: each object is there before another one that
//! counts on it. A publisher that is cut off at any moment leaves a bucket that can be read.
//! [`Packed`] is such an image as an object to be served; everything that is read is verified by
//! the image's id. The command line calls it. It knows no node.

mod artifact;
mod blocks;
pub mod claim;
pub mod index;
mod list;
pub mod pack;
mod packed;
mod patience;
mod publish;
mod source;
pub mod sweep;
pub mod tags;
mod upload;
mod wanted;

pub use artifact::push;
pub use list::{Contents, ImageListed, TagListed, contents, find};
pub use packed::{Packed, Which};
pub use publish::{Published, publish};
pub use source::Source;
pub use upload::{Uploaded, upload};

use tokio::task::JoinError;
use vfield_block::object::ObjectError;
use vfield_core::chunk::Chunk;
use vfield_core::image::ImageId;
use vfield_core::tag::BadTag;

/// Why something in a bucket cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The store refuses or fails.
    #[error("{name}: {error}")]
    Store {
        /// The name of the object, below the bucket's address.
        name: String,
        /// The words of the store.
        error: ObjectError,
    },
    /// There is no tag of this name.
    #[error("it has no tag {0}")]
    NoTag(String),
    /// There is no index of this image.
    #[error("it has no image {}", .0.short())]
    NoImage(ImageId),
    /// The tag keeps no such version.
    #[error("the tag {0} keeps no such version")]
    NoVersion(String),
    /// No image, or several, begin with these digits.
    #[error("it has {1} images whose id begins with {0:?}")]
    Undecided(String, usize),
    /// The text of a tag is none.
    #[error("tags/{0}: {1}")]
    BadTag(String, BadTag),
    /// Another writer moved the tag first.
    #[error("the tag {0} has moved meanwhile")]
    Moved(String),
    /// An object of this name has other bytes.
    #[error("{0} exists, and has other bytes")]
    Exists(String),
    /// A pack went while a version was written that counts on it.
    #[error("{0} has gone meanwhile")]
    Gone(String),
    /// The image's file is another than the hashed one.
    #[error("the file changed while it was read, at chunk {0}")]
    Changed(Chunk),
    /// The image's file cannot be read.
    #[error("the file: {0}")]
    File(std::io::Error),
    /// The image is larger than an index can tell.
    #[error("the image has more than 4 294 967 296 chunks")]
    TooLarge,
    /// Rubbish is being removed.
    #[error("rubbish is being removed from it")]
    Sweeping,
    /// The store ignores the conditions of writes.
    #[error("the store ignores conditions of writes (If-Match), so nothing is safely removed")]
    NotCompared,
    /// The claim of this writer counts no more.
    #[error("a day has passed in between")]
    Late,
    /// Claims of other writers count.
    #[error("{0} others publish into it, or were cut off less than a day ago")]
    Writers(usize),
}

impl BucketError {
    fn store(name: impl Into<String>) -> impl FnOnce(ObjectError) -> Self {
        let name = name.into();
        move |error| Self::Store { name, error }
    }
}

/// What a task gave back; its panic goes on here. No task is aborted before that.
fn ended<T>(outcome: Result<T, JoinError>) -> T {
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
