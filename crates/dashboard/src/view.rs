//! What the dashboard is made of: the state of a daemon at one moment.

use vfield_control::events::EventStatus;
use vfield_control::message::DaemonStatus;
use vfield_control::server::Pending;
use vfield_core::node::picture::Picture;
use vfield_node::delays::Delays;

/// Equal parts of the ring in a picture: one for each three pixels of a telephone.
pub const RING_CELLS: u64 = 120;

/// Most events in a view: a person reads no more.
pub const EVENTS_SHOWN: usize = 30;

/// The state of a daemon at one moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The object of `vfield status --json`.
    pub status: DaemonStatus,
    /// The rings, and the waits.
    pub picture: Picture,
    /// For how long reads waited.
    pub delays: Delays,
    /// The last events, the oldest first; [`EVENTS_SHOWN`] at most.
    pub events: Vec<EventStatus>,
    /// Processor time of the process in seconds.
    pub processor_s: f64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// The daemon behind a dashboard.
pub trait Source: Send + Sync + 'static {
    /// Its state now; or, while it starts or ends, what it does. Somebody who `asks` wants to know
    /// how well the images are covered, so stores are checked for a while.
    fn look(&self, asks: bool) -> Pending<'_, Result<View, String>>;
}
