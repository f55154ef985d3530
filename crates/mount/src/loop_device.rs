//! A loop device of a file: read-only, and gone with its last user.
#![expect(unsafe_code, reason = "no crate in use wraps the ioctls of loop devices")]

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// How often a free device is asked for: others may take it first.
const TRIES: usize = 32;
/// `LOOP_CTL_GET_FREE`, of linux/loop.h.
const GET_FREE: Opcode = 0x4c82;
/// `LOOP_CONFIGURE`, Linux 5.8 and later.
const CONFIGURE: Opcode = 0x4c0a;
/// `LO_FLAGS_READ_ONLY` and `LO_FLAGS_AUTOCLEAR`.
const FLAGS: u32 = 1 | 4;

/// `struct loop_config` of linux/loop.h; everything that is not named is zero.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    /// `lo_device` to `lo_sizelimit`.
    places: [u64; 5],
    /// `lo_number`, `lo_encrypt_type`, `lo_encrypt_key_size`.
    numbers: [u32; 3],
    flags: u32,
    /// `lo_file_name` to `lo_init`.
    names: [u64; 22],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304, "the kernel's structure has this length");

/// Asks for a free device; its number is the result.
struct GetFree;

// SAFETY: the request takes no argument and writes nothing; its result is a number.
unsafe impl Ioctl for GetFree {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<i32, Errno> {
        Ok(out)
    }
}

/// A device that is attached for as long as this value lives, or a mount of it.
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a device of a file.
///
/// # Errors
/// Those of the system: no loop devices, or no right to make one.
pub fn attach(file: &File) -> Result<LoopDevice, Errno> {
    let open = |path: &Path| {
        let opened = OpenOptions::new().read(true).open(path);
        opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    let control = open(Path::new("/dev/loop-control"))?;
    for _ in 0..TRIES {
        // SAFETY: `GetFree` describes the request as the kernel has it.
        let number = unsafe { ioctl(&control, GetFree) }?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path)?;
        let fd = file.as_raw_fd().cast_unsigned();
        let config = Config {
            fd,
            block_size: 0,
            places: [0; 5],
            numbers: [0; 3],
            flags: FLAGS,
            names: [0; 22],
            reserved: [0; 8],
        };
        // SAFETY: `Config` is laid out as the kernel's structure, and lives until the call returns.
        match unsafe { ioctl(&device, Setter::<CONFIGURE, Config>::new(config)) } {
            Ok(()) => return Ok(LoopDevice { path, _open: device }),
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}
