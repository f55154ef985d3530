//! The reasons why a node could not start. Each names the thing at fault, and the findings about
//! it.
//!
//! The command line adds what to do.

use crate::disk::DiskError;
use crate::header::Tried;
use crate::proofs::Disbelief;
use std::net::SocketAddr;
use std::path::PathBuf;
use vfield_core::image::ImageId;
use vfield_core::names::BadNames;

/// Why a node could not start. Each names the thing at fault.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file could not be published.
    #[error("{why}")]
    Publish {
        /// The reason, which names the file.
        why: String,
    },
    /// An object could not be published.
    #[error("{why}")]
    PublishObject {
        /// The reason, which names the object's address.
        why: String,
    },
    /// Two files have one name.
    #[error("two images are named {0:?}")]
    NameTaken(String),
    /// The image is here already.
    #[error("this node has {image} already")]
    IsHere {
        /// Its names and its id.
        image: String,
    },
    /// Another image has this name here.
    #[error("this node has another image of that name: {held}; {names} has the id {}", id.short())]
    NameIsHere {
        /// The names of the new one.
        names: String,
        /// The image's id.
        id: ImageId,
        /// Names and id of the image here.
        held: String,
    },
    /// Others would not hear of it.
    #[error("this node has had the most images since its start that other nodes remember of one")]
    TooManyImages,
    /// The field has another image of this name.
    #[error("the field has another image named {name:?}: {other}; this one has the id {}", id.short())]
    NameOfAnother {
        /// The name of both.
        name: String,
        /// The id of the image served here.
        id: ImageId,
        /// The image that the field has.
        other: String,
    },
    /// An image would have more names than an announcement can carry.
    #[error(transparent)]
    Names(#[from] BadNames),
    /// The listening address cannot be had.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The failing address.
        addr: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// No bootstrap node answered as a member of a field.
    #[error("no bootstrap node could be joined: {}", tried.iter().map(|(addr, why)| format!("{addr}: {why}")).collect::<Vec<_>>().join("; "))]
    Bootstrap {
        /// Each with the reason.
        tried: Vec<(SocketAddr, String)>,
    },
    /// Another process uses this node's identity.
    #[error("another process uses this identity at {addr}")]
    Twin {
        /// The address of that process.
        addr: SocketAddr,
    },
    /// The admission list does not admit this node itself.
    #[error("{why}")]
    NotAdmitted {
        /// The fact, in words.
        why: String,
    },
    /// The field has no such image.
    #[error("the field has no image {wanted:?}; it has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    UnknownImage {
        /// The requested image.
        wanted: String,
        /// Names of the known images.
        known: Vec<String>,
    },
    /// A tag cannot be followed.
    #[error("tag {tag}: {why}")]
    NotTagged {
        /// The tag's name.
        tag: String,
        /// The reason in words.
        why: String,
    },
    /// No trusted signer has signed the image.
    #[error("image {image:?} is refused: {why}")]
    Untrusted {
        /// Name of the image.
        image: String,
        /// The reason to reject it.
        why: Disbelief,
    },
    /// The field has several images and none was chosen.
    #[error("the field has several images: {}", known.join(", "))]
    ChooseImage {
        /// Their names and ids.
        known: Vec<String>,
        /// The selectors of images that share a name with another one.
        pins: Vec<String>,
    },
    /// The selector fits several images, each of which is there.
    #[error("{wanted:?} may be any of {} images: {}", found.len(), found.join(", "))]
    Ambiguous {
        /// The requested image.
        wanted: String,
        /// Names, ids and holders.
        found: Vec<String>,
        /// The selector of each.
        pins: Vec<String>,
    },
    /// Members disagree on the names of an image.
    #[error("image {} has several names: {}", id.short(), names.join("; "))]
    ManyNames {
        /// The image's id.
        id: ImageId,
        /// Its names, by teller.
        names: Vec<String>,
    },
    /// No member has shown that it has the image.
    #[error("image {image} cannot be verified: no member proves its header{}", answers(tried))]
    Unproved {
        /// Its names and its id.
        image: String,
        /// The members asked, and their answers.
        tried: Tried,
    },
    /// The store would not fit into the memory that this process may have.
    #[error("a store of {wanted_bytes} bytes is more than this daemon's memory of {memory_bytes}")]
    StoreTooLarge {
        /// The wanted bytes.
        wanted_bytes: u64,
        /// That memory in bytes.
        memory_bytes: u64,
    },
    /// The directory for stores cannot have them.
    #[error("stores in {}: {why}", dir.display())]
    Disk {
        /// The directory, as configured.
        dir: PathBuf,
        /// The fault of the directory, or of its file system.
        why: DiskError,
    },
    /// The system refused something that every node needs.
    #[error("{what}: {source}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The answers of members in one text; of many, the first.
fn answers(tried: &Tried) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = tried.iter().take(SHOWN).map(|(addr, why)| format!("{addr}: {why}")).collect();
    let more = if tried.len() > SHOWN { format!("; and {} more", tried.len() - SHOWN) } else { String::new() };
    if shown.is_empty() { String::new() } else { format!(" ({}{more})", shown.join("; ")) }
}
