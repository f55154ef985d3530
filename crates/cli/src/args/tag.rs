//! The part of the command line about images over time: publishing, tags, mounts that follow.

use super::ControlOptions;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;
use vfield_daemon::values::image::ImageName;
use vfield_daemon::values::tag::Tagged;
use vfield_pack::chunks::Chunks;

pub(super) const TAG_EXAMPLES: &str = "\
Examples:
  vfield tag ls                                         who runs what
  vfield tag set prod viver-v2.erofs -s operator.key    move the tag to an image of the daemon
  vfield tag set prod viver-v2.erofs -s operator.key --rollout 10
  vfield tag rollback prod -s operator.key              back to the version before
  vfield tag rm prod -s operator.key                    nobody follows it any more

With the secret key on another machine:
  vfield tag set prod viver-v2.erofs --unsigned prod.tag --signer operator.pub
  minisign -S -s operator.key -m prod.tag               there
  vfield tag send prod.tag --signer operator.pub";

pub(super) const PUBLISH_EXAMPLES: &str = "\
Examples:
  minisign -G -p operator.pub -s operator.key           once
  vfield publish v1.erofs --tag prod -s operator.key    serve a file, and tag it
  vfield join 192.168.1.1 --follow prod --trust operator.pub --mount /mnt/field    each machine
  vfield pack root -o v2.erofs --like v1.erofs          the next version shares most chunks
  vfield publish v2.erofs --tag prod -s operator.key --rollout 10

Into a bucket, from which an origin serves it:
  vfield publish v1.erofs s3://images/v1.erofs          an object, with its hashes beside it
  vfield publish v1.erofs s3://images/room#prod         packs: the next version sends new chunks only
  vfield serve s3://images/room#prod --listen 192.168.1.1";

pub(super) const MOUNT_EXAMPLES: &str = "\
Examples:
  vfield join 192.168.1.1 --follow prod --trust operator.pub --mount /mnt/field
  vfield mount --follow prod /srv/data                  as root; it goes on until it is ended

Open files stay with the version in which they were opened. When the command ends, the mount stays:
end it with `umount /srv/data`.";

/// The signer of a tag: a secret key here, or one on another machine.
#[derive(Debug, Args)]
pub struct TagSigner {
    /// Secret key of `minisign -G`; vfield asks for its password
    #[arg(long, short = 's', value_name = "KEY", value_hint = ValueHint::FilePath)]
    pub secret_key: Option<PathBuf>,
    /// Write the text of the tag to this file and tell nobody, to sign it on another machine
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "signer",
        conflicts_with = "secret_key"
    )]
    pub unsigned: Option<PathBuf>,
    /// With --unsigned: public key of the signer, or its file
    #[arg(long, value_name = "KEY", requires = "unsigned")]
    pub signer: Option<String>,
}

/// The numbers of a tag.
#[derive(Debug, Clone, Copy, Args)]
pub struct TagNumbers {
    /// Versions that followers keep, 1 to 6, the current one among them [default: as before, or 2]
    #[arg(long, value_name = "N")]
    pub keep: Option<u8>,
    /// Percent of the nodes that follow now; the others stay with the version before [default: 100]
    #[arg(long, value_name = "PERCENT")]
    pub rollout: Option<u8>,
    /// Serial of the tag, higher than all before [default: the next one]
    #[arg(long, value_name = "N")]
    pub serial: Option<u64>,
}

/// Options of `vfield publish`.
#[derive(Debug, Args)]
pub struct PublishOptions {
    /// Image file or block device
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Put it into a store, and tell no daemon: s3://BUCKET/NAME is an object,
    /// s3://BUCKET/PREFIX#TAG are packs that versions share, and oci:HOST/REPOSITORY:TAG is an
    /// artifact of a registry
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    #[arg(conflicts_with_all = ["tag", "secret_key", "unsigned", "rollout", "serial", "name", "control"])]
    pub to: Option<String>,
    /// The tag that names the image from now on
    #[arg(long, value_name = "TAG", required_unless_present = "to")]
    pub tag: Option<Tagged>,
    /// The signer of the tag.
    #[command(flatten)]
    pub signer: TagSigner,
    /// The numbers of the tag.
    #[command(flatten)]
    pub numbers: TagNumbers,
    /// Image name [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<ImageName>,
    /// Chunk size, as for `vfield serve` [default: auto]
    #[arg(long, value_name = "SIZE")]
    pub chunk_size: Option<Chunks>,
    /// The daemon that serves the file.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `vfield tag`.
#[derive(Debug, Args)]
#[command(subcommand_required = true)]
pub struct TagOptions {
    /// The action to run.
    #[command(subcommand)]
    pub action: TagAction,
    /// The daemon to ask.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Actions on tags.
#[derive(Debug, Subcommand)]
pub enum TagAction {
    /// List the tags that the daemon knows, and how many nodes have each version
    Ls,
    /// Print the text of a tag
    Show {
        /// Name of the tag
        #[arg(value_name = "TAG")]
        tag: Tagged,
    },
    /// Move a tag to an image, or make a new tag
    Set {
        /// Name of the tag
        #[arg(value_name = "TAG")]
        tag: Tagged,
        /// The image: all 64 digits of its id; or, of an image of the daemon, its name or the
        /// beginning of its id
        #[arg(value_name = "IMAGE")]
        image: String,
        /// The signer of the tag.
        #[command(flatten)]
        signer: TagSigner,
        /// The numbers of the tag.
        #[command(flatten)]
        numbers: TagNumbers,
    },
    /// Move a tag back to the version before
    Rollback {
        /// Name of the tag
        #[arg(value_name = "TAG")]
        tag: Tagged,
        /// Serial of the version to go back to [default: the one before]
        #[arg(long, value_name = "SERIAL")]
        to: Option<u64>,
        /// The signer of the tag.
        #[command(flatten)]
        signer: TagSigner,
    },
    /// Tell the field of a tag that was signed on another machine
    Send {
        /// The text of the tag, as --unsigned wrote it; its signature is FILE.minisig
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Public key of the signer, or its file
        #[arg(long, value_name = "KEY")]
        signer: String,
    },
    /// Remove a tag: nodes that follow it go on with what they have
    Rm {
        /// Name of the tag
        #[arg(value_name = "TAG")]
        tag: Tagged,
        /// The signer of the tag.
        #[command(flatten)]
        signer: TagSigner,
    },
}

/// Options of `vfield mount`.
#[derive(Debug, Args)]
pub struct MountOptions {
    /// The tag; the daemon has to follow it, and to have --mount
    #[arg(long, value_name = "TAG")]
    pub follow: Tagged,
    /// Directory of the mount
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// File system of the image [default: what its first bytes say]
    #[arg(long = "type", value_name = "TYPE")]
    pub file_system: Option<FileSystem>,
    /// The daemon to ask.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// A file system of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileSystem {
    /// As `vfield pack` makes it.
    Erofs,
    /// Compressed; as live systems have it.
    Squashfs,
    /// Any of ext2, ext3 and ext4.
    Ext4,
    /// Mounted without its log.
    Xfs,
    /// On one device only.
    Btrfs,
    /// As on optical discs.
    Iso9660,
}
