//! Why a node could not start: each names the thing at fault, and what was found out about it.
//!
//! The command line says what to do about each.

use crate::page::Tried;
use crate::proofs::Disbelief;
use std::net::SocketAddr;
use std::path::PathBuf;
use vfield_core::image::ImageId;
use vfield_core::names::BadNames;

/// Why a node could not start. Each names the thing at fault.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file could not be published.
    #[error("{}: {why}", path.display())]
    Publish {
        /// The file.
        path: PathBuf,
        /// Why, in lower case.
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
        /// Its id.
        id: ImageId,
        /// Names and id of the one that is here.
        held: String,
    },
    /// Others would not hear of it.
    #[error("this node has had as many images since its start as others remember of one node")]
    TooManyImages,
    /// The field has another image of this name.
    #[error("the field has another image named {name:?}: {other}; this one has the id {}", id.short())]
    NameOfAnother {
        /// The name.
        name: String,
        /// The id of what is served here.
        id: ImageId,
        /// What the field has.
        other: String,
    },
    /// An image would have more names than can be told.
    #[error(transparent)]
    Names(#[from] BadNames),
    /// The listening address cannot be had.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// Which.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// None of the bootstrap nodes answered as a member of a field.
    #[error("no bootstrap node could be joined: {}", tried.iter().map(|(addr, why)| format!("{addr}: {why}")).collect::<Vec<_>>().join("; "))]
    Bootstrap {
        /// Each with the reason.
        tried: Vec<(SocketAddr, String)>,
    },
    /// The field has no such image.
    #[error("the field has no image {wanted:?}; it has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    UnknownImage {
        /// What was asked for.
        wanted: String,
        /// Names of those it has.
        known: Vec<String>,
    },
    /// The image is not signed by anybody who is trusted here.
    #[error("image {image:?} is refused: {why}")]
    Untrusted {
        /// Its name.
        image: String,
        /// What is wrong.
        why: Disbelief,
    },
    /// The field has several images and none was chosen.
    #[error("the field has several images: {}", known.join(", "))]
    ChooseImage {
        /// Their names and ids.
        known: Vec<String>,
        /// What to ask for to have each of those that others share a name with.
        pins: Vec<String>,
    },
    /// What was asked for may be any of several images, each of which is there.
    #[error("{wanted:?} may be any of {} images: {}", found.len(), found.join(", "))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Names, ids, and who has them.
        found: Vec<String>,
        /// What to ask for to have each of them.
        pins: Vec<String>,
    },
    /// Members do not agree on what an image is called.
    #[error("image {} has several names: {}", id.short(), names.join("; "))]
    ManyNames {
        /// The image.
        id: ImageId,
        /// What it is called, by each.
        names: Vec<String>,
    },
    /// No member has shown that it has the image.
    #[error("image {image} cannot be verified: no member delivers its first page{}", answers(tried))]
    Unproved {
        /// Its names and its id.
        image: String,
        /// Who was asked, and what came of it.
        tried: Tried,
    },
    /// The store would not fit into this machine.
    #[error("a store of {wanted_bytes} bytes is more than this machine's memory of {memory_bytes}")]
    StoreTooLarge {
        /// Asked for.
        wanted_bytes: u64,
        /// There is.
        memory_bytes: u64,
    },
    /// The system refused something that every node needs.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What members answered, behind what is said of them all; of many the first.
fn answers(tried: &Tried) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = tried.iter().take(SHOWN).map(|(addr, why)| format!("{addr}: {why}")).collect();
    let more = if tried.len() > SHOWN { format!("; and {} more", tried.len() - SHOWN) } else { String::new() };
    if shown.is_empty() { String::new() } else { format!(" ({}{more})", shown.join("; ")) }
}
