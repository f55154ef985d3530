//! Block devices of `--ublk` and `--device`: one for each image, by ublk or the kernel's NBD
//! client.

use super::{Export, Job, Kind, Made, Offer, Starting, explain};
use crate::estate::Estate;
use crate::plan::Places;
use crate::values::device::DeviceKind;
use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_export::fuse::Removed;
use vfield_export::nbd::Handed;
use vfield_export::nbd::kernel::{self, KernelDevice};
use vfield_export::ublk::{self, Stopped, UblkError};

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
    all: Vec<Device>,
}

/// One image's device.
#[derive(Debug)]
pub(super) enum Device {
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
    let Offer { places, sources, console, .. } = offer;
    Box::pin(async move {
        let Some(kind) = places.device else { return Ok(None) };
        let (driver, instead) = choose(kind)?;
        if let Some(why) = instead {
            console.say(&format!("the kernel's NBD client makes block devices: {why}"));
        }
        let all = make(driver, sources).await?;
        Ok(Some(Box::new(Devices { driver, all }) as Box<dyn Export>))
    })
}

impl Export for Devices {
    fn places(&self) -> Vec<ExportStatus> {
        self.all.iter().map(Device::place).collect()
    }

    fn make(&self, source: Arc<dyn BlockSource>) -> Job<'static, Result<Made, Failure>> {
        let driver = self.driver;
        Box::pin(async move { make(driver, vec![source]).await.map(Made) })
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
        let claimed = |device: &&Device| device.image() == name && vfield_export::is_claimed(&device.path());
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
async fn make(driver: Driver, sources: Vec<Arc<dyn BlockSource>>) -> Result<Vec<Device>, Failure> {
    let devices = match driver {
        Driver::Ublk => ublk_devices(sources).await?,
        Driver::Nbd => {
            let mut devices = Vec::new();
            for source in sources {
                let device = kernel::attach(source).await.map_err(|error| explain::attach(&error))?;
                look_for_partitions(device.path()).await;
                devices.push(Device::Nbd(device));
            }
            devices
        }
    };
    for device in devices.iter().filter(|device| device.taken_over()) {
        tracing::info!(device = %device.path().display(), "took over the device of a dead daemon");
    }
    Ok(devices)
}

/// Opens a device once, on a thread that may wait. The kernel looks for partitions when a device
/// is first opened, and reads it for that. A thread of the runtime, which answers those reads,
/// would wait for itself.
async fn look_for_partitions(device: PathBuf) {
    // A device that cannot be opened is not looked at by the kernel either.
    let opened = tokio::task::spawn_blocking(move || std::fs::File::open(device).map(drop)).await;
    drop(opened);
}

/// On a thread that may wait, since the kernel reads the devices before it says that they are
/// there.
async fn ublk_devices(sources: Vec<Arc<dyn BlockSource>>) -> Result<Vec<Device>, Failure> {
    let options = ublk::Options::new(Handle::current());
    let all = move || {
        sources
            .into_iter()
            .map(|source| ublk::export(source, &options).map(|device| Device::Ublk(Box::new(device))))
            .collect()
    };
    let made: Result<Result<Vec<Device>, UblkError>, _> = tokio::task::spawn_blocking(all).await;
    let made = made.map_err(|error| Failure::failed(format!("making block devices: {error}")))?;
    made.map_err(|error| explain::ublk(&error))
}

impl Device {
    /// As `status` lists it.
    fn place(&self) -> ExportStatus {
        let (kind, image) = match self {
            Self::Ublk(device) => (ExportKind::Ublk, device.image()),
            Self::Nbd(device) => (ExportKind::Device, device.image()),
        };
        ExportStatus { kind, address: self.path().display().to_string(), image: Some(image.to_owned()) }
    }

    /// Name of its image.
    fn image(&self) -> &str {
        match self {
            Self::Ublk(device) => device.image(),
            Self::Nbd(device) => device.image(),
        }
    }

    /// The block device.
    fn path(&self) -> PathBuf {
        match self {
            Self::Ublk(device) => device.path(),
            Self::Nbd(device) => device.path(),
        }
    }

    fn taken_over(&self) -> bool {
        match self {
            Self::Ublk(device) => device.taken_over(),
            Self::Nbd(device) => device.taken_over(),
        }
    }

    /// Removes it; warns if that disconnected readers.
    pub(super) async fn stop(self, console: &Console) {
        let path = self.path().display().to_string();
        let idle = match self {
            Self::Ublk(device) => match tokio::task::spawn_blocking(|| device.stop()).await {
                Ok(Ok(stopped)) => Ok(stopped == Stopped::Idle),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(format!("removing {path}: {error}")),
            },
            Self::Nbd(device) => device.stop().await.map_err(|error| error.to_string()),
        };
        match idle {
            Ok(true) => {}
            Ok(false) => console.warn(&format!("{path} was in use; its readers were disconnected")),
            Err(error) => console.warn(&error),
        }
    }
}
