//! A machine without a disk, under software emulation, on the wire of a lab's host: starts over the
//! network like one of metal.
//!
//! Owns the emulator and the way to a shell in the machine, a serial port at which the test's root
//! (see `crates/e2e/tests/diskless/setup`) has one. The console's log is kept where
//! `scripts/diskless` made the images, also when the lab has gone. The machine ends with its value;
//! a host has at most one.

use crate::LabError;
use crate::lab::Host;
use crate::need::find_tool;
use crate::process::{Process, run};
use crate::wait::Deadline;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Megabits a second that the card of a machine says it carries.
pub const CARD_MBIT: u64 = 1000;

/// What `scripts/diskless` made: kernel, initramfs and roots.
#[derive(Debug)]
pub struct Images {
    dir: PathBuf,
}

impl Images {
    /// Finds them through the environment variable `VFIELD_DISKLESS`.
    pub fn find() -> Option<Self> {
        let dir = PathBuf::from(std::env::var_os("VFIELD_DISKLESS")?);
        let made =
            ["vmlinuz", "initrd", "root.squashfs", "root.ext4", "vfield"].iter().all(|name| dir.join(name).is_file());
        (made && find_tool("qemu-system-x86_64").is_some()).then_some(Self { dir })
    }

    /// Those of a machine whose systemd knows soft-reboot, if `scripts/diskless` made them too.
    pub fn of_soft_reboot(&self) -> Option<Self> {
        let dir = self.dir.join("soft");
        let made = ["vmlinuz", "initrd", "initrd.dracut", "root.squashfs", "vfield"];
        made.iter().all(|name| dir.join(name).is_file()).then_some(Self { dir })
    }

    /// One of them.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// What a machine is made of.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Memory in MiB.
    pub memory_mib: u32,
    /// The kernel's command line, of a machine that is handed kernel and initramfs; without one it
    /// starts from its network card.
    pub command_line: Option<String>,
    /// The initramfs of a machine that is handed one, if it is not the images' own.
    pub initrd: Option<PathBuf>,
    /// A secret that the machine's firmware knows, and nobody else on its wire.
    pub credential: Option<Credential>,
    /// The directory with the state of its TPM2, if it has one: `swtpm` plays it.
    pub tpm: Option<PathBuf>,
    /// A disk for saved changes, not for a root.
    pub disk: Option<PathBuf>,
    /// Its firmware is UEFI, and drives the network card itself; else a BIOS and the iPXE in the
    /// card.
    pub uefi: bool,
}

/// A credential of systemd's, without commas: where the machine finds it, and its name and value.
#[derive(Debug, Clone)]
pub enum Credential {
    /// A string of SMBIOS.
    Smbios(&'static str, String),
    /// A file of the emulator.
    FwCfg(&'static str, String),
}

/// UEFI for an emulated machine, of Debian's package `ovmf`.
pub const UEFI: &str = "/usr/share/ovmf/OVMF.fd";

impl Default for Parts {
    fn default() -> Self {
        Self {
            memory_mib: 1024,
            command_line: None,
            initrd: None,
            credential: None,
            tpm: None,
            disk: None,
            uefi: false,
        }
    }
}

/// A running machine.
#[derive(Debug)]
pub struct Diskless {
    process: Process,
    /// Its TPM2 ends after it.
    _tpm: Option<Process>,
    shell: UnixStream,
    /// Commands that were given: each answer bears the number of its own.
    given: u32,
}

/// What a command in a machine said, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Exit status of the process.
    pub status: i32,
    /// Text of stdout and stderr.
    pub text: String,
}

/// What marks the end of a command's output; followed by its status.
const END: &str = "--- end of";
/// What marks its beginning.
const BEGIN: &str = "--- output of";
/// Between two attempts to hear from a shell.
const KNOCK: Duration = Duration::from_secs(2);

impl Diskless {
    /// Switches a machine on at a host's wire; `name` is that of the console's log.
    ///
    /// # Errors
    /// If the emulator, or the host's bridge, cannot be had.
    pub fn start(images: &Images, host: &Host, name: &str, parts: &Parts) -> Result<Self, LabError> {
        host.open_wire()?;
        let console = images.dir.join("consoles").join(format!("{name}.log"));
        let dir = console.parent().expect("joined to one");
        std::fs::create_dir_all(dir).map_err(LabError::at(dir))?;
        let socket = host.dir().join("shell");
        for old in [&console, &socket, &tpm_socket(host)] {
            match std::fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(LabError::at(old)(error)),
                _ => {}
            }
        }
        let tpm = parts.tpm.as_ref().map(|state| start_tpm(host, state)).transpose()?;
        let mut process = host.spawn(name, &mut command(images, host, &console, &socket, parts))?;
        let shell = Deadline::after(Duration::from_secs(20)).poll("the emulator is there", || {
            process.check()?;
            Ok(UnixStream::connect(&socket).ok())
        })?;
        Ok(Self { process, _tpm: tpm, shell, given: 0 })
    }

    /// Waits until a command can be given.
    ///
    /// # Errors
    /// [`LabError::Late`], and [`LabError::Ended`] if the machine goes off instead.
    pub fn up(&mut self, limit: Duration) -> Result<(), LabError> {
        let what = "the machine has started";
        let deadline = Deadline::after(limit);
        deadline.poll(what, || {
            self.process.check()?;
            match self.ask("true", KNOCK) {
                Ok(_) => Ok(Some(())),
                Err(LabError::Late { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Runs a command in the machine; it has to succeed.
    ///
    /// # Errors
    /// If it does not, or has not ended after `limit`.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<String, LabError> {
        let said = self.ask(command, limit)?;
        match said.status {
            0 => Ok(said.text),
            status => {
                Err(LabError::Command { command: command.to_owned(), why: format!("status {status}: {}", said.text) })
            }
        }
    }

    /// Runs a command in the machine.
    ///
    /// # Errors
    /// [`LabError::Late`] if it has not ended after `limit`.
    pub fn ask(&mut self, command: &str, limit: Duration) -> Result<Said, LabError> {
        let failed = |source| LabError::System { what: "the machine's shell".to_owned(), source };
        self.given += 1;
        let (begin, over) = (format!("{BEGIN} {}\n", self.given), format!("\n{END} {}: ", self.given));
        let line = format!("echo '{}'; {{ {command}\n}} 2>&1; echo; echo '{}'$?\n", begin.trim(), over.trim_start());
        self.shell.write_all(line.as_bytes()).map_err(failed)?;
        let end = Instant::now() + limit;
        let mut heard = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&heard);
            if let Some((_, text)) = text.split_once(&begin)
                && let Some((text, status)) = text.split_once(&over)
                && let Some((status, _)) = status.split_once('\n')
            {
                return Ok(Said { status: status.trim().parse().unwrap_or(-1), text: text.trim_end().to_owned() });
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LabError::Late { what: format!("{command:?} has ended; it said {text:?}"), limit });
            }
            self.shell.set_read_timeout(Some(left)).map_err(failed)?;
            let mut part = [0; 4096];
            match self.shell.read(&mut part) {
                Ok(0) => return Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => heard.extend_from_slice(&part[..read]),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Lets the machine end by itself, and waits until it is off.
    ///
    /// # Errors
    /// [`LabError::Late`].
    pub fn power_off(mut self, limit: Duration) -> Result<(), LabError> {
        // It goes before it can answer, or after.
        let _ = self.ask("systemctl poweroff", KNOCK);
        self.process.wait(limit).map(drop)
    }

    /// Waits until it is off, without a word to it.
    ///
    /// # Errors
    /// [`LabError::Late`].
    pub fn ends(mut self, limit: Duration) -> Result<(), LabError> {
        self.process.wait(limit).map(drop)
    }

    /// Pulls its plug.
    pub fn kill(mut self) {
        self.process.kill();
    }
}

/// The socket of a host's TPM2.
fn tpm_socket(host: &Host) -> PathBuf {
    host.dir().join("tpm")
}

/// Plays a TPM2 for the machine of a host, until that goes off.
fn start_tpm(host: &Host, state: &Path) -> Result<Process, LabError> {
    std::fs::create_dir_all(state).map_err(LabError::at(state))?;
    let socket = tpm_socket(host);
    let mut command = host.command("swtpm");
    command.args(["socket", "--tpm2", "--terminate", "--tpmstate"]).arg(format!("dir={}", state.display()));
    command.arg("--ctrl").arg(format!("type=unixio,path={}", socket.display()));
    let mut tpm = host.spawn("tpm", &mut command)?;
    Deadline::after(Duration::from_secs(20)).poll("the TPM is there", || {
        tpm.check()?;
        Ok(socket.exists().then_some(()))
    })?;
    Ok(tpm)
}

fn command(images: &Images, host: &Host, console: &Path, socket: &Path, parts: &Parts) -> Command {
    let mut command = host.command("qemu-system-x86_64");
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", &parts.memory_mib.to_string()]);
    command.args(["-nodefaults", "-no-reboot", "-display", "none", "-vga", "none", "-monitor", "none"]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.args(["-netdev", "tap,id=wire,ifname=tap0,script=no,downscript=no", "-device"]);
    let rom = if parts.uefi { ",romfile=" } else { "" };
    let card = format!("speed={CARD_MBIT},duplex=full");
    command.arg(format!("virtio-net-pci,netdev=wire,bootindex=1,{card},mac={}{rom}", mac(host)));
    if parts.uefi {
        command.args(["-bios", UEFI]);
    }
    // Without it a machine waits a long time for something random.
    command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci", "-chardev"]);
    command.arg(format!("socket,id=shell,path={},server=on,wait=off", socket.display()));
    command.args(["-device", "virtserialport,chardev=shell,name=test"]);
    match &parts.credential {
        Some(Credential::Smbios(name, value)) => {
            command.arg("-smbios").arg(format!("type=11,value=io.systemd.credential:{name}={value}"));
        }
        Some(Credential::FwCfg(name, value)) => {
            command.arg("-fw_cfg").arg(format!("name=opt/io.systemd.credentials/{name},string={value}"));
        }
        None => {}
    }
    if parts.tpm.is_some() {
        command.arg("-chardev").arg(format!("socket,id=tpm,path={}", tpm_socket(host).display()));
        command.args(["-tpmdev", "emulator,id=tpm,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm"]);
    }
    if let Some(disk) = &parts.disk {
        command.arg("-drive").arg(format!("file={},format=raw,if=virtio", disk.display()));
    }
    if let Some(words) = &parts.command_line {
        let initrd = parts.initrd.clone().unwrap_or_else(|| images.path("initrd"));
        command.arg("-kernel").arg(images.path("vmlinuz")).arg("-initrd").arg(initrd);
        command.arg("-append").arg(words);
    }
    command
}

/// The address of the network card of a host's machine.
pub fn mac(host: &Host) -> String {
    format!("52:54:00:00:00:{:02x}", host.index() + 1)
}

impl Host {
    /// Makes the host's wire one for a machine: `tap0`, bridged to the host's former link. The host
    /// itself has no address after this. Done already, nothing happens.
    ///
    /// # Errors
    /// On a loopback lab, and where the kernel has neither bridges nor taps.
    pub fn open_wire(&self) -> Result<(), LabError> {
        let script = "ip link show tap0 >/dev/null 2>&1 && exit 0
            ip link add wire type bridge stp_state 0 forward_delay 0 mcast_snooping 0
            ip addr flush dev eth0
            ip tuntap add tap0 mode tap
            for link in eth0 tap0; do ip link set $link master wire up; done
            ip link set wire up";
        run(self.command("sh").args(["-ec", script])).map(drop)
    }
}
