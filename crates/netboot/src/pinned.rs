//! An image of the daemon, as it was when the network boot was started.
//!
//! Any node may use a name, but an id stands for every byte. So machines get ids; a later image of
//! the same name is served after a restart of the network boot.

use vfield_console::failure::Failure;
use vfield_control::message::DaemonStatus;
use vfield_control::selection;
use vfield_node::status::ImageStatus;

/// An image name with the id that it had at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// Its name, for people.
    pub name: String,
    /// Its id, 64 digits.
    pub id: String,
}

impl Pinned {
    /// An image of the daemon.
    pub fn of(image: &ImageStatus) -> Self {
        Self { name: image.name.clone(), id: image.id.clone() }
    }

    /// The image of the daemon that somebody means by a name, an id, or the beginning of an id.
    pub fn find(wanted: &str, status: &DaemonStatus) -> Option<Self> {
        selection::choose(wanted, &status.node.images).ok().map(Self::of)
    }

    /// Refuses if the daemon does not have it any more.
    pub fn check(&self, status: &DaemonStatus) -> Result<(), Failure> {
        if status.node.images.iter().any(|image| image.id == self.id) {
            return Ok(());
        }
        let fact = format!("the daemon does not have image {} with the id {} any more", self.name, self.id);
        Err(Failure::failed(fact).hint("start `vfield netboot` again to hand out what it has now"))
    }
}
