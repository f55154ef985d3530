//! The watcher: one thread for the process that hears of writers of published files.
//!
//! The kernel sends SIGIO, which does not say for which file: the thread then checks all guards.
//! The signal is the plain SIGIO and not a real-time one with the descriptor. Those queue, and when
//! the queue overflows the kernel sends SIGIO anyway. As a second line the thread checks every
//! [`LOOK`] without a signal. Invariant: its handler is in place before the first lease is taken.
//! Guards use it.

use super::guard::{Guard, Watch};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Interval of checks without a signal: far below the kernel's 45 s, and cheap.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of checks while a writer waits for pins.
const LOOK_CLOSELY: Duration = Duration::from_millis(5);

static GUARDS: Mutex<Vec<Weak<Guard>>> = Mutex::new(Vec::new());

/// Starts the thread if it does not run; false if signals cannot be heard.
pub fn start() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let (ready, is_ready) = sync_channel(1);
        let thread = std::thread::Builder::new().name("vfield-lease".to_owned());
        thread.spawn(move || run(&ready)).is_ok() && is_ready.recv().unwrap_or(false)
    })
}

/// Looks after `guard` from now on, for as long as it lives.
pub fn add(guard: &Arc<Guard>) {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(guard));
}

fn run(ready: &SyncSender<bool>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    runtime.block_on(async {
        let Ok(mut knocks) = signal(SignalKind::io()) else { return };
        if ready.send(true).is_err() {
            return;
        }
        loop {
            let pause = if look(Instant::now()) == Watch::Closely { LOOK_CLOSELY } else { LOOK };
            // Either way: look. Which of the two it was does not matter.
            let _ = tokio::time::timeout(pause, knocks.recv()).await;
        }
    });
}

/// Moves all guards on; returns the most urgent one's wish.
fn look(now: Instant) -> Watch {
    let mut most = Watch::Done;
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner).retain(|guard| {
        let watch = guard.upgrade().map_or(Watch::Done, |guard| guard.step(now));
        most = most.max(watch);
        watch != Watch::Done
    });
    most
}
