//! A running node: starts the parts, hands out its images, says how it is, leaves.

use crate::config::NodeConfig;
use crate::event::EventSink;
use crate::status::Status;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::source::BlockSource;

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
    /// Two images would have one name.
    #[error("two images are named {0:?}")]
    NameTaken(String),
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
    /// The field has several images and none was chosen.
    #[error("the field has several images: {}", known.join(", "))]
    ChooseImage {
        /// Their names.
        known: Vec<String>,
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

/// A state that `status --wait` can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// This node's stores hold all they are to hold.
    Filled,
    /// The stores of the field hold every image of this node, origins not counted.
    Covered,
}

/// How a leave went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    /// Chunks that only this node held and that others have taken over.
    pub handed_over: u64,
    /// Chunks that only this node holds and nobody took within the bound.
    pub lost: u64,
}

/// One running node. Dropping it ends it at once; [`Node::leave`] is the polite way.
pub struct Node {}

impl Node {
    /// Publishes, listens, joins; returns once its images can be read (they need not be filled).
    pub async fn start(config: NodeConfig, events: EventSink) -> Result<Self, StartError> {
        let _ = (config, events);
        unreachable!("under construction")
    }

    /// The images it serves or has joined, in the order of the configuration.
    pub fn sources(&self) -> Vec<Arc<dyn BlockSource>> {
        Vec::new()
    }

    /// Where it listens.
    pub fn listening(&self) -> SocketAddr {
        unreachable!("under construction")
    }

    /// Its view at this moment.
    pub fn status(&self) -> Status {
        Status::default()
    }

    /// Returns once `condition` holds.
    pub async fn wait(&self, condition: Condition) {
        let _ = condition;
    }

    /// Hands over what only it holds, tells the field, and stops serving peers; takes at most `bound`.
    pub async fn leave(&self, bound: Duration) -> Leaving {
        let _ = bound;
        Leaving { handed_over: 0, lost: 0 }
    }
}
