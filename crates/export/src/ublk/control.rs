//! The control device: makes, starts, takes over, stops and removes block devices.
//!
//! Owns the control device's descriptor and a ring. Each method is one command, waited for; which
//! of them come in which order is `device`'s to know. Knows nothing of images.

use super::abi::{self, ANY, Info, Parameters};
use super::error::UblkError;
use super::ring::ControlRing;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

/// What a server of ours cannot do without. All three came before, or with, the command that tells
/// them (Linux 6.5), so there is no other way to hand bytes over.
const NEEDED: u64 = abi::USER_COPY | abi::USER_RECOVERY | abi::USER_RECOVERY_REISSUE;

/// Where the kernel lists the character devices of block devices.
const DEVICES_PATH: &str = "/sys/class/ublk-char";

/// An open control device.
pub(super) struct ControlDevice {
    file: File,
    ring: ControlRing,
}

impl ControlDevice {
    /// Opens the control device and checks the kernel's features.
    pub fn open() -> Result<Self, UblkError> {
        let file = File::options().read(true).write(true).open(abi::CONTROL_PATH);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UblkError::NotThere,
            io::ErrorKind::PermissionDenied => UblkError::NotAllowed,
            _ => UblkError::Refused { what: "open", source: error },
        })?;
        let ring = ControlRing::new().map_err(UblkError::NoRing)?;
        let mut control = Self { file, ring };
        let missing = NEEDED & !control.features()?;
        if missing != 0 { Err(UblkError::TooOld { missing }) } else { Ok(control) }
    }

    /// Features of the kernel's driver; none if it cannot report them.
    fn features(&mut self) -> Result<u64, UblkError> {
        let mut bytes = [0; 8];
        match self.run(abi::Control::Features, ANY, &mut bytes, 0) {
            Ok(()) => Ok(u64::from_ne_bytes(bytes)),
            Err(error) if is(&error, Errno::OPNOTSUPP) || is(&error, Errno::INVAL) || is(&error, Errno::NODEV) => Ok(0),
            Err(error) => Err(refused("tell its features")(error)),
        }
    }

    /// Keeps all other servers that lock, too, from making or taking over devices, until the guard
    /// is dropped.
    pub fn lock(&self) -> Result<Lock, UblkError> {
        let file = File::options().read(true).open(abi::CONTROL_PATH).map_err(refused("open"))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| refused("lock")(error.into()))?;
        Ok(Lock(file))
    }

    /// All devices that there are, our own and others'.
    pub fn devices(&mut self) -> Result<Vec<Info>, UblkError> {
        let entries = match std::fs::read_dir(DEVICES_PATH) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(refused("list the devices of")(error)),
        };
        let mut numbers: Vec<u32> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok()).collect();
        numbers.sort_unstable();
        // A device that vanishes during the search is not the wanted one.
        Ok(numbers.into_iter().filter_map(|number| self.info(number).ok()).collect())
    }

    /// What the kernel knows of a device.
    pub fn info(&mut self, device: u32) -> io::Result<Info> {
        let mut bytes = [0; Info::BYTES];
        self.run(abi::Control::Info, device, &mut bytes, 0)?;
        Ok(Info::from_bytes(&bytes))
    }

    /// Makes a device like `wanted`; the kernel may give it fewer queues and always gives it a
    /// number.
    pub fn add(&mut self, wanted: Info) -> io::Result<Info> {
        let mut bytes = wanted.to_bytes();
        self.run(abi::Control::Add, wanted.device, &mut bytes, 0)?;
        Ok(Info::from_bytes(&bytes))
    }

    /// Says what a device that is not started yet is to look like.
    pub fn set_parameters(&mut self, device: u32, parameters: Parameters) -> io::Result<()> {
        self.run(abi::Control::SetParameters, device, &mut parameters.to_bytes(), 0)
    }

    /// Makes the block device appear; ends when the kernel has looked for partitions, which it
    /// reads.
    pub fn start(&mut self, device: u32) -> io::Result<()> {
        self.run(abi::Control::Start, device, &mut [], std::process::id().into())
    }

    /// Begins to take over a quiesced device.
    pub fn start_recovery(&mut self, device: u32) -> io::Result<()> {
        self.run(abi::Control::StartRecovery, device, &mut [], 0)
    }

    /// Ends it: from here on requests come again, first those that the dead server left unanswered.
    pub fn end_recovery(&mut self, device: u32) -> io::Result<()> {
        self.run(abi::Control::EndRecovery, device, &mut [], std::process::id().into())
    }

    /// Takes the block device away, once the requests under way are answered; later ones fail.
    pub fn stop(&mut self, device: u32) -> io::Result<()> {
        self.run(abi::Control::Stop, device, &mut [], 0)
    }

    /// Removes a device. Where the kernel can, its number is free only when nobody has it open any
    /// more.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        match self.run(abi::Control::DeleteSoon, device, &mut [], 0) {
            Err(error) if is(&error, Errno::OPNOTSUPP) => self.run(abi::Control::Delete, device, &mut [], 0),
            done => done,
        }
    }

    fn run(&mut self, command: abi::Control, device: u32, buffer: &mut [u8], data: u64) -> io::Result<()> {
        self.ring.run(self.file.as_fd(), command, device, buffer, data)
    }
}

/// Held while devices are made; see [`ControlDevice::lock`].
pub(super) struct Lock(#[expect(dead_code, reason = "closing it unlocks")] File);

/// True if that is what the system said.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

/// The system refused to do `what` to the control device or one of its devices.
pub(super) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> UblkError {
    move |source| match source.kind() {
        io::ErrorKind::PermissionDenied => UblkError::NotAllowed,
        _ => UblkError::Refused { what, source },
    }
}
