//! An image of the daemon, as it was when the network boot was started.
//!
//! Any node may use a name, but an id stands for every byte. So machines get ids; a later image of
//! the same name is served after a restart of the network boot.

use vfield_console::failure::Failure;
use vfield_control::message::DaemonStatus;
use vfield_control::selection;
use vfield_core::image::IdDigits;
use vfield_node::status::ImageStatus;

/// Characters of the name of an image that machines boot, besides ASCII letters and digits. A
/// kernel's command line, iPXE or the initramfs' shell would take a name with others apart.
const PLAIN: &str = "-_.+~:";

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

    /// The image of the daemon that `wanted` means: a name, an id, or the beginning of an id. With
    /// `NAME=ID` the image with the id gets this name.
    pub fn find(wanted: &str, status: &DaemonStatus) -> Option<Self> {
        let images = &status.node.images;
        if let Ok(image) = selection::choose(wanted, images) {
            let name = if image.has_name(wanted) { wanted } else { &image.name };
            return Some(Self { name: name.to_owned(), id: image.id.clone() });
        }
        let (name, digits) = wanted.rsplit_once('=').filter(|(_, digits)| IdDigits::new(digits).is_some())?;
        let image = selection::choose(digits, images).ok()?;
        Some(Self { name: name.to_owned(), id: image.id.clone() })
    }

    /// Refuses a name that cannot stand on a kernel's command line.
    pub fn bootable(self) -> Result<Self, Failure> {
        let fine = |letter: char| letter.is_ascii_alphanumeric() || PLAIN.contains(letter);
        if !self.name.is_empty() && !self.name.starts_with('-') && self.name.chars().all(fine) {
            return Ok(self);
        }
        let fact =
            format!("no machine can boot image {:?}: its name does not fit on a kernel's command line", self.name);
        let id = self.id.get(..12).unwrap_or(&self.id);
        let hint = format!("give it a name of letters, digits and {PLAIN}, as in boot={id}, or serve it under one");
        Err(Failure::usage(fact).hint(hint))
    }

    /// The image for machines, which pins the name to the id: no node has a say in either.
    pub fn word(&self) -> String {
        format!("{}={}", self.name, self.id)
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
