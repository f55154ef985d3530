//! The end of a process in which something panicked, in whatever thread or task.
//!
//! Invariant: no panic is survived. A runtime catches the panics of its tasks, and a daemon of
//! which half goes on neither serves nor dies: peers wait for it, and nobody starts it again. A
//! process that has ended is started again by its guard or its service manager, and finds its
//! store. Called by `main`, before anything else.

use std::panic;

/// Lets each panic of this process be told as usual, and then end it by SIGABRT.
pub fn end_on_panic() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        tell(panic);
        // Not as a log line: what panicked may hold the log's locks.
        eprintln!(
            "vfield: a defect ended this program\n\
             hint: report the lines above; a guard (--guard) or service manager starts a daemon again, with its store",
        );
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    /// The test runs itself as a process of its own, in which another thread panics.
    #[test]
    fn a_panic_in_any_thread_ends_the_process() {
        const INNER: &str = "VFIELD_TEST_OF_A_PANIC";
        if env::var_os(INNER).is_some() {
            super::end_on_panic();
            let survived = std::thread::spawn(|| panic!("as it has to")).join();
            // Another panic would end it in the same way.
            eprintln!("the process lives: {survived:?}");
            std::process::exit(0);
        }
        let test = std::thread::current().name().expect("a test has a thread of its name").to_owned();
        let mut command = Command::new(env::current_exe().expect("this program"));
        let ended = command.args(["--exact", &test, "--nocapture"]).env(INNER, "1").output().expect("it runs again");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(6), "{said}");
        assert!(said.contains("as it has to") && said.contains("a defect ended this program"), "{said}");
    }

    /// The program that is handed out has no unwinding, so no code of it can catch a panic.
    #[test]
    fn what_ships_is_built_without_unwinding() {
        let profiles = include_str!("../../../Cargo.toml");
        let (_, shipped) = profiles.split_once("[profile.static]\n").expect("the profile of scripts/static");
        assert!(shipped.split("\n[").next().is_some_and(|profile| profile.contains("panic = \"abort\"")), "{shipped}");
    }
}
