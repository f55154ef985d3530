//! Serves any [`BlockSource`](vfield_block::source::BlockSource) over NBD, FUSE or ublk, on Linux.
//!
//! Each export is a feature: `nbd`, `fuse` and `ublk`, all on by default.
//! No export knows where a source has its bytes from.
//! [`FileSource`] is a source for a file or a block device.
//! The feature `conformance` adds a kit that checks a source of your own.
//!
//! # NBD
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use vfield_export::nbd::{Address, Server};
//! let disk = std::sync::Arc::new(vfield_export::FileSource::open("disk.img".as_ref())?);
//! let address: Address = "unix:/tmp/disk.sock".parse()?;
//! let serving = Server::bind(&address, vec![disk])?.start();
//! println!("nbdinfo '{}'", serving.address().uri(""));
//! serving.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! # FUSE
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use vfield_export::fuse::{Options, mount};
//! let disk = std::sync::Arc::new(vfield_export::FileSource::open("disk.img".as_ref())?);
//! let options = Options::new(tokio::runtime::Handle::current());
//! let mounted = mount("/mnt/disks".as_ref(), vec![disk], options)?;
//! println!("{}/disk.img", mounted.directory().display());
//! tokio::task::spawn_blocking(|| mounted.unmount()).await??;
//! # Ok(()) }
//! ```
//!
//! # ublk
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use vfield_export::ublk::{Options, export};
//! let disk = std::sync::Arc::new(vfield_export::FileSource::open("disk.img".as_ref())?);
//! let options = Options::new(tokio::runtime::Handle::current());
//! let device = tokio::task::spawn_blocking(move || export(disk, &options)).await??;
//! println!("{}", device.path().display());
//! # Ok(()) }
//! ```

#[cfg(any(feature = "nbd", feature = "ublk"))]
mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
mod file_source;
#[cfg(feature = "fuse")]
pub mod fuse;
#[cfg(feature = "nbd")]
pub mod nbd;
#[cfg(any(feature = "fuse", feature = "nbd"))]
mod packed;
#[cfg(feature = "nbd")]
pub mod private_socket;
#[cfg(feature = "ublk")]
pub mod ublk;

#[cfg(any(feature = "nbd", feature = "ublk"))]
pub use claim::{is_claimed, is_open};
pub use file_source::FileSource;
#[cfg(any(feature = "nbd", feature = "ublk"))]
mod zeros;
