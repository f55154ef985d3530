//! Options of `vfield bucket`: versions of images in a bucket.

use clap::{Args, Subcommand, ValueHint};

pub(super) const EXAMPLES: &str = "\
Examples:
  vfield publish v1.erofs s3://images/room#prod         packs, and a tag that names the image
  vfield serve s3://images/room#prod --listen 192.168.1.1
  vfield publish v2.erofs s3://images/room#prod         only chunks that no pack has
  vfield bucket ls s3://images/room                     tags, images, sizes
  vfield bucket rollback s3://images/room#prod          back to the version before
  vfield bucket gc s3://images/room --dry-run           images and packs that no tag needs

Buckets of Google are gs://BUCKET/PREFIX. Credentials are found as the AWS and Google programs find
theirs. AWS_REGION and AWS_ENDPOINT_URL_S3 count.";

/// Options of `vfield bucket`.
#[derive(Debug, Args)]
#[command(subcommand_required = true)]
pub struct BucketOptions {
    /// The action to run.
    #[command(subcommand)]
    pub action: BucketAction,
}

/// Actions on a bucket.
#[derive(Debug, Subcommand)]
pub enum BucketAction {
    /// List the tags and images of a bucket, and their sizes
    Ls {
        /// The bucket, as s3://BUCKET/PREFIX
        #[arg(value_name = "URL", value_hint = ValueHint::Url)]
        url: String,
    },
    /// Move a tag to an image of the bucket, or make a new tag
    Set {
        /// The tag, as s3://BUCKET/PREFIX#TAG
        #[arg(value_name = "URL#TAG", value_hint = ValueHint::Url)]
        url: String,
        /// The image: its id, or the beginning of it
        #[arg(value_name = "ID")]
        image: String,
        /// Versions that the bucket keeps for the tag, 1 to 6, the current one among them [default:
        /// as before, or 2]
        #[arg(long, value_name = "N")]
        keep: Option<u8>,
    },
    /// Move a tag back to the version before
    Rollback {
        /// The tag, as s3://BUCKET/PREFIX#TAG
        #[arg(value_name = "URL#TAG", value_hint = ValueHint::Url)]
        url: String,
        /// Serial of the version to go back to [default: the one before]
        #[arg(long, value_name = "SERIAL")]
        to: Option<u64>,
    },
    /// Remove a tag: `gc` then removes images that no other tag keeps
    Rm {
        /// The tag, as s3://BUCKET/PREFIX#TAG
        #[arg(value_name = "URL#TAG", value_hint = ValueHint::Url)]
        url: String,
    },
    /// Remove images and packs that no tag has needed for a day
    Gc {
        /// The bucket, as s3://BUCKET/PREFIX
        #[arg(value_name = "URL", value_hint = ValueHint::Url)]
        url: String,
        /// Only print what no tag needs, and what would go
        #[arg(long)]
        dry_run: bool,
    },
}
