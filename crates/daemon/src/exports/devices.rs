//! Block devices of `--ublk` and `--device`: one for each image, by ublk or the kernel's NBD
//! client.

use super::{Export, Job, Kind, Made, Offer, Starting, explain};
use crate::estate::Estate;
use crate::onlooker::Onlooker;
use crate::plan::Places;
use crate::values::device::DeviceKind;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_export::fuse::Removed;
use vfield_export::nbd::Handed;
use vfield_export::nbd::kernel::{self, KernelDevice};
use vfield_export::ublk::{self, UblkError};

/// For mounts of a device that goes to end, as for a FUSE mount: not to hold up a shutdown.
const LET_GO_WITHIN: Duration = Duration::from_millis(500);
/// How often it is looked whether they have: nobody says so.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A driver of this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// The ublk driver.
    Ublk,
    /// The kernel's NBD client.
    Nbd,
}

pub(super) const KIND: Kind = Kind { check, start };

/// The devices in the order of their images, and what makes them.
#[derive(Debug)]
struct Devices {
    driver: Driver,
    onlooker: Arc<Onlooker>,
    all: Vec<Device>,
}

/// One image's device.
#[derive(Debug)]
pub(super) struct Device {
    served: Served,
    onlooker: Arc<Onlooker>,
}

/// A device by its driver.
#[derive(Debug)]
enum Served {
    /// A device of ublk.
    Ublk(Box<ublk::Device>),
    /// A device of the kernel's NBD client.
    Nbd(KernelDevice),
}

/// The driver that was asked for, or the best one there is; why it is not the best one, if it is
/// not.
fn choose(kind: DeviceKind) -> Result<(Driver, Option<UblkError>), Failure> {
    let nbd = || kernel::check().map(|()| Driver::Nbd).map_err(|error| explain::attach(&error));
    match (kind, ublk::check()) {
        (DeviceKind::Nbd, _) => nbd().map(|driver| (driver, None)),
        (_, Ok(())) => Ok((Driver::Ublk, None)),
        (DeviceKind::Ublk, Err(error)) => Err(explain::ublk(&error)),
        (DeviceKind::Auto, Err(error)) => match nbd() {
            Ok(driver) => Ok((driver, Some(error))),
            Err(failure) => Err(Failure::failed(format!("{error}; {}", failure.fact()))
                .hint("as root: `modprobe ublk_drv` or `modprobe nbd`; or use --nbd or --mount")),
        },
    }
}

fn check(places: &Places, _: &Estate) -> Result<(), Failure> {
    places.device.map_or(Ok(()), |kind| choose(kind).map(drop))
}

fn start(offer: Offer<'_>) -> Starting<'_> {
    let Offer { places, sources, onlooker, console, .. } = offer;
    Box::pin(async move {
        let Some(kind) = places.device else { return Ok(None) };
        let (driver, instead) = choose(kind)?;
        if let Some(why) = instead {
            console.say(&format!("the kernel's NBD client makes block devices: {why}"));
        }
        let onlooker = Arc::clone(onlooker);
        let all = make(driver, sources, &onlooker).await?;
        Ok(Some(Box::new(Devices { driver, onlooker, all }) as Box<dyn Export>))
    })
}

impl Export for Devices {
    fn places(&self) -> Vec<ExportStatus> {
        self.all.iter().map(Device::place).collect()
    }

    fn make(&self, source: Arc<dyn BlockSource>) -> Job<'static, Result<Made, Failure>> {
        let (driver, onlooker) = (self.driver, Arc::clone(&self.onlooker));
        Box::pin(async move { make(driver, vec![source], &onlooker).await.map(Made) })
    }

    fn add(&mut self, _: Arc<dyn BlockSource>, made: Made) -> Result<(), Failure> {
        self.all.extend(made.0);
        Ok(())
    }

    fn remove<'a>(&'a mut self, name: &'a str, console: &'a Console) -> Job<'a, Option<Removed>> {
        Box::pin(async move {
            let (gone, left): (Vec<Device>, _) =
                std::mem::take(&mut self.all).into_iter().partition(|device| device.image() == name);
            self.all = left;
            for device in gone {
                device.stop(console).await;
            }
            None
        })
    }

    fn take_back(&mut self, name: &str) {
        // Devices are the last kind: nothing that comes after them fails.
        self.all.retain(|device| device.image() != name);
    }

    fn users(&self, name: &str) -> Vec<String> {
        let claimed = |device: &&Device| device.image() == name && self.onlooker.is_claimed(&device.path());
        self.all.iter().filter(claimed).map(|device| format!("{} is in use", device.path().display())).collect()
    }

    fn devices(&self) -> Vec<(String, PathBuf)> {
        self.all.iter().map(|device| (device.image().to_owned(), device.path())).collect()
    }

    fn hand_over(self: Box<Self>) -> Job<'static, Vec<Vec<Handed>>> {
        // The kernel keeps devices whose process has ended, and their requests.
        std::mem::forget(self);
        Box::pin(ready(Vec::new()))
    }

    fn stop<'a>(self: Box<Self>, console: &'a Console) -> Job<'a, ()> {
        Box::pin(async move {
            for device in self.all {
                device.stop(console).await;
            }
        })
    }
}

/// Each source as a block device, in their order.
async fn make(
    driver: Driver,
    sources: Vec<Arc<dyn BlockSource>>,
    onlooker: &Arc<Onlooker>,
) -> Result<Vec<Device>, Failure> {
    let served = match driver {
        Driver::Ublk => ublk_devices(sources).await?,
        Driver::Nbd => {
            let mut devices = Vec::new();
            for source in sources {
                let device = kernel::attach(source).await.map_err(|error| explain::attach(&error))?;
                look_for_partitions(device.path(), onlooker).await;
                devices.push(Served::Nbd(device));
            }
            devices
        }
    };
    let device = |served| Device { served, onlooker: Arc::clone(onlooker) };
    let devices: Vec<Device> = served.into_iter().map(device).collect();
    for device in devices.iter().filter(|device| device.taken_over()) {
        tracing::info!(device = %device.path().display(), "took over the device of a dead daemon");
    }
    Ok(devices)
}

/// Has a device opened once. The kernel looks for partitions when a device is first opened, and
/// reads it for that.
async fn look_for_partitions(device: PathBuf, onlooker: &Arc<Onlooker>) {
    let onlooker = Arc::clone(onlooker);
    let opened = tokio::task::spawn_blocking(move || onlooker.open_once(&device)).await;
    drop(opened);
}

/// On a thread that may wait, since the kernel reads the devices before it says that they are
/// there.
async fn ublk_devices(sources: Vec<Arc<dyn BlockSource>>) -> Result<Vec<Served>, Failure> {
    let options = ublk::Options::new(Handle::current());
    let all = move || {
        sources
            .into_iter()
            .map(|source| ublk::export(source, &options).map(|device| Served::Ublk(Box::new(device))))
            .collect()
    };
    let made: Result<Result<Vec<Served>, UblkError>, _> = tokio::task::spawn_blocking(all).await;
    let made = made.map_err(|error| Failure::failed(format!("making block devices: {error}")))?;
    made.map_err(|error| explain::ublk(&error))
}

impl Device {
    /// As `status` lists it.
    fn place(&self) -> ExportStatus {
        let (kind, image) = match &self.served {
            Served::Ublk(device) => (ExportKind::Ublk, device.image()),
            Served::Nbd(device) => (ExportKind::Device, device.image()),
        };
        ExportStatus { kind, address: self.path().display().to_string(), image: Some(image.to_owned()) }
    }

    /// Name of its image.
    fn image(&self) -> &str {
        match &self.served {
            Served::Ublk(device) => device.image(),
            Served::Nbd(device) => device.image(),
        }
    }

    /// The block device.
    fn path(&self) -> PathBuf {
        match &self.served {
            Served::Ublk(device) => device.path(),
            Served::Nbd(device) => device.path(),
        }
    }

    fn taken_over(&self) -> bool {
        match &self.served {
            Served::Ublk(device) => device.taken_over(),
            Served::Nbd(device) => device.taken_over(),
        }
    }

    /// Removes it, after a moment for its mounts to end; warns if that disconnected readers.
    pub(super) async fn stop(self, console: &Console) {
        let path = self.path();
        let Self { served, onlooker } = self;
        let device = path.clone();
        let idle = tokio::task::spawn_blocking(move || is_let_go(&device, &onlooker)).await.unwrap_or_default();
        let stopped = match served {
            Served::Ublk(device) => match tokio::task::spawn_blocking(|| device.stop()).await {
                Ok(stopped) => stopped.map_err(|error| error.to_string()),
                Err(error) => Err(format!("removing {}: {error}", path.display())),
            },
            Served::Nbd(device) => device.stop().await.map_err(|error| error.to_string()),
        };
        match stopped {
            Ok(()) if idle => {}
            Ok(()) => console.warn(&format!("{} was in use; its readers were disconnected", path.display())),
            Err(error) => console.warn(&error),
        }
    }
}

/// Waits until nobody has a device mounted; `false` if that takes too long. Blocks.
fn is_let_go(device: &Path, onlooker: &Onlooker) -> bool {
    let deadline = Instant::now() + LET_GO_WITHIN;
    loop {
        if !onlooker.is_claimed(device) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
