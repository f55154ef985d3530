//! Capabilities (capabilities(7)): of root's, a daemon keeps those with which it opens what it is
//! told to serve.

use super::{Missing, Needs};
use caps::{CapSet, Capability, CapsHashSet};

/// Files of other users as images, key files and overlays; read leases on them.
const FILES: [Capability; 3] = [Capability::CAP_DAC_READ_SEARCH, Capability::CAP_DAC_OVERRIDE, Capability::CAP_LEASE];

/// Drops all capabilities but those needed, for good; says which are left.
pub fn give_up(needs: Needs) -> Result<String, Missing> {
    let failed = |error: caps::errors::CapsError| error.to_string();
    let had = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let optional = [
        (Capability::CAP_NET_BIND_SERVICE, needs.low_ports),
        (Capability::CAP_SYS_ADMIN, needs.mount || needs.devices),
        // Memory of rings counts as locked on some kernels; all of it is with --root, and memory
        // that is allocated would count.
        (Capability::CAP_IPC_LOCK, needs.devices || needs.locked),
        // To become another user, with the sockets and no capability.
        (Capability::CAP_CHOWN, needs.user),
        (Capability::CAP_SETGID, needs.user),
        (Capability::CAP_SETUID, needs.user),
    ];
    let wanted = FILES.into_iter().chain(optional.into_iter().filter(|(_, needed)| *needed).map(|(one, _)| one));
    let kept: CapsHashSet = wanted.filter(|one| had.contains(one)).collect();
    if had.contains(&Capability::CAP_SETPCAP) {
        for bounding in caps::read(None, CapSet::Bounding).map_err(failed)?.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *bounding).map_err(failed)?;
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    let mut names: Vec<String> =
        kept.iter().map(|one| one.to_string().trim_start_matches("CAP_").to_lowercase()).collect();
    names.sort_unstable();
    Ok(if names.is_empty() { "none".to_owned() } else { format!("only {}", names.join(", ")) })
}

/// True if this process may unmount by itself.
pub fn can_unmount() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap_or(false)
}
