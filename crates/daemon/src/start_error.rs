//! Why a node could not start, with what to do about it.

use std::io::ErrorKind;
use vfield_console::failure::{Failure, plain};
use vfield_console::values::size::human;
use vfield_node::disk::DiskError;
use vfield_node::node::StartError;
use vfield_node::proofs::Disbelief;

/// What to do about two machines with one identity.
pub const TWIN: &str = "each machine needs its own file: make one with `vfield key identity FILE`; \
    if the other process is not yours, revoke its key";

/// `error` for people.
pub fn explain(error: StartError) -> Failure {
    let fact = error.to_string();
    match error {
        StartError::Publish { .. } => {
            Failure::failed(fact).hint("the file must be readable and must not change while it is served")
        }
        StartError::PublishObject { .. } => {
            Failure::failed(fact).hint("the store must be reachable, let this machine read, and serve ranges of bytes")
        }
        StartError::NameTaken(_) => Failure::failed(fact).hint("give this image another name with --name"),
        StartError::Listen { addr, source } => {
            let hint = match source.kind() {
                ErrorKind::AddrInUse => "another program has this port: choose another with --listen ADDR:PORT",
                ErrorKind::AddrNotAvailable => {
                    "this machine does not have the address: see `ip address`, then use --listen ADDR"
                }
                ErrorKind::PermissionDenied => "ports below 1024 need root: choose a higher port with --listen",
                _ => "choose another address with --listen ADDR:PORT",
            };
            Failure::failed(format!("cannot listen on {addr}: {}", plain(&source))).hint(hint)
        }
        StartError::Bootstrap { .. } => Failure::failed(fact).hint(
            "name a running member: `vfield status` shows its address; a firewall must pass TCP and UDP; a field \
             with a key wants --field-key FILE; while no member answers, --retry forever keeps trying",
        ),
        StartError::Twin { .. } => Failure::failed(fact).hint(TWIN),
        StartError::NotAdmitted { .. } => Failure::failed(fact).hint(
            "whoever signs the list can admit it: `vfield key allow LIST KEY NAME`; another --identity may be admitted",
        ),
        StartError::Untrusted { why: Disbelief::Unsigned, .. } => Failure::failed(fact)
            .hint("sign it on its origin with `vfield sign FILE --secret-key KEY`, and serve it again"),
        StartError::Untrusted { .. } => {
            Failure::failed(fact).hint("the image was not read; check --trust and the signer of this image")
        }
        StartError::UnknownImage { .. } => Failure::failed(fact).hint("choose one of these with --image"),
        StartError::NotTagged { .. } => {
            Failure::failed(fact).hint("`vfield tag ls` on a member lists the tags; --retry forever waits for it")
        }
        StartError::ChooseImage { pins, .. } if pins.is_empty() => {
            Failure::failed(fact).hint("choose with --image NAME, once for each image")
        }
        StartError::ChooseImage { pins, .. } => {
            Failure::failed(fact).hint(format!("choose: --image {}", pins.join(" or --image ")))
        }
        StartError::Ambiguous { pins, .. } => Failure::failed(fact)
            .hint(format!("find out which image is right, then choose it: --image {}", pins.join(" or --image "))),
        StartError::ManyNames { .. } => Failure::failed(fact).hint("choose one of the names with --image NAME"),
        StartError::Unproved { .. } => {
            Failure::failed(fact).hint("start a node that has the image, or see `vfield status` of a member")
        }
        StartError::NameOfAnother { .. } => {
            Failure::failed(fact).hint("give this image another name with --name, or end the nodes that have the other")
        }
        StartError::IsHere { .. } => Failure::failed(fact).hint("`vfield status` shows what it has"),
        StartError::NameIsHere { .. } => {
            Failure::failed(fact).hint("give this one another name, or drop the other one first: `vfield drop`")
        }
        StartError::TooManyImages => Failure::failed(fact).hint("start the daemon again"),
        StartError::Names(_) => {
            Failure::failed(fact).hint("serve fewer copies of one image, or give them shorter names with --name")
        }
        StartError::StoreTooLarge { wanted_bytes, memory_bytes } => {
            let (wanted, memory) = (human(wanted_bytes), human(memory_bytes));
            Failure::failed(format!("a store of {wanted} is more than this daemon's memory of {memory}")).hint(
                "hold less with --store, any part of the image is useful; or keep the store on a disk with --disk",
            )
        }
        StartError::Disk { why: DiskError::InUse, .. } => {
            Failure::failed(fact).hint("give each daemon a directory of its own with --disk")
        }
        StartError::Disk { why: DiskError::NoHoles, .. } => {
            Failure::failed(fact).hint("give a directory on ext4, XFS, Btrfs or tmpfs with --disk")
        }
        StartError::Disk { .. } => {
            Failure::failed(fact).hint("the daemon's user must be able to make files there; see --disk")
        }
        StartError::System { what, source } => Failure::failed(format!("{what}: {}", plain(&source)))
            .hint("the system refused it: check limits (ulimit -a) and permissions"),
    }
}
