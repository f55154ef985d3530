//! How the images of a daemon can be attached, as `status` lists it, and how much memory they take.

use serde::{Deserialize, Serialize};
use std::fmt;

/// By what an image is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportKind {
    /// An NBD server; its address is a URI without the image's name.
    Nbd,
    /// A directory in which each image is a file.
    Fuse,
    /// A block device of ublk.
    Ublk,
    /// A block device of the kernel's NBD client.
    Device,
}

impl ExportKind {
    /// Text before an address in `status`; a URI needs none.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Nbd => "",
            Self::Fuse => "fuse:",
            Self::Ublk => "ublk:",
            Self::Device => "device:",
        }
    }

    /// True if each image is a block device of its own.
    pub const fn is_device(self) -> bool {
        matches!(self, Self::Ublk | Self::Device)
    }
}

/// A place where images can be attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The kind of export.
    pub kind: ExportKind,
    /// A URI, a directory or a device.
    pub address: String,
    /// Name of the one image that is there; nothing where all of them are.
    pub image: Option<String>,
}

impl ExportStatus {
    /// A sentence for people.
    pub fn sentence(&self) -> String {
        let Self { kind, address, image } = self;
        match (kind, image) {
            (ExportKind::Fuse, _) => format!("the images are files in {address}"),
            (_, Some(image)) => format!("{image} is the block device {address}"),
            _ => format!("the images are exported at {address}"),
        }
    }

    /// True for a server that other machines may reach.
    pub fn is_tcp(&self) -> bool {
        self.address.starts_with("nbd://") || self.is_tls()
    }

    /// True for a server whose clients have to start TLS.
    pub fn is_tls(&self) -> bool {
        self.address.starts_with("nbds://")
    }

    /// Where all images are.
    pub fn of_all(kind: ExportKind, address: impl Into<String>) -> Self {
        Self { kind, address: address.into(), image: None }
    }
}

impl fmt::Display for ExportStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.prefix(), self.address)?;
        self.image.as_ref().map_or(Ok(()), |image| write!(f, " {image}"))
    }
}

/// How much memory a daemon takes, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Chunks in the stores of all images.
    pub store_bytes: u64,
    /// Chunks that are kept for a while.
    pub transient_bytes: u64,
    /// All that the process has in memory, but for chunks that it does not look at (VmRSS).
    pub process_bytes: u64,
    /// How much it may have; nothing if only the machine's memory is the end.
    pub limit_bytes: Option<u64>,
    /// Who says so: `cgroup` or `rlimit`.
    pub limit_by: Option<String>,
}
