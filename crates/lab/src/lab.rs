//! A lab: its hosts, and the janitor that removes every trace of them.
//!
//! The janitor is a shell that reads from a pipe held by this process and by nobody else. The pipe
//! ends when the [`Lab`] is dropped, and also when this process dies in any way at all; then the
//! janitor kills the processes that run inside the lab's directory, ends the mounts there,
//! and removes the namespaces and the directory. Should the janitor itself have been killed, the
//! next lab finds the rest by the pid in the names.

mod switch;
mod zones;

use crate::LabError;
use crate::link::{Counters, Link};
use crate::need::is_root;
use crate::port;
use crate::process::{Process, run};
use crate::wait::Deadline;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use switch::Switch;

/// Text of the janitor.
const JANITOR: &str = include_str!("janitor.sh");
/// Port of every node in namespaces, where nobody else can have it.
const PORT: u16 = 4440;
/// A server that does not listen after so long never will.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);
/// Room wanted in `/dev/shm`; images and copies of them lie there, so that no disk is measured.
const SHM_BYTES_MIN: u64 = 2 << 30;
/// More would not fit into the last byte of an address.
const HOSTS_MAX: usize = 200;
/// TCP as Debian's kernels have it: its figures must not depend on what a machine's owner prefers.
/// A namespace may choose among the algorithms only that everybody may use; its routes may name
/// any.
const TCP_AS_DEBIAN: &str = "cd /proc/sys/net
    [ ! -e ipv6 ] || echo 1 >ipv6/conf/all/disable_ipv6
    [ $(cat ipv4/tcp_congestion_control) = cubic ] ||
        ip -4 route show | while read -r route; do ip -4 route change $route congctl cubic; done
    echo 1 >ipv4/tcp_no_metrics_save
    echo 4096 131072 6291456 >ipv4/tcp_rmem
    echo 4096 16384 4194304 >ipv4/tcp_wmem";
/// Where the kernel keeps the bounds of its one table of neighbours: from where it tidies up, and
/// how many it has at most.
const ARP_BOUNDS: [&str; 3] = ["gc_thresh1", "gc_thresh2", "gc_thresh3"];
/// Longer than a storm takes, whose lab has that table.
const TABLE_WAIT: Duration = Duration::from_secs(600);

/// Distinguishes the labs of one process.
static LABS: AtomicU32 = AtomicU32::new(0);

/// Some hosts with links between them, and a directory for their files.
#[derive(Debug)]
pub struct Lab {
    hosts: Vec<Host>,
    /// What connects the switches of zones.
    core: Option<Switch>,
    /// As long as they are open, something of the machine is this lab's alone: a part of the
    /// loopback addresses, or the kernel's table of neighbours.
    claims: Vec<UnixListener>,
    dir: PathBuf,
    janitor: Child,
    /// `Some` until the lab is dropped; closing it starts the janitor.
    lifeline: Option<ChildStdin>,
}

/// One machine of a lab.
#[derive(Debug)]
pub struct Host {
    index: usize,
    /// Its namespace, and the switch that its link leads to.
    plug: Option<(String, Switch)>,
    addr: SocketAddr,
    dir: PathBuf,
}

impl Lab {
    /// Hosts in network namespaces, each with a link of its own to one switch.
    ///
    /// # Errors
    /// Without root, or where the kernel has no namespaces, bridges or shapers.
    pub fn namespaces(count: usize, link: Link) -> Result<Self, LabError> {
        Self::namespaces_with(count, |_| link)
    }

    /// The same, where each host has the link that its number is given.
    ///
    /// # Errors
    /// Those of [`Lab::namespaces`].
    pub fn namespaces_with(count: usize, link: impl Fn(usize) -> Link) -> Result<Self, LabError> {
        let mut lab = Self::start()?;
        let tag = lab.tag().to_owned();
        let switch = Switch::make(format!("{tag}-sw"))?;
        lab.add_hosts(count, |index| {
            let netns = format!("{tag}-{index}");
            let addr = Ipv4Addr::new(198, 18, 0, u8::try_from(index + 1).expect("bounded by HOSTS_MAX"));
            switch.plug_in(&netns, &format!("p{index}"), addr, link(index))?;
            Ok((Some((netns, switch.clone())), SocketAddr::from((addr, PORT))))
        })?;
        Ok(lab)
    }

    /// Hosts that are addresses of the loopback device; needs no rights. The first lab has
    /// 127.0.0.1 onwards, the next 127.0.1.1 and so on, since they may run side by side, also in
    /// processes of other checkouts.
    ///
    /// # Errors
    /// If there are too many labs, or no port is free on all addresses.
    pub fn loopback(count: usize) -> Result<Self, LabError> {
        let mut lab = Self::start()?;
        let nth = lab.tag().rsplit('-').next().and_then(|nth| nth.parse::<u32>().ok()).unwrap_or_default();
        let [.., first] = nth.to_be_bytes();
        let (net, claim) = claim_net(first)?;
        lab.claims.push(claim);
        let addr = |host: usize| Ipv4Addr::new(127, 0, net, u8::try_from(host).expect("bounded by HOSTS_MAX"));
        let addrs: Vec<_> = (1..=count.min(HOSTS_MAX)).map(addr).collect();
        let port = port::free()?;
        lab.add_hosts(count, |index| Ok((None, SocketAddr::from((addrs[index], port)))))?;
        Ok(lab)
    }

    /// Namespaces if this user may have them, loopback addresses otherwise.
    ///
    /// # Errors
    /// Those of the kind that is made.
    pub fn best(count: usize) -> Result<Self, LabError> {
        if is_root() { Self::namespaces(count, Link::FAST) } else { Self::loopback(count) }
    }

    /// The directory and the janitor.
    fn start() -> Result<Self, LabError> {
        reap();
        let tag = format!("vf{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        let dir = scratch_root().join(tag);
        std::fs::create_dir(&dir).map_err(LabError::at(&dir))?;
        let mut janitor = janitor(&dir).stdin(Stdio::piped()).spawn().map_err(LabError::at(Path::new("sh")))?;
        let lifeline = janitor.stdin.take();
        Ok(Self { hosts: Vec::new(), core: None, claims: Vec::new(), dir, janitor, lifeline })
    }

    fn add_hosts(
        &mut self,
        count: usize,
        mut place: impl FnMut(usize) -> Result<(Option<(String, Switch)>, SocketAddr), LabError>,
    ) -> Result<(), LabError> {
        assert!((1..=HOSTS_MAX).contains(&count), "a lab has 1 to {HOSTS_MAX} hosts, not {count}");
        for index in 0..count {
            let dir = self.dir.join(format!("h{index}"));
            std::fs::create_dir(&dir).map_err(LabError::at(&dir))?;
            let (plug, addr) = place(index)?;
            self.hosts.push(Host { index, plug, addr, dir });
        }
        Ok(())
    }

    /// Start of the names of everything that is the lab's.
    fn tag(&self) -> &str {
        self.dir.file_name().and_then(|name| name.to_str()).expect("named in start()")
    }

    /// All hosts, in order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// One host.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// A directory for images, in RAM where possible; removed with the lab.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Pulls the plug of a host: nothing gets in or out until [`Lab::restore`].
    ///
    /// # Panics
    /// On a loopback lab, whose hosts have no plug.
    pub fn cut(&self, host: &Host) -> Result<(), LabError> {
        host.switch().set_port(&host.port(), false)
    }

    /// Puts the plug of a host in again.
    ///
    /// # Panics
    /// On a loopback lab.
    pub fn restore(&self, host: &Host) -> Result<(), LabError> {
        host.switch().set_port(&host.port(), true)
    }

    /// Lets nothing reach a host any more but broadcasts, while its packets arrive, until
    /// [`Lab::undeafen`]: the switch takes another port for its own, which drops packets for
    /// others.
    ///
    /// # Panics
    /// On a loopback lab.
    pub fn deafen(&self, host: &Host) -> Result<(), LabError> {
        host.switch().forward_wrongly(&hardware_address(host)?, &host.port())
    }

    /// Lets it hear again.
    ///
    /// # Panics
    /// On a loopback lab.
    pub fn undeafen(&self, host: &Host) -> Result<(), LabError> {
        host.switch().forward_rightly(&hardware_address(host)?, &host.port())
    }

    /// Traffic of a host's link.
    ///
    /// # Panics
    /// On a loopback lab.
    pub fn counters(&self, host: &Host) -> Result<Counters, LabError> {
        host.switch().port(&host.port())
    }

    /// Changes the rates of one host's link.
    ///
    /// # Panics
    /// On a loopback lab.
    pub fn shape(&self, host: &Host, link: Link) -> Result<(), LabError> {
        host.switch().shape(&host.port(), link)?;
        link.shape_up(host.netns().expect("a lab of namespaces"), "eth0")
    }

    /// Traffic of each host's link, in the order of the hosts.
    ///
    /// # Panics
    /// On a loopback lab.
    pub fn all_counters(&self) -> Result<Vec<Counters>, LabError> {
        let mut ports = BTreeMap::new();
        for switch in self.hosts.iter().map(Host::switch) {
            if !ports.contains_key(&switch.netns) {
                ports.insert(switch.netns.clone(), switch.ports()?);
            }
        }
        let counters = |host: &Host| ports[&host.switch().netns].get(&host.port()).copied().unwrap_or_default();
        Ok(self.hosts.iter().map(counters).collect())
    }

    /// Gives all hosts the TCP settings of Debian's kernels, whatever this machine has been told,
    /// and no IPv6.
    ///
    /// # Errors
    /// If the kernel has no `cubic`.
    pub fn tcp_as_debian(&self) -> Result<(), LabError> {
        self.hosts.iter().try_for_each(|host| run(host.command("sh").args(["-ec", TCP_AS_DEBIAN])).map(drop))
    }

    /// Lets the kernel remember more neighbours until the lab is dropped. Its table is shared by
    /// all namespaces, so some fifty hosts who all talk to each other overflow the usual 1024
    /// entries, which never happens to real machines. Waits for another lab that did so. Returns
    /// how many there could be before. To be called once.
    ///
    /// # Errors
    /// If this user may not, or the other lab does not end.
    pub fn arp_table(&mut self, entries: u64) -> Result<u64, LabError> {
        self.claims.push(claim_table()?);
        let bounds = Path::new("/proc/sys/net/ipv4/neigh/default");
        let old: Result<Vec<_>, _> = ARP_BOUNDS
            .iter()
            .map(|name| std::fs::read_to_string(bounds.join(name)).map_err(LabError::at(&bounds.join(name))))
            .collect();
        let old = old?;
        let most = old[2].trim().parse().unwrap_or_default();
        if most >= entries {
            return Ok(most);
        }
        // The janitor puts these back.
        let kept = self.dir.join("arp-table");
        std::fs::write(&kept, old.concat()).map_err(LabError::at(&kept))?;
        for (name, bound) in ARP_BOUNDS.iter().zip([entries / 4, entries / 2, entries]) {
            let path = bounds.join(name);
            std::fs::write(&path, bound.to_string()).map_err(LabError::at(&path))?;
        }
        Ok(most)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        // It bounds itself; an error here means that somebody else has waited for it.
        let _ = self.janitor.wait();
    }
}

impl Host {
    /// Its place among the hosts of its lab.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where a node of this host listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its network namespace.
    fn netns(&self) -> Option<&str> {
        self.plug.as_ref().map(|(netns, _)| netns.as_str())
    }

    /// True if it has a network namespace of its own.
    pub fn is_apart(&self) -> bool {
        self.plug.is_some()
    }

    /// What its link leads to.
    fn switch(&self) -> &Switch {
        &self.plug.as_ref().expect("a lab of namespaces").1
    }

    /// The switch's end of its link.
    fn port(&self) -> String {
        format!("p{}", self.index)
    }

    /// The host's own directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that will run on this host, in the host's directory, and be killed with the thread
    /// that starts it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(netns) = self.netns() {
            // Not `ip netns exec`: that also leaves the mount namespace, and mounts of the host
            // would not be seen.
            command.arg("nsenter").arg(format!("--net=/run/netns/{netns}")).arg("--");
        }
        command.arg(program).current_dir(&self.dir).stdin(Stdio::null()).process_group(0);
        command
    }

    /// A command of this host that is ended after `limit`: real clients can hang, and then say
    /// nothing.
    pub fn client(&self, limit: Duration, program: &str) -> Command {
        let mut command = self.command("timeout");
        command.args(["--kill-after=2", &limit.as_secs().max(1).to_string(), program]);
        command
    }

    /// Waits until a server listens that was started on this host.
    ///
    /// # Errors
    /// If it has ended, or does not listen within [`LISTEN_LIMIT`].
    pub fn listening(&self, mut server: Process, addr: SocketAddr) -> Result<Process, LabError> {
        let port = format!("sport = :{}", addr.port());
        Deadline::after(LISTEN_LIMIT).poll(&format!("a server listens at {addr}"), || {
            server.check()?;
            let sockets = run(self.client(LISTEN_LIMIT, "ss").args(["-Hltn", &port]))?;
            Ok((!sockets.is_empty()).then_some(()))
        })?;
        Ok(server)
    }

    /// Starts a command of this host with its output in a log named after it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Process, LabError> {
        Process::spawn(name, command, &self.dir.join(format!("{name}.log")))
    }
}

/// The janitor of a directory; what its standard input is, the caller says.
fn janitor(dir: &Path) -> Command {
    let mut command = Command::new("sh");
    let tag = dir.file_name().unwrap_or_default();
    // A group of its own, so that a terminal's ctrl-C does not reach it.
    command.args(["-c", JANITOR, "janitor"]).arg(tag).arg(dir).process_group(0);
    command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    command
}

/// Removes what labs of dead processes have left.
fn reap() {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let tag = |name: std::ffi::OsString| {
        let name = name.into_string().ok()?;
        let mut parts = name.strip_prefix("vf")?.splitn(3, '-');
        let (pid, lab) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
        (!Path::new(&format!("/proc/{pid}")).exists()).then(|| format!("vf{pid}-{lab}"))
    };
    let root = scratch_root();
    let mut left: Vec<_> =
        entries(&root).chain(entries(Path::new("/run/netns"))).filter_map(|entry| tag(entry.file_name())).collect();
    left.sort();
    left.dedup();
    for tag in left {
        // Best effort: another process may reap the same one now.
        let _ = janitor(&root.join(tag)).stdin(Stdio::null()).status();
    }
}

/// RAM if there is enough of it to write to, the directory for temporary files otherwise.
fn scratch_root() -> PathBuf {
    let shm = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(shm).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    if free >= SHM_BYTES_MIN { shm.to_owned() } else { std::env::temp_dir() }
}

/// The first 127.0.NET from this one on that no lab of this machine has, and the socket by which it
/// is this one's as long as that is open.
fn claim_net(first: u8) -> Result<(u8, UnixListener), LabError> {
    let refused = |source| LabError::System { what: "no part of the loopback addresses is free".to_owned(), source };
    for net in (0..=u8::MAX).map(|step| first.wrapping_add(step)) {
        if let Some(claim) = claim(&format!("127.0.{net}")).map_err(refused)? {
            return Ok((net, claim));
        }
    }
    Err(refused(std::io::ErrorKind::AddrInUse.into()))
}

/// The kernel's table of neighbours, once no other lab of this machine has it.
fn claim_table() -> Result<UnixListener, LabError> {
    let failed = |source| LabError::System { what: "claiming the table of neighbours".to_owned(), source };
    Deadline::after(TABLE_WAIT).poll("the table of neighbours is another lab's", || claim("neighbours").map_err(failed))
}

/// A socket by which something of this machine is one lab's as long as it is open; `None` if it is
/// another's.
fn claim(thing: &str) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(&UnixAddr::from_abstract_name(format!("vfield-lab-{thing}"))?) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// The hardware address of a host's card.
fn hardware_address(host: &Host) -> Result<String, LabError> {
    let netns = host.netns().expect("a lab of namespaces");
    let told = run(Command::new("ip").args(["-n", netns, "-j", "link", "show", "dev", "eth0"]))?;
    let device: serde_json::Value = serde_json::from_str(&told).unwrap_or_default();
    Ok(device[0]["address"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_of_other_processes_keep_their_addresses() -> Result<(), LabError> {
        let (net, _claim) = claim_net(200)?;
        let (other, _other) = claim_net(net)?;
        assert_ne!(net, other);
        Ok(())
    }
}
