//! A small machine with a kernel of its own, under software emulation: boots, runs one script, and is switched off.
//!
//! For what this machine's kernel does not have or must not be troubled with. Its programs are this machine's `/usr`, seen
//! read-only; it has no network but its own loopback and no disk but its memory. What `scripts/machine` made is found
//! through the environment variable `VFIELD_MACHINE`; each run has a directory there, `runs/NAME`, in which the script
//! finds itself as `/shared` and where the console's log stays.
//!
//! The machine is ended with its [`Process`], and by itself when its time is over, whatever happens to this one.

use crate::LabError;
use crate::need::find_tool;
use crate::process::Process;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Memory in MiB: images and copies of them lie in it.
const MEMORY_MIB: u32 = 2048;
/// As many processors as test machines have at least; ublk's queues want more than one.
const PROCESSORS: u32 = 2;
/// What the emulator gets beyond a script's limit to boot and to switch itself off; it needs about 10 s.
const BOOT_MAX: Duration = Duration::from_secs(60);

/// How often a machine is booted whose kernel dies before the script begins. Now and then, on a busy machine, the
/// emulator runs into an instruction that the other processor is just replacing (QEMU 7.2, `Oops: int3`).
const BOOTS_MAX: u32 = 3;

/// What machines are booted from.
#[derive(Debug)]
pub struct Machine {
    dir: PathBuf,
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
    /// What was made, if it was and can be run here.
    pub fn find() -> Option<Self> {
        let dir = PathBuf::from(std::env::var_os("VFIELD_MACHINE")?);
        let made = ["vmlinuz", "initramfs", "vfield"].iter().all(|name| dir.join(name).is_file());
        (made && find_tool("qemu-system-x86_64").is_some()).then_some(Self { dir })
    }

    /// Boots a machine and runs a bash script in it, with `/shared/vfield` beside it.
    ///
    /// # Errors
    /// [`LabError::Late`] if it has not ended after `limit`, and what the system refuses.
    pub fn run(&self, name: &str, script: &str, limit: Duration) -> Result<Ran, LabError> {
        let shared = self.dir.join("runs").join(name);
        match std::fs::remove_dir_all(&shared) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(LabError::at(&shared)(error)),
            _ => std::fs::create_dir_all(&shared).map_err(LabError::at(&shared))?,
        }
        let program = shared.join("vfield");
        std::fs::copy(self.dir.join("vfield"), &program).map_err(LabError::at(&program))?;
        let path = shared.join("script");
        std::fs::write(&path, script).map_err(LabError::at(&path))?;
        let limit = limit + BOOT_MAX;
        let mut boots = 1;
        let process = loop {
            let mut process = Process::spawn(name, &mut self.command(&shared, limit), &shared.join("console.log"))?;
            process.wait(limit)?;
            if shared.join("begun").exists() || boots == BOOTS_MAX {
                break process;
            }
            boots += 1;
        };
        let status = std::fs::read_to_string(shared.join("status")).ok();
        let status = status.and_then(|status| status.trim().parse().ok());
        Ok(Ran { status, console: process.log(), shared })
    }

    fn command(&self, shared: &Path, limit: Duration) -> Command {
        let seen = |path: &Path, tag: &str, more: &str| {
            format!("local,path={},mount_tag={tag},security_model=none{more}", path.display())
        };
        let mut command = Command::new("timeout");
        command.arg("--signal=KILL").arg(limit.as_secs().to_string()).arg("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", &PROCESSORS.to_string()]);
        command.args(["-m", &MEMORY_MIB.to_string(), "-no-reboot", "-nodefaults", "-nic", "none"]);
        command.args(["-display", "none", "-vga", "none", "-monitor", "none", "-serial", "stdio"]);
        command.arg("-kernel").arg(self.dir.join("vmlinuz")).arg("-initrd").arg(self.dir.join("initramfs"));
        // Whoever waits for a machine that has panicked waits for nothing; and an emulated clock that seems to run wrong,
        // because the machine is busy, is not to have the kernel rewrite itself meanwhile (see `BOOTS_MAX`).
        command.args(["-append", "console=ttyS0 quiet panic=-1 tsc=nowatchdog"]);
        command.args(["-virtfs", &seen(Path::new("/usr"), "usr", ",readonly=on")]);
        command.args(["-virtfs", &seen(shared, "shared", "")]).stdin(Stdio::null());
        command
    }
}
