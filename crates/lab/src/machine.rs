//! A small machine with a kernel of its own, under software emulation: boots, runs one script, and
//! is switched off.
//!
//! For what this machine's kernel does not have or must not be troubled with. Its programs are this
//! machine's `/usr`, seen read-only; it has no network but its own loopback and no disk but its
//! memory, unless it is [started](Machine::start) with some. What `scripts/machine` made is found
//! through the environment variable `VFIELD_MACHINE`; each run has a directory there, `runs/NAME`,
//! in which the script finds itself as `/shared`, and where its steps and the console's log stay.
//!
//! The machine is ended with its [`Process`].

mod clock;

use crate::LabError;
use crate::diskless::mac;
use crate::lab::Host;
use crate::need::find_tool;
use crate::process::{Process, tail};
use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the emulator gets beyond a script's limit to boot and to switch itself off; it needs about
/// 10 s.
const BOOT_MAX: Duration = Duration::from_secs(60);

/// How often a machine is booted whose kernel dies before the script begins, or in a
/// [known](KNOWN_FAULT) way. Now and then, on a busy machine, the emulator runs into an instruction
/// that the other processor is just replacing (QEMU 7.2, `Oops: int3`).
const BOOTS_MAX: u32 = 3;

/// Where a kernel is known to fail by itself, as its call trace has it, which says nothing about
/// the program under test: Linux 6.12.95 now and then completes a command of a ublk queue that it
/// has freed already, when the process at the queue is killed while it submits. `__io_fallback_tw`
/// then counts references to a ring that has none.
const KNOWN_FAULT: &str = "RIP: 0010:io_fallback_tw+";

const EMULATOR: &str = "qemu-system-x86_64";

/// What machines are booted from.
#[derive(Debug)]
pub struct Machine {
    dir: PathBuf,
}

/// What a machine is made of.
#[derive(Debug, Clone, Copy)]
pub struct Hardware<'a> {
    /// Memory in MiB: images and copies of them lie in it.
    pub memory_mib: u32,
    /// Number of processors.
    pub processors: u32,
    /// A disk that it can only read, `/dev/vda`.
    pub disk: Option<Disk<'a>>,
}

/// Where the bytes of a disk are.
#[derive(Debug, Clone, Copy)]
pub enum Disk<'a> {
    /// In a file.
    File(&'a Path),
    /// At an NBD address, which the emulator's own client reads.
    Nbd(&'a str),
}

impl Default for Hardware<'_> {
    fn default() -> Self {
        // As many processors as test machines have at least; ublk's queues want more than one.
        Self { memory_mib: 2048, processors: 2, disk: None }
    }
}

/// How a script ended.
#[derive(Debug)]
pub struct Ran {
    /// Its exit status; `None` if the machine went before the script did.
    pub status: Option<i32>,
    /// Everything that was written to the console, the kernel's own words included.
    pub console: String,
    /// What the script knew as `/shared`.
    pub shared: PathBuf,
}

impl Machine {
    /// The built machine, if it exists and can run here.
    pub fn find() -> Option<Self> {
        let dir = PathBuf::from(std::env::var_os("VFIELD_MACHINE")?);
        let made = ["vmlinuz", "initramfs", "vfield"].iter().all(|name| dir.join(name).is_file());
        (made && find_tool(EMULATOR).is_some()).then_some(Self { dir })
    }

    /// The program that scripts find in `/shared`.
    pub fn program(&self) -> PathBuf {
        self.dir.join("vfield")
    }

    /// Boots a machine and runs a bash script in it, with `/shared/vfield` beside it.
    ///
    /// # Errors
    /// [`LabError::Late`] with the script's last steps if it has not ended after `limit`, and what
    /// the system refuses.
    pub fn run(&self, name: &str, script: &str, limit: Duration) -> Result<Ran, LabError> {
        let limit = limit + BOOT_MAX;
        let mut boots = 1;
        loop {
            let shared = self.share(name, script)?;
            let mut command = Command::new("timeout");
            command.arg("--signal=KILL").arg(limit.as_secs().to_string());
            // What `timeout` has started does not outlive it.
            command.args(["setpriv", "--pdeathsig", "KILL", EMULATOR, "-nic", "none"]);
            self.equip(&mut command, &shared, &Hardware::default());
            let mut process = Process::spawn(name, &mut command, &shared.join("console.log"))?;
            process.wait(limit).map_err(|_| LabError::Late {
                what: format!(
                    "{name} ends; its steps:\n{}\nits console:\n{}",
                    tail(&shared.join("steps")),
                    process.log_tail()
                ),
                limit,
            })?;
            let status = std::fs::read_to_string(shared.join("status")).ok();
            let status = status.and_then(|status| status.trim().parse().ok());
            let console = process.log();
            let kernel_failed = !shared.join("begun").exists() || (status.is_none() && console.contains(KNOWN_FAULT));
            if !kernel_failed || boots == BOOTS_MAX {
                return Ok(Ran { status, console, shared });
            }
            boots += 1;
            // Past a test's harness, which shows only what failing tests print: nobody is to find
            // this out by counting seconds.
            let _ = writeln!(stderr(), "{name}: the machine's kernel failed by itself, and is booted again");
        }
    }

    /// Switches a machine on at the wire of a lab's host, for a script; returns it, and what the
    /// script knows as `/shared`. The network card is `eth0`, and has no address. A machine with an
    /// NBD disk has no network, since the emulator uses the host's address.
    ///
    /// # Errors
    /// If the emulator, or the host's bridge, cannot be had.
    pub fn start(
        &self,
        name: &str,
        script: &str,
        host: &Host,
        hardware: &Hardware<'_>,
    ) -> Result<(Process, PathBuf), LabError> {
        let shared = self.share(name, script)?;
        let mut command = host.command(EMULATOR);
        if let Some(Disk::Nbd(_)) = hardware.disk {
            command.args(["-nic", "none"]);
        } else {
            host.open_wire()?;
            command.args(["-netdev", "tap,id=wire,ifname=tap0,script=no,downscript=no", "-device"]);
            command.arg(format!("virtio-net-pci,netdev=wire,mac={}", mac(host)));
        }
        self.equip(&mut command, &shared, hardware);
        let process = Process::spawn(name, &mut command, &shared.join("console.log"))?;
        Ok((process, shared))
    }

    /// Makes a run's directory, with a script and the program.
    fn share(&self, name: &str, script: &str) -> Result<PathBuf, LabError> {
        let shared = self.dir.join("runs").join(name);
        match std::fs::remove_dir_all(&shared) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(LabError::at(&shared)(error)),
            _ => std::fs::create_dir_all(&shared).map_err(LabError::at(&shared))?,
        }
        let program = shared.join("vfield");
        std::fs::copy(self.program(), &program).map_err(LabError::at(&program))?;
        let path = shared.join("script");
        std::fs::write(&path, script).map_err(LabError::at(&path))?;
        Ok(shared)
    }

    /// All of it but the network.
    fn equip(&self, command: &mut Command, shared: &Path, hardware: &Hardware<'_>) {
        let seen = |path: &Path, tag: &str, more: &str| {
            format!("local,path={},mount_tag={tag},security_model=none{more}", path.display())
        };
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", &hardware.processors.to_string()]);
        command.args(["-m", &hardware.memory_mib.to_string(), "-no-reboot", "-nodefaults"]);
        command.args(["-display", "none", "-vga", "none", "-monitor", "none", "-serial", "stdio"]);
        command.arg("-kernel").arg(self.dir.join("vmlinuz")).arg("-initrd").arg(self.dir.join("initramfs"));
        // A wait for a machine whose kernel has failed is in vain; and an emulated
        // clock that seems to run wrong, because the machine is busy, is not to have the kernel
        // rewrite itself meanwhile (see `BOOTS_MAX`).
        let words = format!("console=ttyS0 quiet oops=panic panic=-1 tsc=nowatchdog {}", clock::word());
        command.args(["-append", &words]);
        command.args(["-virtfs", &seen(Path::new("/usr"), "usr", ",readonly=on")]);
        command.args(["-virtfs", &seen(shared, "shared", "")]).stdin(Stdio::null());
        if let Some(disk) = hardware.disk {
            let file = match disk {
                Disk::File(path) => path.display().to_string(),
                Disk::Nbd(uri) => uri.to_owned(),
            };
            command.arg("-drive").arg(format!("file={file},format=raw,if=virtio,readonly=on"));
        }
    }
}
