//! The signals that a daemon knows.
//!
//! SIGTERM and SIGINT end it. SIGHUP has files read again, unless the daemon's terminal has gone, which ends it
//! too: nobody could press Ctrl-C any more. SIGUSR1 and SIGUSR2 have it say more and less. Who is told what
//! is in [`super::reload`] and [`crate::run`].

use std::io::{IsTerminal, stderr, stdin};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Leave, and end.
    End,
    /// Read files again.
    Reload,
    /// Say more.
    Louder,
    /// Say less.
    Quieter,
}

/// Caught from the moment it exists.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    louder: Signal,
    quieter: Signal,
    terminals: Terminals,
}

impl Signals {
    /// Starts to catch. Has to be called within a tokio runtime.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            louder: signal(SignalKind::user_defined1())?,
            quieter: signal(SignalKind::user_defined2())?,
            terminals: Terminals::now(),
        })
    }

    /// What the next one asks for.
    pub async fn next(&mut self) -> Told {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hang_up.recv() => if self.terminals == Terminals::now() { Told::Reload } else { Told::End },
            _ = self.louder.recv() => Told::Louder,
            _ = self.quieter.recv() => Told::Quieter,
        }
    }

    /// Returns at the next one that asks for the end; the others say nothing to one who ends.
    pub async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

/// Which of this process's streams are terminals; one that was hung up is none any more.
#[derive(Debug, PartialEq, Eq)]
struct Terminals {
    stdin: bool,
    stderr: bool,
}

impl Terminals {
    fn now() -> Self {
        Self { stdin: stdin().is_terminal(), stderr: stderr().is_terminal() }
    }
}
