//! An NBD server for block sources: read-only ones, and those that can be written.
//!
//! Owns the sockets between this machine's clients (the kernel, QEMU, libnbd) and [`BlockSource`]s.
//! Invariants: no wrong byte; an error only where the source gives one; bounded memory for any
//! client; an answer that is ready never waits for another. Called by the command line and by
//! tests. With certificates it encrypts, and knows nothing of peers.
//!
//! From bytes to bytes: `listener` accepts, `catalogue` knows the exports, `visit` is the one task
//! of each client, `connection` its requests and answers. `codec` parses (without any socket),
//! `session` judges a request, `answer` asks the source and lays the answer out (`collect` waits
//! for it, `advice` fetches the extents that a client announces), `outbox` sends it with few and
//! cheap calls; `waits` holds pending reads; `upload` takes in a client's writes; `handed` is a
//! connection on its way to the next process. `lock_step` keeps the task awake for a client that
//! asks for one thing at a time. `kernel` attaches the kernel's own client.
//!
//! ```no_run
//! # use std::{error::Error, sync::Arc};
//! # use vfield_block::source::BlockSource;
//! # async fn example(image: Arc<dyn BlockSource>) -> Result<(), Box<dyn Error>> {
//! use vfield_export::nbd::{Address, Server};
//! let address: Address = "unix:/run/vfield/nbd.sock".parse()?;
//! let serving = Server::bind(&address, vec![image])?.start();
//! println!("nbdinfo '{}'", serving.address().uri(""));
//! serving.shutdown().await;
//! # Ok(()) }
//! ```

pub mod access;
mod address;
mod advice;
mod answer;
mod budget;
mod catalogue;
pub mod client;
pub mod codec;
mod collect;
mod connection;
mod handed;
mod inbox;
pub mod kernel;
mod listener;
mod lock_step;
mod outbox;
mod pause;
mod refusals;
mod server;
mod session;
mod socket;
mod tls;
mod upload;
mod visit;
mod waits;

pub use address::{Address, AddressError, PORT, UNIX_PATH_BYTES_MAX, unix_path};
pub use handed::Handed;
pub use listener::BindError;
pub use server::{Counts, Server, Serving};
pub use tls::{Tls, TlsError};

use std::time::Duration;

#[cfg(doc)]
use vfield_block::source::BlockSource;

/// Bounds on the resources of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Clients at a time, those in the handshake included; one more is turned away at once. QEMU's
    /// limit after CVE-2024-7409 is 100; each costs one descriptor and, at worst, what the other
    /// limits add up to.
    pub connections: usize,
    /// Time for a whole handshake, from the same lesson. Real clients need milliseconds.
    pub handshake: Duration,
    /// Requests of one connection that may wait for the source. Kernel queues have 128 requests at
    /// most.
    pub waiting_requests: usize,
    /// Bytes that those may wait for; exceeded by one window of 1 MiB at most. 64 requests of 256
    /// KiB, what `nbdcopy` has under way, are 16 MiB.
    pub waiting_bytes: u64,
    /// Bytes in flight for the CACHE requests of one connection, a chunk each; requests beyond are
    /// answered and forgotten. Sixteen chunks of the usual size keep a link of 1 Gbit/s busy.
    pub advice_bytes: u64,
    /// The same of all connections: as much as four clients need, and no more than the chunks that
    /// a node keeps for a while anyway.
    pub advice_bytes_of_all: u64,
    /// Bytes that reads of all connections may keep in place while they wait for the rest of their
    /// windows; those beyond look them up again when the rest is here. As much as sixteen
    /// connections of `nbdcopy` need.
    pub held_bytes_of_all: u64,
    /// At shutdown, how long reads may still wait before they are answered with `ESHUTDOWN`.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            handshake: Duration::from_secs(10),
            waiting_requests: 128,
            waiting_bytes: 32 << 20,
            advice_bytes: 1 << 20,
            advice_bytes_of_all: 4 << 20,
            held_bytes_of_all: 16 << 20,
            grace: Duration::from_secs(5),
        }
    }
}
