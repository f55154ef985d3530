//! The part of the command line about trust: keys, signatures, and what a daemon gives up.

use super::ControlOptions;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;
use vfield_daemon::values::image::ImageName;
use vfield_pack::chunks::Chunks;

pub(super) const SIGN_EXAMPLES: &str = "\
Examples:
  minisign -G -p vendor.pub -s vendor.key               once
  vfield sign viver.squash --secret-key vendor.key
  minisign -Vm viver.squash.vfield -p vendor.pub        verify it with minisign
  vfield serve viver.squash --listen 192.168.1.1        serve the image and its signature
  vfield join 192.168.1.1 --trust vendor.pub            join only images signed with it";

pub(super) const KEY_EXAMPLES: &str = "\
Examples:
  vfield key new /etc/vfield.key                        copy it to every machine of the field
  vfield serve viver.squash --listen 192.168.1.1 --field-key /etc/vfield.key
  vfield join 192.168.1.1 --field-key /etc/vfield.key

To shut out one machine without a new key for all others, each machine has an identity:
  vfield key identity /etc/vfield.identity              on each machine; prints its public key
  vfield key allow list KEY rack1-3 -s operator.key     for each machine: only those listed are members
  vfield join 192.168.1.1 --field-key /etc/vfield.key --identity /etc/vfield.identity
    --admission list --admission-trust operator.pub
  vfield key revoke list rack1-3 -s operator.key        it is lost; then, on one machine that has the list:
  vfield key reload                                     the field hears of it, and shuts it out

To change the key of a running field, or to exclude a machine that has it:
  1. append the new key's line to the file on every machine that stays; vfield key reload
  2. move that line to the top on each; vfield key reload
  3. delete the old line on each; vfield key reload";

/// Options of `vfield sign`.
#[derive(Debug, Args)]
pub struct SignOptions {
    /// Image file or block device; FILE.vfield and FILE.vfield.minisig are written beside it
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Secret key of `minisign -G`; vfield asks for its password
    #[arg(long, short = 's', value_name = "KEY", value_hint = ValueHint::FilePath)]
    pub secret_key: Option<PathBuf>,
    /// Write only FILE.vfield, to be signed by `minisign -Sm FILE.vfield`
    #[arg(long, conflicts_with = "secret_key")]
    pub statement: bool,
    /// Image name [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<ImageName>,
    /// Chunk size, as for `vfield serve`
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub chunk_size: Chunks,
}

/// The signer of an admission list.
#[derive(Debug, Args)]
pub struct SignerOptions {
    /// Secret key of `minisign -G`; vfield asks for its password [default: the list is left to be
    /// signed by `minisign -Sm LIST`]
    #[arg(long, short = 's', value_name = "KEY", value_hint = ValueHint::FilePath)]
    pub secret_key: Option<PathBuf>,
}

/// Options of `vfield key`.
#[derive(Debug, Args)]
#[command(subcommand_required = true)]
pub struct KeyOptions {
    /// The action to run.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// Actions on field keys, identities and admission lists.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Make a key in a new file that only its owner can read
    New {
        /// File of the key
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print the names of the keys in a file, as in `vfield status`; the names are not secret
    Id {
        /// File of the key
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Make the identity of a machine in a new file that only its owner can read. Prints its public
    /// key and its node id
    Identity {
        /// File of the identity
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Admit a node: add it to an admission list, and sign the list. A list that allows a node
    /// admits only those that it allows
    Allow {
        /// Admission list; a new one is made if it does not exist
        #[arg(value_name = "LIST", value_hint = ValueHint::FilePath)]
        list: PathBuf,
        /// Public key of the node, as `vfield key identity` and `vfield status --json` print it
        #[arg(value_name = "KEY")]
        key: String,
        /// Name of the machine, for people
        #[arg(value_name = "NAME", default_value = "")]
        name: String,
        /// The signer of the list.
        #[command(flatten)]
        signer: SignerOptions,
    },
    /// Shut out a node: revoke its key in an admission list, and sign the list. If the list allows
    /// no nodes, a machine with the field key can come back with a new identity
    Revoke {
        /// Admission list; a new one is made if it does not exist
        #[arg(value_name = "LIST", value_hint = ValueHint::FilePath)]
        list: PathBuf,
        /// Name in the list, node id, or public key. The running daemon is asked for an id that is
        /// not in the list
        #[arg(value_name = "NODE")]
        node: String,
        /// The signer of the list.
        #[command(flatten)]
        signer: SignerOptions,
        /// The daemon to ask for an id.
        #[command(flatten)]
        control: ControlOptions,
    },
    /// Reload the key files and the admission list of the running daemon. It disconnects nodes
    /// without one of the keys, and nodes that the list does not admit
    Reload {
        /// The daemon to control.
        #[command(flatten)]
        control: ControlOptions,
    },
}
