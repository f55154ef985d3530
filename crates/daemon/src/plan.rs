//! What a daemon is to do: everything that was found out before it starts.

pub mod overlay;
pub mod user;

use crate::admission::AdmissionFiles;
use crate::key_files::KeyFiles;
use crate::limits::Settings;
use crate::values::device::DeviceKind;
use crate::values::sandbox::SandboxMode;
use overlay::OverlayPlan;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use user::User;
use vfield_console::failure::Failure;
use vfield_console::volume::Volume;
use vfield_export::nbd;
use vfield_export::nbd::access::Rule;
use vfield_node::config::NodeConfig;

/// Reads the verbosity from a configuration file; given options win.
pub type ReadVolume = fn(&Path, Volume) -> Result<Volume, Failure>;

/// What a daemon is to do.
#[derive(Debug)]
pub struct Plan {
    /// What the node is told.
    pub node: NodeConfig,
    /// True if its address was found, and not given: it may be another one later.
    pub finds_address: bool,
    /// How the images can be attached on this machine.
    pub exports: Places,
    /// Where changes to the images are kept, if they can be made.
    pub overlay: Option<OverlayPlan>,
    /// Where the field's keys were read from.
    pub key_files: KeyFiles,
    /// Where the admission list was read from.
    pub admission: AdmissionFiles,
    /// True if an image may be older than one read under its name before.
    pub allow_rollback: bool,
    /// True if files are hashed despite their kept hashes.
    pub rehash: bool,
    /// The path of --control.
    pub control: Option<PathBuf>,
    /// How much is given up.
    pub sandbox: SandboxMode,
    /// True if it carries this machine's root: its memory is locked.
    pub root: bool,
    /// Who serves, once everything is set up; nobody else if nothing is said.
    pub user: Option<User>,
    /// The limits of the traffic with other nodes.
    pub limits: Settings,
    /// Where the dashboard is, if anywhere.
    pub http: Option<HttpPlan>,
    /// Where members are remembered over a death.
    pub members: Option<PathBuf>,
    /// Logs in JSON.
    pub json: bool,
    /// Threads that serve readers and other nodes.
    pub threads: NonZeroUsize,
    /// The configuration file that was read.
    pub config: Option<PathBuf>,
    /// How much the command line says is to be said.
    pub volume: Volume,
    /// Reads the verbosity from the configuration file again.
    pub read_volume: ReadVolume,
    /// What a person should know, though the daemon can do without it.
    pub warnings: Vec<String>,
}

/// Where the images are to be found.
#[derive(Debug)]
pub struct Places {
    /// Addresses of NBD servers.
    pub nbd: Vec<nbd::Address>,
    /// Rules for NBD clients over TCP.
    pub access: Vec<Rule>,
    /// Certificates for NBD clients over TCP.
    pub tls: Option<nbd::Tls>,
    /// Directory of the mount.
    pub mount: Option<PathBuf>,
    /// Driver of block devices, if each image is one.
    pub device: Option<DeviceKind>,
}

/// Where the dashboard is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpPlan {
    /// The address to listen at.
    pub addr: SocketAddr,
    /// Names of this machine that clients may use.
    pub names: Vec<String>,
}

impl Plan {
    /// The TCP ports on which it listens; 0 is any that is free.
    pub fn tcp_ports(&self) -> impl Iterator<Item = u16> {
        let exported = self.exports.nbd.iter().filter_map(|place| match place {
            nbd::Address::Tcp(addr) => Some(addr.port()),
            nbd::Address::Unix(_) => None,
        });
        exported.chain([self.node.listen.port()]).chain(self.http.iter().map(|http| http.addr.port()))
    }
}

impl Places {
    /// The sockets at which NBD clients of this machine may connect.
    pub fn nbd_sockets(&self) -> impl Iterator<Item = &Path> {
        self.nbd.iter().filter_map(|place| match place {
            nbd::Address::Unix(path) => Some(path.as_path()),
            nbd::Address::Tcp(_) => None,
        })
    }
}
