//! Images as block devices, by whichever of the kernel's drivers there is.

use super::explain;
use crate::values::device::DeviceKind;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Voice;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_export::nbd::kernel::{self, KernelDevice};
use vfield_export::ublk::{self, Stopped, UblkError};

/// A driver that was found to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// ublk.
    Ublk,
    /// The kernel's NBD client.
    Nbd,
}

/// One image's device.
#[derive(Debug)]
pub enum Device {
    /// Of ublk.
    Ublk(Box<ublk::Device>),
    /// Of the kernel's NBD client.
    Nbd(KernelDevice),
}

/// The driver that was asked for, or the best one there is; why it is not the best one, if it is not.
pub fn choose(kind: DeviceKind) -> Result<(Driver, Option<UblkError>), Failure> {
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

/// Each source as a block device, in their order.
pub async fn make(driver: Driver, sources: Vec<Arc<dyn BlockSource>>) -> Result<Vec<Device>, Failure> {
    let devices = match driver {
        Driver::Ublk => ublk_devices(sources).await?,
        Driver::Nbd => {
            let mut devices = Vec::new();
            for source in sources {
                let device = kernel::attach(source).await.map_err(|error| explain::attach(&error))?;
                devices.push(Device::Nbd(device));
            }
            devices
        }
    };
    for device in devices.iter().filter(|device| device.taken_over()) {
        tracing::info!(device = %device.path().display(), "took over the device of a daemon that had died");
    }
    Ok(devices)
}

/// On a thread that may wait, since the kernel reads the devices before it says that they are there.
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
    pub fn place(&self) -> ExportStatus {
        let (kind, image) = match self {
            Self::Ublk(device) => (ExportKind::Ublk, device.image()),
            Self::Nbd(device) => (ExportKind::Device, device.image()),
        };
        ExportStatus { kind, address: self.path().display().to_string(), image: Some(image.to_owned()) }
    }

    /// Name of its image.
    pub fn image(&self) -> &str {
        match self {
            Self::Ublk(device) => device.image(),
            Self::Nbd(device) => device.image(),
        }
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
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

    /// Removes it; says whom that cut off.
    pub async fn stop(self, voice: &Voice) {
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
            Ok(false) => voice.warn(&format!("{path} was in use; its readers were cut off")),
            Err(error) => voice.warn(&error),
        }
    }
}
