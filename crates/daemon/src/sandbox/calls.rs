//! System calls (seccomp(2)): those that a daemon has no use for are refused, as if it had no right
//! to them.
//!
//! A list of refused calls and not of allowed ones: what a runtime and a C library call
//! differs from version to version, what nobody but an intruder would call does not. Refused and
//! not killed, so that a library that merely tries goes on.

use super::{Missing, Needs};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;

/// Other processes, the kernel itself, the machine, its clock and its keys; becoming somebody else.
const NEVER: [i64; 46] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_capset,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_migrate_pages,
    libc::SYS_mknodat,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_settimeofday,
    libc::SYS_setuid,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];
/// What only a mount needs: other programs, and mounting itself.
const MOUNTING: [i64; 10] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_umount2,
];
/// What only block devices need: a large part of the kernel, with a history.
const DEVICES: [i64; 3] = [libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_io_uring_setup];

/// Refuses them to all threads.
pub fn refuse(needs: Needs) -> Result<String, Missing> {
    let mut refused = NEVER.to_vec();
    refused.extend(MOUNTING.iter().filter(|_| !needs.mount));
    refused.extend(DEVICES.iter().filter(|_| !needs.devices));
    let count = refused.len();
    let rules: BTreeMap<i64, Vec<_>> = refused.into_iter().map(|call| (call, Vec::new())).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| "not known on this processor".to_owned())?;
    let no_right = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, no_right, arch);
    let program = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())?;
    Ok(format!("{count} refused (seccomp), no new privileges"))
}
