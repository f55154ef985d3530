//! A room: an origin on host 0, which may also be what machines boot from, and wires for machines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_lab::diskless::{Diskless, Images, Parts};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, Link, Process, Vfield};

/// From switched on to a shell; on a machine that does nothing else it takes about a minute.
pub const UP: Duration = Duration::from_secs(420);
/// A command that reads all of a root.
pub const COMMAND: Duration = Duration::from_secs(400);
/// The console, and what emulated machines need on their command line (see `vfield_lab::machine`).
/// Of their clocks one is right: how fast their processors' counters run is guessed at the start,
/// and wrongly on a busy machine.
pub const CONSOLE: &str = "console=ttyS0 panic=-1 tsc=nowatchdog clocksource=hpet";
/// The word that gives a machine its address on host 0's wire, where nobody leases one.
pub const IP: &str = "ip=198.18.0.77::198.18.0.1:255.255.255.0:::none";
/// What a kernel dies of when the emulator runs into an instruction that another processor is just
/// replacing (see `vfield_lab::machine`), which happens now and then on a busy machine; and how
/// often one is booted.
const TORN: &str = "Oops: int3";
const BOOTS_MAX: u32 = 3;
/// A sum over all files of a machine's `/usr`, in order of their names.
pub const USR_SUM: &str =
    "cd /usr && find . -xdev -type f ! -name changed -print0 | LC_ALL=C sort -z | xargs -0 cat | sha256sum";

/// Dropped in this order: daemons before hosts.
#[derive(Debug)]
pub struct Room {
    netboot: Option<Process>,
    origin: Option<Daemon>,
    pub vfield: Vfield,
    pub images: Images,
    pub lab: Lab,
}

impl Room {
    /// Hosts on links without a limit, and an origin that serves an image, the kernel and what it
    /// begins with.
    pub fn new(hosts: usize, image: &str) -> Result<Self, LabError> {
        let mut room = Self::without_origin(hosts)?;
        room.start_origin(image)?;
        Ok(room)
    }

    /// Hosts on links without a limit, and nobody on them.
    pub fn without_origin(hosts: usize) -> Result<Self, LabError> {
        Self::of(Images::find().expect("the test has looked for them"), hosts)
    }

    /// The same, with other images than the usual ones.
    pub fn of(images: Images, hosts: usize) -> Result<Self, LabError> {
        let vfield = Vfield::at(&images.path("vfield"));
        Ok(Self { netboot: None, origin: None, vfield, images, lab: Lab::namespaces(hosts, Link::FAST)? })
    }

    /// Starts the origin, again if it was killed.
    pub fn start_origin(&mut self, image: &str) -> Result<(), LabError> {
        let files: Vec<PathBuf> =
            [image, "vmlinuz", "initrd", "initrd.dracut"].map(|name| self.images.path(name)).into();
        // The last one is made for its test alone.
        let files: Vec<&Path> = files.iter().map(PathBuf::as_path).filter(|path| path.is_file()).collect();
        let mut origin = self.vfield.serve(self.lab.host(0), &files).spawn()?;
        // Gigabytes are hashed, on a machine that may be busy.
        origin.wait_ready(UP)?;
        self.origin = Some(origin);
        Ok(())
    }

    /// The origin.
    ///
    /// # Panics
    /// If it does not run.
    pub fn origin(&self) -> &Daemon {
        self.origin.as_ref().expect("it runs")
    }

    /// Kills it with SIGKILL.
    pub fn kill_origin(&mut self) {
        if let Some(mut origin) = self.origin.take() {
            origin.kill();
        }
    }

    /// Lets machines boot from the origin's host, with one initramfs or the other; it also gives
    /// them addresses.
    pub fn netboot_from_origin(&mut self, image: &str, initrd: &str, append: &str) -> Result<(), LabError> {
        let origin = self.origin();
        let host = self.lab.host(0);
        let mut command = host.command(self.vfield.path());
        command.args(["netboot", image, "--dhcp", "198.18.0.100-198.18.0.150"]);
        command.args(["--initrd", initrd, "--append"]).arg(format!("{CONSOLE} {append}"));
        command.arg("--control").arg(origin.control());
        self.netboot = Some(host.spawn("netboot", &mut command)?);
        Ok(())
    }

    /// Ends the server of `vfield netboot`.
    pub fn end_netboot(&mut self) {
        if let Some(mut netboot) = self.netboot.take() {
            netboot.terminate();
            // Its dnsmasq goes with it.
            let _ = netboot.wait(Duration::from_secs(10));
        }
    }

    /// What it said.
    pub fn netboot_log(&self) -> String {
        self.netboot.as_ref().map(Process::log).unwrap_or_default()
    }

    /// Switches a machine on at a host's wire, and waits until it is up; again, if it was the
    /// emulator that failed.
    pub fn boot(&self, host: usize, name: &str, parts: &Parts) -> Result<Diskless, LabError> {
        let start = std::time::Instant::now();
        let mut boots = 1;
        loop {
            let mut machine = Diskless::start(&self.images, self.lab.host(host), name, parts)?;
            match machine.up(UP) {
                Ok(()) => {
                    eprintln!("{name}: up after {:.0} s", start.elapsed().as_secs_f64());
                    return Ok(machine);
                }
                Err(_) if boots < BOOTS_MAX && self.console(name).contains(TORN) => boots += 1,
                Err(error) => {
                    eprintln!("--- console of {name}:\n{}\n--- netboot:\n{}", self.console(name), self.netboot_log());
                    return Err(error);
                }
            }
        }
    }

    /// What a machine has written to its console.
    pub fn console(&self, name: &str) -> String {
        let log = self.images.path("consoles").join(format!("{name}.log"));
        String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
    }

    /// What [`USR_SUM`] says of the squashfs, computed here.
    pub fn checksum_of_usr(&self) -> Result<String, LabError> {
        let tree = self.lab.dir().join("tree");
        let unpack = ["-quiet", "-no-progress", "-no-xattrs", "-dest"];
        run(Command::new("unsquashfs").args(unpack).arg(&tree).arg(self.images.path("root.squashfs")).arg("usr"))?;
        let sum = run(Command::new("sh").arg("-c").arg(USR_SUM.replace("/usr", &tree.join("usr").to_string_lossy())));
        // A tree of hundreds of megabytes is not to stay in memory.
        run(Command::new("rm").arg("-rf").arg(&tree))?;
        sum
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.end_netboot();
    }
}
