//! Ctrl-C and SIGTERM while something is measured: the first one ends it politely, the second one
//! at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};
use vfield_console::failure::{Failure, plain};

/// What a shell takes for "ended by ctrl-C".
const INTERRUPTED: i32 = 130;

/// A flag that becomes true at the first signal. They are caught from now on.
///
/// # Errors
/// If the system gives no thread or no signals.
pub fn watch() -> Result<Arc<AtomicBool>, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("signals: {}", plain(&error)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _within = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
    };
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let watch = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if raised.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
    Ok(flag)
}
