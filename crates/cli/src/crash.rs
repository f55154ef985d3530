//! The end of a process in which something panicked, in whatever thread or task.
//!
//! Invariant: no panic is survived. A runtime catches the panics of its tasks, and a daemon of
//! which half goes on neither serves nor dies: peers wait for it, and nobody starts it again. A
//! process that has ended is started again by its guard or its service manager, and finds its
//! store. Called by `main`, before anything else.

use std::panic;
use vfield_console::output;

/// Lets each panic of this process be told as usual, and then end it by SIGABRT.
pub fn end_on_panic() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        tell(panic);
        // Not as a log line: what panicked may hold the log's locks.
        output::say(
            "vfield: a defect ended this program\n\
             hint: report the lines above; a guard (--root) or service manager starts a daemon again, with its store",
        );
        std::process::abort();
    }));
}
