//! The part of the command line about images that nobody needs: `vfield gc` and `vfield pin`.

use super::ControlOptions;
use clap::Args;

pub(super) const GC_EXAMPLES: &str = "\
Examples:
  vfield gc --dry-run           who needs each image, what would go, and what would stay
  vfield gc                     now, and not ten minutes after the last need

Only images that are here for a tag can be rubbish. The last copy of an image that another node
needs stays, and nothing goes while this node sees at most half of its field.";

pub(super) const PIN_EXAMPLES: &str = "\
Examples:
  vfield pin prod-a00addb859dc              keep this version, though the tag has moved on
  vfield pin prod-a00addb859dc --release    not any more

A pin holds until a restart. The chunks of a pinned image stay in the field.";

/// Options of `vfield gc`.
#[derive(Debug, Args)]
pub struct GcOptions {
    /// Only print who needs each image, and what would go
    #[arg(long)]
    pub dry_run: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield pin`.
#[derive(Debug, Args)]
pub struct PinOptions {
    /// The image, by name, id, or the beginning of its id
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Release the pin
    #[arg(long)]
    pub release: bool,
    /// The daemon to control.
    #[command(flatten)]
    pub control: ControlOptions,
}
