//! A small lab for real processes: hosts with links of their own on one machine, daemons that are
//! always ended.
//!
//! [`Lab::namespaces`] lays out hosts as network namespaces around a bridge, with shaped links that
//! can be cut; it needs root, and no packet leaves it. [`Lab::loopback`] gives each host an address
//! in 127.0.0.0/8 instead and needs nothing. A [`Host`] starts [`Process`]es, a [`Vfield`] starts
//! daemons on hosts and asks them how they are.
//!
//! Whatever happens to the program that made a lab (return, panic, ctrl-C, SIGKILL), its processes,
//! mounts, namespaces and files go: see [`lab`].
//!
//! Used by the end-to-end tests, the demonstration and the measurements; nothing here knows the
//! protocol.

pub mod browser;
pub mod bytes;
pub mod cgroup;
pub mod client;
pub mod clouds;
pub mod daemon;
pub mod diskless;
pub mod fault_proxy;
pub mod forward_proxy;
pub mod lab;
pub mod link;
pub mod machine;
pub mod need;
pub mod object_stores;
pub mod port;
pub mod process;
pub mod service_manager;
pub mod wait;
pub mod web;

pub use daemon::{Daemon, Vfield};
pub use diskless::{Diskless, Images};
pub use fault_proxy::{Fault, FaultProxy};
pub use forward_proxy::ForwardProxy;
pub use lab::{Host, Lab};
pub use link::{Counters, Link};
pub use machine::Machine;
pub use object_stores::{Buckets, Registry, TlsServer};
pub use process::Process;
pub use service_manager::ServiceManager;
pub use wait::{Deadline, wait_until};
pub use web::WebServer;

use std::path::Path;
use std::time::Duration;

/// Why something in the lab did not work. Each names the thing at fault.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A command could not be run or failed.
    #[error("{command}: {why}")]
    Command {
        /// The command line.
        command: String,
        /// What it said, or how it ended.
        why: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// The failed step with its path.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A state was not reached in time.
    #[error("after {limit:?} still not: {what}")]
    Late {
        /// The awaited state.
        what: String,
        /// The time allowed.
        limit: Duration,
    },
    /// A process ended while something was expected of it.
    #[error("{name} ended ({how}); its last words: {log}")]
    Ended {
        /// Name of the process.
        name: String,
        /// Exit status of the process.
        how: String,
        /// The end of its log.
        log: String,
    },
}

impl LabError {
    /// Wraps what the system said about a path.
    pub fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { what: path.display().to_string(), source }
    }
}
