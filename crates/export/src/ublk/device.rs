//! The life of a block device: found or made, started or taken over, stopped and removed.
//!
//! Owns the order of control commands and the threads of the queues. The kernel keeps 64 bits for a
//! device's server; here they are a mark made of the image's id, by which a daemon that is started
//! again finds the device that it served before it died: nothing has to be remembered anywhere
//! else. Invariants: an image has one device, and one live server; a device that we made is removed
//! when its [`Device`] goes, and lives on only if the process dies. Called by [`super::export`];
//! the requests are `queue`'s.

use super::abi::{self, ANY, Changes, Info, Parameters, State};
use super::control::{ControlDevice, is, refused};
use super::error::UblkError;
use super::queue::{self, Shared};
use super::{DISCARD_BYTES_MAX, Options, REQUEST_BYTES_MAX, SECTOR_BYTES};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use vfield_block::device::GRANULE_BYTES;
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, Piece};

/// How long a device may take to notice that its server died. It takes milliseconds; but where
/// [`keep_a_place_free`] could not, it may be 30 s, after which requests are overdue.
const NOTICE_MAX: Duration = Duration::from_secs(40);
/// Where partition tables are, at both ends of a device: a GPT has 34 sectors.
const END_BYTES: u64 = 32 << 10;
/// How often it is looked at meanwhile: the kernel does not say when.
const RETRY: Duration = Duration::from_millis(10);

/// An image as a block device. Dropping it removes the device without grace.
pub struct Device {
    number: u32,
    image: String,
    taken_over: bool,
    /// Until it is stopped.
    serving: Option<Serving>,
}

struct Serving {
    control: ControlDevice,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Device {
    /// Makes the device, as [`super::export`] says.
    pub(super) fn open(source: Arc<dyn BlockSource>, options: &Options) -> Result<Self, UblkError> {
        let parameters = parameters(&*source)?;
        let mut control = ControlDevice::open()?;
        let (mark, image) = (mark(&*source), source.name().to_owned());
        let (mut lock, mut ends) = (control.lock()?, Vec::new());
        let mut left = left_behind(&mut control, mark, &image)?;
        if left.is_none() {
            // Others start theirs meanwhile.
            drop(lock);
            ends = read_ends(&*source, &options.runtime);
            lock = control.lock()?;
            left = left_behind(&mut control, mark, &image)?;
        }
        let (info, taken_over) = match left {
            Some(info) => (take_over(&mut control, info)?, true),
            None => (make(&mut control, mark, parameters, options)?, false),
        };
        let device = open_device(info.device).map_err(refused("open its character device"));
        // From here on others see that the device has a server.
        drop(lock);
        let device = device.inspect_err(|_| give_up(&mut control, info.device, taken_over))?;
        let shared = Arc::new(Shared {
            source,
            runtime: options.runtime.clone(),
            device,
            size_bytes: parameters.sectors * SECTOR_BYTES,
            closing: watch::Sender::new(false),
        });
        let started = start_queues(&shared, info).and_then(|threads| {
            let started = if taken_over { control.end_recovery(info.device) } else { control.start(info.device) };
            started.map(|()| threads)
        });
        drop(ends);
        match started {
            Ok(threads) => {
                if !taken_over {
                    keep_a_place_free(info);
                }
                let serving = Some(Serving { control, shared, threads });
                Ok(Self { number: info.device, image, taken_over, serving })
            }
            Err(source) => {
                shared.closing.send_replace(true);
                give_up(&mut control, info.device, taken_over);
                Err(if taken_over {
                    UblkError::NotTakenOver { path: block_path(info.device), source }
                } else {
                    refused("start a device")(source)
                })
            }
        }
    }

    /// The block device, `/dev/ublkb0` for example.
    pub fn path(&self) -> PathBuf {
        block_path(self.number)
    }

    /// Name of the image.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// True if a server of this image had died and left the device behind, and requests
    /// waited for this one.
    pub fn taken_over(&self) -> bool {
        self.taken_over
    }

    /// Removes the device; reads of it fail from now on. Blocks until requests under way are
    /// answered; in async code, call it from `spawn_blocking`.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn stop(mut self) -> Result<(), UblkError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), UblkError> {
        let Some(Serving { mut control, shared, threads }) = self.serving.take() else { return Ok(()) };
        // The kernel waits for the requests under way.
        shared.closing.send_replace(true);
        control.stop(self.number).map_err(refused("stop a device"))?;
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!(device = self.number, "a thread of a ublk queue panicked");
            }
        }
        drop(shared);
        control.delete(self.number).map_err(refused("remove a device"))
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.path()).finish()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, device = self.number, "a ublk device stays until the next start");
        }
    }
}

/// The bytes in which the kernel looks for partitions while it starts a device, kept where they can
/// be had at once. It does that within this process, which no signal could end while it waits
/// for them. Waits for them itself.
fn read_ends(source: &dyn BlockSource, runtime: &Handle) -> Vec<Piece> {
    let size = source.size_bytes();
    let ends = [0..size.min(END_BYTES), size.saturating_sub(END_BYTES)..size];
    let read = ends.map(|end| runtime.block_on(source.read(Extent::from(end))));
    // The kernel gets the same errors.
    read.into_iter().flatten().flatten().collect()
}

/// What the device looks like: as long as the image, rounded up to a sector.
fn parameters(source: &dyn BlockSource) -> Result<Parameters, UblkError> {
    let size_bytes = source.size_bytes();
    let too_long = || UblkError::TooLong { name: source.name().to_owned(), size_bytes };
    // The page cache counts bytes in an i64.
    let rounded = size_bytes.checked_next_multiple_of(SECTOR_BYTES).filter(|bytes| i64::try_from(*bytes).is_ok());
    Ok(Parameters {
        sectors: rounded.ok_or_else(too_long)? / SECTOR_BYTES,
        request_sectors_max: REQUEST_BYTES_MAX / SECTOR_BYTES as u32,
        // A larger one would keep file systems of smaller blocks from being mounted.
        logical_block_shift: SECTOR_BYTES.ilog2() as u8,
        // A page: what the page cache reads at least.
        physical_block_shift: 12,
        io_min_shift: 12,
        // The kernel reads ahead by at least twice this.
        io_opt_shift: source.chunk_bytes().clamp(1 << 12, REQUEST_BYTES_MAX).ilog2() as u8,
        changes: source.device().map(|device| Changes {
            cached: !device.is_volatile(),
            granule_bytes: GRANULE_BYTES,
            discard_sectors_max: DISCARD_BYTES_MAX / SECTOR_BYTES as u32,
        }),
    })
}

/// 64 bits that stand for an image, and for whether it can be written: a user that mounted it for
/// writing is not to meet a server that forgot its writes.
fn mark(source: &dyn BlockSource) -> u64 {
    let kind = if source.device().is_some() { "device" } else { "ublk" };
    let text = format!("vfield {kind} 1 {} {}", source.size_bytes(), source.description());
    let hash = blake3::hash(text.as_bytes());
    u64::from_ne_bytes(std::array::from_fn(|index| hash.as_bytes()[index]))
}

/// The device of this image whose server died, once the kernel has noticed that.
fn left_behind(control: &mut ControlDevice, mark: u64, name: &str) -> Result<Option<Info>, UblkError> {
    let deadline = Instant::now() + NOTICE_MAX;
    loop {
        let Some(info) = control.devices()?.into_iter().find(|info| info.mark == mark) else { return Ok(None) };
        let in_use = || UblkError::InUse { name: name.to_owned(), path: block_path(info.device), server: info.server };
        match info.state {
            State::Quiesced => return Ok(Some(info)),
            // Made and never started, or stopped and not removed: nobody can have it open.
            State::Dead if open_device(info.device).is_ok() => {
                control.delete(info.device).map_err(refused("remove a dead device"))?;
            }
            _ if is_alive(info.server) || Instant::now() >= deadline => return Err(in_use()),
            _ => std::thread::sleep(RETRY),
        }
    }
}

/// True for a running process; false for a zombie.
fn is_alive(process: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The state comes behind the name, which may contain anything.
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn make(control: &mut ControlDevice, mark: u64, parameters: Parameters, options: &Options) -> Result<Info, UblkError> {
    // Changes that end with the server cannot be taken over: the device is to fail rather than to
    // forget them.
    let recovery = match parameters.changes {
        Some(Changes { cached: false, .. }) => 0,
        _ => abi::USER_RECOVERY | abi::USER_RECOVERY_REISSUE,
    };
    let wanted = Info {
        queues: options.queues.get(),
        depth: options.depth.get(),
        state: State::Dead,
        request_bytes_max: REQUEST_BYTES_MAX,
        device: ANY,
        server: 0,
        flags: abi::USER_COPY | recovery,
        mark,
    };
    let info = control.add(wanted).map_err(refused("add a device"))?;
    let set = control.set_parameters(info.device, parameters);
    set.inspect_err(|_| give_up(control, info.device, false)).map_err(refused("set the parameters of a device"))?;
    Ok(info)
}

/// Begins to take over a quiesced device.
fn take_over(control: &mut ControlDevice, info: Info) -> Result<Info, UblkError> {
    let failed = |source| UblkError::NotTakenOver { path: block_path(info.device), source };
    let deadline = Instant::now() + NOTICE_MAX;
    loop {
        match control.start_recovery(info.device) {
            Ok(()) => return Ok(info),
            // The dead process has not let go of everything yet.
            Err(error) if is(&error, Errno::BUSY) && Instant::now() < deadline => std::thread::sleep(RETRY),
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Opens the character device of a device, which has one server at a time.
fn open_device(device: u32) -> io::Result<OwnedFd> {
    let path = format!("/dev/ublkc{device}");
    Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Starts a thread for each queue and waits until all of them ask for requests.
fn start_queues(shared: &Arc<Shared>, info: Info) -> io::Result<Vec<JoinHandle<()>>> {
    let (ready, told) = mpsc::channel();
    let mut threads = Vec::new();
    for number in 0..info.queues {
        let (shared, ready) = (shared.clone(), ready.clone());
        let thread = std::thread::Builder::new().name(format!("ublk{}q{number}", info.device));
        threads.push(thread.spawn(move || queue::serve(shared, number, info.depth, &ready))?);
    }
    drop(ready);
    for _ in &threads {
        told.recv().unwrap_or_else(|_| Err(Errno::IO.into()))?;
    }
    Ok(threads)
}

/// Lets a queue have one request less than it has places, and has them queue nowhere else. The
/// kernel notices that a server died by the places in which it asks for requests: if there are
/// none, because the server waits for the bytes of all of them, the device stands still until they
/// are overdue.
fn keep_a_place_free(info: Info) {
    let queue = Path::new("/sys/block").join(format!("ublkb{}/queue", info.device));
    let set = |name: &str, value: &str| {
        if let Err(error) = std::fs::write(queue.join(name), value) {
            tracing::warn!(device = info.device, name, value, %error, "a device's queue stays as it is");
        }
    };
    // A scheduler, which devices with one queue have, would keep requests of its own; there is no
    // head to move here.
    set("scheduler", "none");
    set("nr_requests", &info.depth.saturating_sub(1).max(1).to_string());
}

/// Removes a device that could not be started; one that could not be taken over keeps waiting for a
/// server.
fn give_up(control: &mut ControlDevice, device: u32, taken_over: bool) {
    if !taken_over && let Err(error) = control.delete(device) {
        tracing::error!(%error, device, "a ublk device that was not started stays");
    }
}

fn block_path(device: u32) -> PathBuf {
    Path::new("/dev").join(format!("ublkb{device}"))
}
