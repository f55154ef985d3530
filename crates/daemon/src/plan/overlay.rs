//! Where changes to the images are kept, and how many.

use crate::values::overlay::OverlayPlace;
use std::path::{Path, PathBuf};

/// The overlay that each image gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayPlan {
    /// Where changes are kept.
    pub place: OverlayPlace,
    /// How much of each image may be kept; nothing said: as much as it is long.
    pub max_bytes: Option<u64>,
    /// Saved overlays to begin with, each for the image that it names.
    pub from: Vec<PathBuf>,
    /// A running system stands on it: changes that are there already, from before this daemon was
    /// started again, are the newer ones, and nobody drops them.
    pub carries_root: bool,
}

impl OverlayPlan {
    /// The directory in which changes are kept, if it is one.
    pub fn dir(&self) -> Option<&Path> {
        match &self.place {
            OverlayPlace::Dir(dir) => Some(dir),
            OverlayPlace::Ram => None,
        }
    }
}
