//! The dashboard of this daemon: its socket, its names, and the process' own figures.
//!
//! Owns the listener from the start of the daemon to its end. The handler of control requests is
//! its source; [`vfield_dashboard`] makes the answers.

use crate::plan::HttpPlan;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use vfield_console::failure::{Failure, plain};
use vfield_console::log::{Console, EVENTS};
use vfield_dashboard::site::Site;
use vfield_dashboard::view::Source;

/// A dashboard that listens until this is dropped.
#[derive(Debug)]
pub struct Dashboard(AbortHandle);

impl Dashboard {
    /// Starts the dashboard of a plan, if it has one. Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub async fn start(
        plan: Option<&HttpPlan>,
        source: Arc<dyn Source>,
        console: &Console,
    ) -> Result<Option<Self>, Failure> {
        let Some(HttpPlan { addr, names }) = plan else { return Ok(None) };
        let refused = |error: std::io::Error| {
            Failure::failed(format!("cannot listen on {addr} for --http: {}", plain(&error)))
                .hint("choose an address of this machine and a free port with --http ADDR:PORT")
        };
        let listener = TcpListener::bind(addr).await.map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let site = Site::new(source, names.iter().cloned().chain([own]));
        let serving = tokio::spawn(site.serve(listener));
        tracing::info!(target: EVENTS, event = "dashboard", %addr, "dashboard");
        console.say(&format!("the dashboard is at http://{addr}/"));
        Ok(Some(Self(serving.abort_handle())))
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Processor time of this process, in seconds.
pub fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
