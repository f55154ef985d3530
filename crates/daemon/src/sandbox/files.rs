//! Files, ports and other processes (landlock(7)): what a daemon can still reach by name. What it
//! has open already, and memory files, are its own.
//!
//! Connections to others cannot be confined: nodes listen on any port.

use super::Missing;
use crate::admission;
use crate::lasting;
use crate::plan::Plan;
use crate::tags;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The rules that are written for; an older kernel enforces those that it knows.
const RULES: ABI = ABI::V6;
/// Files that the program and its libraries open once they are confined, found with strace(1) in
/// the end-to-end tests: memory, processors, limits and settings of the kernel. Nothing in `/etc`
/// or `/usr`.
const SYSTEM: [&str; 9] = [
    "/proc/meminfo",
    "/proc/self",
    "/proc/sys/fs/lease-break-time",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    "/dev/urandom",
];

/// Files from which the C library finds the addresses of a name. Only daemons with objects or with
/// names of bootstrap nodes read them: these addresses change.
const RESOLVER: [&str; 5] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];

/// The files and ports that are left to a daemon.
#[derive(Debug)]
pub struct Reach {
    /// Files, and directories with all below them; a missing one is refused later by its own name.
    paths: Vec<(PathBuf, BitFlags<AccessFs>)>,
    /// TCP ports to listen on; 0 is any that is free.
    ports: Vec<u16>,
    /// Sockets of other processes that have a name without a file.
    abstract_sockets: bool,
}

impl Reach {
    /// What every daemon reads.
    fn system() -> Self {
        let read = reading();
        let mut paths: Vec<_> = SYSTEM.iter().map(|path| (PathBuf::from(path), read)).collect();
        paths.push(("/dev/null".into(), read | AccessFs::WriteFile));
        Self { paths, ports: Vec::new(), abstract_sockets: false }
    }

    /// What the daemon of this plan needs; `control` is where its socket lies.
    pub fn of(plan: &Plan, control: &Path) -> Self {
        let (read, write) = (reading(), writing());
        let mut reach = Self::system();
        let mut add = |path: &Path, access: BitFlags<AccessFs>| reach.paths.push((path.to_owned(), access));
        for serve in &plan.node.serve {
            if let Some(object) = &serve.object {
                object.store.files().iter().for_each(|file| add(read_again(file), read));
                continue;
            }
            add(&serve.path, read | AccessFs::IoctlDev);
            // To give a name to its hashes, which are in a file that is open already.
            if let Some(dir) = serve.kept.as_ref().and_then(|kept| kept.dir()) {
                add(dir, AccessFs::MakeReg.into());
            }
        }
        let has_objects = plan.node.serve.iter().any(|serve| serve.object.is_some());
        if has_objects || !plan.node.bootstrap_names.is_empty() {
            RESOLVER.iter().for_each(|path| add(Path::new(path), read));
        }
        // What SIGHUP has read again.
        for file in plan.key_files.paths().iter().chain(&plan.config).chain(&plan.admission.list) {
            add(read_again(file), read);
        }
        // Where the file alone can be read, its signature can too.
        if let Some(list) = &plan.admission.list {
            add(&admission::beside(list), read);
        }
        if let Some(tls) = &plan.exports.tls {
            add(tls.dir(), read);
        }
        for socket in plan.exports.nbd_sockets().chain([control]) {
            add(parent(socket), sockets());
        }
        let keeps_tags = tags::are_kept(&plan.node.follow);
        if plan.node.trusted.is_some() || plan.admission.signers.is_some() || keeps_tags {
            add(&lasting::make_dir(), write);
        }
        if let Some(members) = &plan.members {
            add(parent(members), write);
        }
        if plan.exports.device.is_some() {
            add(Path::new("/dev"), write | AccessFs::IoctlDev);
            add(Path::new("/sys"), read);
            // How long the queues of its devices are.
            add(Path::new("/sys/devices/virtual"), read | AccessFs::WriteFile | AccessFs::Truncate);
            // Whether the process of a device that was left behind still lives.
            add(Path::new("/proc"), read);
        }
        if let Some(disk) = &plan.node.disk {
            // A rule is about a directory that is there. If it cannot be made, the node says why.
            let _ = disk.make_dir();
            add(&disk.dir, write);
        }
        if let Some(overlay) = &plan.overlay {
            overlay.from.iter().for_each(|saved| add(saved, read));
            overlay.dir().into_iter().for_each(|dir| add(dir, write));
        }
        reach.ports = plan.tcp_ports().collect();
        reach.ports.extend(plan.node.any_port.then_some(0));
        // A service manager in a container may have such a socket.
        let manager = std::env::var_os("NOTIFY_SOCKET");
        reach.abstract_sockets = manager.as_deref().map(OsStr::as_bytes).is_some_and(|name| name.starts_with(b"@"));
        reach
    }

    /// Confines this thread, and those that it starts from now on.
    pub fn confine(&self) -> Result<String, Missing> {
        let status = self.restrict().map_err(|error| error.to_string())?;
        match status {
            RulesetStatus::FullyEnforced => Ok("only its own, and its ports (landlock)".to_owned()),
            RulesetStatus::PartiallyEnforced => Ok("only its own (landlock, as far as this kernel has it)".to_owned()),
            RulesetStatus::NotEnforced => Err("this kernel has no landlock".to_owned()),
        }
    }

    fn restrict(&self) -> Result<RulesetStatus, RulesetError> {
        let scopes = if self.abstract_sockets { Scope::Signal.into() } else { Scope::from_all(RULES) };
        let rules = Ruleset::default().handle_access(AccessFs::from_all(RULES))?;
        let rules = rules.handle_access(AccessNet::BindTcp)?.scope(scopes)?.create()?;
        let rules = self.paths.iter().try_fold(rules, |rules, (path, access)| below(rules, path, *access))?;
        let ports = self.ports.iter().map(|port| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::BindTcp)));
        Ok(rules.add_rules(ports)?.restrict_self()?.ruleset)
    }
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::from_read(RULES) & !AccessFs::Execute
}

fn writing() -> BitFlags<AccessFs> {
    reading() | (AccessFs::from_write(RULES) & !(AccessFs::MakeChar | AccessFs::MakeBlock))
}

/// In a directory of sockets: to make them, and to remove them at the end.
fn sockets() -> BitFlags<AccessFs> {
    AccessFs::MakeSock | AccessFs::RemoveFile
}

/// Allows `access` to `path` and all below it.
fn below(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(RULES) };
    let rules = rules.add_rule(PathBeneath::new(&opened, access))?;
    if path.starts_with("/proc") {
        // A rule is about an inode, and this file system makes another one for the same path once
        // nobody has the first one open.
        std::mem::forget(opened);
    }
    Ok(rules)
}

/// The path to allow so that `file` can be read again: its directory, because a changed file often
/// is another one in its place. The first directories of a machine, such as `/etc`, hold files of
/// others. There it is the file alone, which has to be written in place.
fn read_again(file: &Path) -> &Path {
    let dir = parent(file);
    let depth = dir.canonicalize().map_or(0, |dir| dir.components().count());
    if depth > 2 { dir } else { file }
}

/// The directory of a file.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    use rustix::process::{getppid, test_kill_process};
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::net::UnixListener;

    /// The outcome of `attack` in a thread that has the system's files, and `dir` for its sockets.
    /// `None`, and a line, if this kernel lacks some of the rules.
    fn confined<T: Send>(dir: Option<&Path>, attack: impl FnOnce() -> T + Send) -> Option<T> {
        let mut reach = Reach::system();
        reach.paths.extend(dir.map(|dir| (dir.to_owned(), sockets())));
        let work = || (reach.restrict().unwrap(), attack());
        let (status, outcome) = std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        let full = status == RulesetStatus::FullyEnforced;
        if !full {
            assert!(std::env::var_os("CI").is_none(), "this kernel has not all of landlock's rules: {status:?}");
            eprintln!("skipped: this kernel has not all of landlock's rules: {status:?}");
        }
        full.then_some(outcome)
    }

    fn kind<T>(done: std::io::Result<T>) -> Option<ErrorKind> {
        done.err().map(|error| error.kind())
    }

    #[test]
    fn what_the_program_reads_is_there_and_all_else_is_not() {
        let there = [
            "/proc/meminfo",
            "/proc/self/status",
            "/proc/sys/fs/lease-break-time",
            "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ];
        let elsewhere = ["/etc/passwd", "/etc/hostname", "/proc/1/cmdline"];
        let read = |path: &str| kind(std::fs::read(path));
        let Some((read, refused)) = confined(None, || (there.map(read), elsewhere.map(read))) else { return };
        assert_eq!(read, there.map(|path| kind(std::fs::read(path))));
        assert_eq!(refused, [Some(ErrorKind::PermissionDenied); 3]);
    }

    #[test]
    fn other_ports_processes_and_sockets_without_files_are_out_of_reach() {
        let socket = || rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        let name = format!("vfield-test-{}", std::process::id());
        let named = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let foreign = socket();
        rustix::net::bind(&foreign, &named).unwrap();
        let parent = getppid().expect("somebody started the tests");
        let attacks = || {
            let listening = kind(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
            (listening, rustix::net::connect(socket(), &named), test_kill_process(parent))
        };
        let Some((listening, connected, signalled)) = confined(None, attacks) else { return };
        assert_eq!(listening, Some(ErrorKind::PermissionDenied));
        assert_eq!((connected, signalled), (Err(Errno::PERM), Err(Errno::PERM)));
    }

    #[test]
    fn a_directory_of_sockets_shows_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("secret"), "").unwrap();
        let attacks = || {
            UnixListener::bind(path("socket")).unwrap();
            std::fs::remove_file(path("socket")).unwrap();
            (kind(std::fs::read(path("secret"))), kind(std::fs::write(path("new"), "")))
        };
        let denied = Some(ErrorKind::PermissionDenied);
        assert!(confined(Some(dir.path()), attacks).is_none_or(|outcome| outcome == (denied, denied)));
    }

    #[test]
    fn beside_a_file_in_etc_nothing_is_read() {
        let read = |path: &'static str| read_again(Path::new(path)).to_str().unwrap();
        assert_eq!(read("/etc/vfield.key"), "/etc/vfield.key");
        assert_eq!(read("/root/field.key"), "/root/field.key");
        assert_eq!(read("/field.key"), "/field.key");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("field.key");
        assert_eq!(read_again(&file), dir.path());
    }
}
