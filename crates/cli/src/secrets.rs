//! The memory of this process, which may have a key in it, and most of an image.
//!
//! Invariant: the kernel shows it to no process of the same user, by ptrace(2) or in `/proc`, and
//! writes it to no core dump. Called by `main`, before a key can be read. A daemon that becomes
//! another user says so once more, because the kernel forgets it then.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Hides it for as long as this program runs.
pub fn hide_memory() {
    // A refusal is an outer sandbox's wish, and no reason not to run.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}
