//! System calls (seccomp(2)): those that a daemon makes are allowed, all others are not there.
//!
//! A list of allowed calls, so that a call that the kernel gets next year is no way out. It has the
//! calls of the end-to-end tests, those of the C libraries for the same purpose, and older names of
//! both. Any other call fails with ENOSYS, as on an older kernel. Libraries then do without it, and
//! no newer library ends a daemon. `docs/decisions/0037-allowed-system-calls.md` says why.

use super::{Missing, Needs};
use libc::c_long;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Files: open, read, write, replace and remove them; where they are is landlock's to judge.
const FILES: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];
/// Peers and clients. Not listen(2): all that listens does so before.
const NETWORK: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];
/// Waiting, and time.
const WAITING: &[c_long] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
];
/// Memory; see also [`conditional`].
const MEMORY: &[c_long] = &[libc::SYS_brk, libc::SYS_madvise, libc::SYS_membarrier, libc::SYS_mremap, libc::SYS_munmap];
/// Threads, and what a process asks about itself; see also [`conditional`].
const THREADS: &[c_long] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];
/// Older names of the calls above, which newer processors do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[libc::SYS_accept, libc::SYS_getrlimit];
/// For a mount only: its end.
const MOUNTING: &[c_long] = &[libc::SYS_umount2];
/// For block devices only: a large part of the kernel, with a history; all controls; and whether
/// pages are cached, which tells of other users.
const DEVICES: &[c_long] = &[
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_ioctl,
    libc::SYS_mincore,
];

/// Controls of sockets and terminals: non-blocking mode; whether it is a terminal, and how wide.
const CONTROLS: [libc::Ioctl; 4] = [libc::FIONBIO, libc::TCGETS, TCGETS2, libc::TIOCGWINSZ];
/// TCGETS as newer C libraries call it, in the same words on both processors.
const TCGETS2: libc::Ioctl = 0x802c_542a_u32 as libc::Ioctl;
/// A new thread is one of this process, and does not begin a namespace. The newer call's flags
/// cannot be seen by a filter, so it is left out; libraries then make the older one.
const NAMESPACES: libc::c_int = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// A filter, and how many system calls it lets through.
#[derive(Debug)]
pub struct Filter {
    allowed: usize,
    program: BpfProgram,
}

impl Filter {
    /// What a daemon with these tasks may call.
    pub fn of(needs: Needs) -> Result<Self, Missing> {
        let arch =
            TargetArch::try_from(std::env::consts::ARCH).map_err(|_| "not known on this processor".to_owned())?;
        let rules = rules(needs).map_err(|error| error.to_string())?;
        let (allowed, none) = (rules.len(), SeccompAction::Errno(libc::ENOSYS.cast_unsigned()));
        // A call by the numbers of another processor, such as 32-bit ones, ends the process.
        let filter = SeccompFilter::new(rules, none, SeccompAction::Allow, arch);
        let program = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
        Ok(Self { allowed, program })
    }

    /// Puts it into force, for all threads.
    pub fn apply(self) -> Result<String, Missing> {
        seccompiler::apply_filter_all_threads(&self.program).map_err(|error| error.to_string())?;
        Ok(format!("only {} (seccomp), no new privileges", self.allowed))
    }
}

fn rules(needs: Needs) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    let mut rules = conditional(needs)?;
    let mut always: Vec<&[c_long]> = vec![FILES, NETWORK, WAITING, MEMORY, THREADS, OLDER];
    always.extend([needs.mount.then_some(MOUNTING), needs.devices.then_some(DEVICES)].into_iter().flatten());
    // No rule in a call's list: whatever its arguments are.
    rules.extend(always.into_iter().flatten().map(|call| (*call, Vec::new())));
    Ok(rules)
}

/// Calls of which only some forms are allowed.
fn conditional(needs: Needs) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    let word = |argument: u8, value: i64| when(argument, Eq, value);
    let bits = |bits: libc::c_int| u64::from(bits.cast_unsigned());
    let without = |argument: u8, some: libc::c_int| when(argument, MaskedEq(bits(some)), 0);
    let any = |argument: u8, values: &[i64]| -> Result<Vec<_>, BackendError> {
        values.iter().map(|value| word(argument, *value)).collect()
    };
    let mut families = vec![libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    families.extend(needs.devices.then_some(libc::AF_NETLINK));
    let families: Vec<i64> = families.into_iter().map(i64::from).collect();
    let controls = CONTROLS.map(|control| control as u32 as i64);
    let own = i64::from(std::process::id());
    let mut rules = BTreeMap::from([
        (libc::SYS_socket, any(0, &families)?),
        (libc::SYS_socketpair, vec![word(0, libc::AF_UNIX.into())?]),
        (libc::SYS_ioctl, any(1, &controls)?),
        (libc::SYS_clone, vec![when(0, MaskedEq(bits(libc::CLONE_THREAD | NAMESPACES)), libc::CLONE_THREAD.into())?]),
        // Nothing that was written becomes a program.
        (libc::SYS_mmap, vec![without(2, libc::PROT_EXEC)?]),
        (libc::SYS_mprotect, vec![without(2, libc::PROT_EXEC)?]),
        // Names of threads. Nothing else about this process changes from now on.
        (libc::SYS_prctl, vec![word(0, libc::PR_SET_NAME.into())?]),
        // Of this process, and read, not set.
        (libc::SYS_prlimit64, vec![SeccompRule::new(vec![is(0, Eq, 0)?, is_quad(2, Eq, 0)?])?]),
        // An end by one's own hand (abort(3)).
        (libc::SYS_tgkill, vec![word(0, own)?]),
    ]);
    if cfg!(target_env = "musl") {
        // Its abort(3) does not say whose thread it is.
        rules.insert(libc::SYS_tkill, vec![word(1, libc::SIGABRT.into())?]);
    }
    Ok(rules)
}

fn when(argument: u8, operator: seccompiler::SeccompCmpOp, value: i64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![is(argument, operator, value)?])
}

/// A condition on the lower half of an argument, all that the kernel looks at in those used here.
fn is(argument: u8, operator: seccompiler::SeccompCmpOp, value: i64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.cast_unsigned())
}

/// A condition on a whole argument.
fn is_quad(argument: u8, operator: seccompiler::SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use rustix::process::{
        Resource, Signal, getpid, getrlimit, kill_process, set_parent_process_death_signal, setrlimit,
    };
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    const NEEDS: Needs = Needs { mount: false, devices: false, locked: false, low_ports: false, user: false };

    /// What `attack` gives in a thread under the filter.
    fn filtered<T: Send>(needs: Needs, attack: impl FnOnce() -> T + Send) -> T {
        let program = Filter::of(needs).unwrap().program;
        let work = || {
            seccompiler::apply_filter(&program).unwrap();
            attack()
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn what_a_daemon_does_works() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, dir) = (listener.local_addr().unwrap(), tempfile::tempdir().unwrap());
        filtered(NEEDS, || {
            let client = TcpStream::connect(addr).unwrap();
            client.set_nonblocking(true).unwrap();
            listener.accept().unwrap();
            UnixStream::pair().unwrap();
            std::thread::Builder::new().name("named".to_owned()).spawn(|| ()).unwrap().join().unwrap();
            let (file, other) = (dir.path().join("file"), dir.path().join("other"));
            std::fs::write(&file, "text").unwrap();
            std::fs::rename(&file, &other).unwrap();
            assert_eq!(std::fs::read_to_string(&other).unwrap(), "text");
            assert!(getrlimit(Resource::Nofile).current.is_some());
            drop(vec![0_u8; 64 << 20]);
        });
    }

    #[test]
    fn what_only_an_intruder_does_is_not_there() {
        let limit = getrlimit(Resource::Nofile);
        let attacks = || {
            let listening = TcpListener::bind("127.0.0.1:0").err().and_then(|error| Errno::from_io_error(&error));
            let program = Command::new("true").status().err().and_then(|error| Errno::from_io_error(&error));
            let [netlink, packets] = [AddressFamily::NETLINK, AddressFamily::PACKET]
                .map(|family| socket(family, SocketType::RAW, None).err());
            let death = set_parent_process_death_signal(Some(Signal::TERM)).err();
            let (killed, raised) =
                (kill_process(getpid(), Signal::CONT).err(), setrlimit(Resource::Nofile, limit).err());
            [listening, program, netlink, packets, death, killed, raised]
        };
        assert_eq!(filtered(NEEDS, attacks), [Some(Errno::NOSYS); 7]);
    }

    #[test]
    fn devices_need_more() {
        let ask = || socket(AddressFamily::NETLINK, SocketType::RAW, None).err();
        assert_eq!(filtered(Needs { devices: true, ..NEEDS }, ask), None);
    }
}
