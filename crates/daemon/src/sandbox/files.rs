//! Files (landlock(7)): what a daemon can still open by name. What it has open already, and memory
//! files, are its own.

use super::Missing;
use crate::plan::Plan;
use crate::rollback;
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use std::path::Path;
use vfield_export::nbd;

/// The rules that are written for; an older kernel enforces those that it knows.
const RULES: ABI = ABI::V5;
/// What the program and its libraries read: the processors, the time zone, randomness, themselves.
const SYSTEM: [&str; 7] =
    ["/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/block", "/dev/urandom", "/etc", "/usr"];

/// Confines this thread, and those that it starts from now on.
pub fn confine(plan: &Plan, control: &Path) -> Result<String, Missing> {
    let failed = |error: RulesetError| error.to_string();
    let rules =
        Ruleset::default().handle_access(AccessFs::from_all(RULES)).and_then(Ruleset::create).map_err(failed)?;
    let rules = allow(rules, plan, control).map_err(failed)?;
    let status = rules.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok("only its own (landlock)".to_owned()),
        RulesetStatus::PartiallyEnforced => Ok("only its own (landlock, as far as this kernel has it)".to_owned()),
        RulesetStatus::NotEnforced => Err("this kernel has no landlock".to_owned()),
    }
}

fn allow(rules: RulesetCreated, plan: &Plan, control: &Path) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::from_read(RULES) & !AccessFs::Execute;
    let write = read | (AccessFs::from_write(RULES) & !(AccessFs::MakeChar | AccessFs::MakeBlock));
    let mut rules = SYSTEM.iter().try_fold(rules, |rules, path| below(rules, Path::new(path), read))?;
    rules = below(rules, Path::new("/dev/null"), write)?;
    for serve in &plan.node.serve {
        rules = below(rules, &serve.path, read | AccessFs::IoctlDev)?;
    }
    // Directories, since the files in them are replaced: keys when they are changed, sockets at the
    // end.
    for key in plan.key_files.paths() {
        rules = below(rules, parent(key), read)?;
    }
    // What SIGHUP has read again.
    for again in plan.config.iter().map(|config| parent(config)).chain(plan.exports.tls.iter().map(nbd::Tls::dir)) {
        rules = below(rules, again, read)?;
    }
    for socket in plan.exports.nbd_sockets().chain([control]) {
        rules = below(rules, parent(socket), write)?;
    }
    if plan.node.trusted.is_some() {
        rules = below(rules, &rollback::make_dir(), write)?;
    }
    if let Some(members) = &plan.members {
        rules = below(rules, parent(members), write)?;
    }
    if plan.exports.device.is_some() {
        rules = below(rules, Path::new("/dev"), write | AccessFs::IoctlDev)?;
        rules = below(rules, Path::new("/sys"), read)?;
        // How long the queues of its devices are.
        rules = below(rules, Path::new("/sys/devices/virtual"), read | AccessFs::WriteFile | AccessFs::Truncate)?;
    }
    if let Some(overlay) = &plan.overlay {
        for saved in &overlay.from {
            rules = below(rules, saved, read)?;
        }
        if let Some(dir) = overlay.dir() {
            rules = below(rules, dir, write)?;
        }
    }
    Ok(rules)
}

/// Allows `access` to `path` and all below it; a missing path cannot be allowed, and is refused
/// later by its own name.
fn below(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let opened: Result<PathFd, PathFdError> = PathFd::new(path);
    let Ok(opened) = opened else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(RULES) };
    rules.add_rule(PathBeneath::new(opened, access))
}

/// The directory of a file.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
