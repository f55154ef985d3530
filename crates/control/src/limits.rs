//! The limits of a daemon's traffic, as `status` and `vfield limit` show them.

use serde::{Deserialize, Serialize};

/// The limits of both directions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitsStatus {
    /// To other nodes.
    pub up: LimitStatus,
    /// From other nodes.
    pub down: LimitStatus,
    /// Those of single images, which count beside them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageLimits>,
}

/// The limits of one image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageLimits {
    /// A name of the image, as the setting has it.
    pub image: String,
    /// False while no image of this node has that name: the limits then wait for it.
    pub is_here: bool,
    /// To other nodes.
    pub up: LimitStatus,
    /// From other nodes.
    pub down: LimitStatus,
}

/// The limit of one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// The limit with its times of the day, as `--limit-up` takes it; `none` without one.
    pub setting: String,
    /// The limit at this moment; nothing without one.
    pub bytes_per_s: Option<u64>,
    /// For how long bytes waited for it, summed over connections.
    pub held_s: f64,
}

impl LimitsStatus {
    /// True if there is a limit of the whole node at some time of the day.
    pub fn is_any(&self) -> bool {
        [&self.up, &self.down].into_iter().any(|limit| !matches!(limit.setting.as_str(), "" | "none"))
    }

    /// The limits of an image with these names.
    pub fn of_image(&self, names: &[String]) -> Option<&ImageLimits> {
        names.iter().find_map(|name| self.images.iter().find(|limits| limits.image == *name))
    }
}
